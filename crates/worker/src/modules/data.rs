//! `json`, `base64` and `hash`.

use crate::json as values;
use crate::run_context::RunContext;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
use data_encoding::HEXLOWER;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256, Sha512};
use starlark::environment::GlobalsBuilder;
use starlark::starlark_module;
use starlark::values::{Heap, Value};

#[starlark_module]
pub(crate) fn json(builder: &mut GlobalsBuilder) {
    /// Serializes a value as JSON.
    fn encode<'v>(#[starlark(require = pos)] value: Value<'v>, heap: Heap<'v>) -> anyhow::Result<String> {
        values::text_of(value, heap).map_err(|why| anyhow::anyhow!("json.encode: {why}"))
    }

    /// Parses JSON.
    fn decode<'v>(#[starlark(require = pos)] text: &str, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
        let value: serde_json::Value =
            serde_json::from_str(text).map_err(|error| anyhow::anyhow!("json.decode: {error}"))?;
        Ok(values::value_of(&value, heap))
    }
}

#[starlark_module]
pub(crate) fn base64(builder: &mut GlobalsBuilder) {
    fn encode(
        #[starlark(require = pos)] text: &str,
        #[starlark(require = named, default = false)] url: bool,
    ) -> anyhow::Result<String> {
        RunContext::now()?.without_handle("base64.encode", text)?;
        Ok(if url { URL_SAFE_NO_PAD.encode(text) } else { STANDARD.encode(text) })
    }

    /// Accepts both alphabets, with or without padding. Fails if the decoded bytes are not UTF-8.
    fn decode(#[starlark(require = pos)] text: &str) -> anyhow::Result<String> {
        let engines = [STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD];
        let bytes = engines.iter().find_map(|engine| engine.decode(text).ok());
        let bytes = bytes.ok_or_else(|| anyhow::anyhow!("base64.decode: invalid base64"))?;
        String::from_utf8(bytes)
            .map_err(|_| anyhow::anyhow!("base64.decode: the decoded bytes are not UTF-8"))
    }
}

#[starlark_module]
pub(crate) fn hash(builder: &mut GlobalsBuilder) {
    fn sha256(#[starlark(require = pos)] text: &str) -> anyhow::Result<String> {
        RunContext::now()?.without_handle("hash.sha256", text)?;
        Ok(HEXLOWER.encode(&Sha256::digest(text)))
    }

    fn sha512(#[starlark(require = pos)] text: &str) -> anyhow::Result<String> {
        RunContext::now()?.without_handle("hash.sha512", text)?;
        Ok(HEXLOWER.encode(&Sha512::digest(text)))
    }

    fn hmac_sha256(
        #[starlark(require = pos)] key: &str,
        #[starlark(require = pos)] text: &str,
    ) -> anyhow::Result<String> {
        for given in [key, text] {
            RunContext::now()?.without_handle("hash.hmac_sha256", given)?;
        }
        let mut mac = Hmac::<Sha256>::new_from_slice(key.as_bytes())?;
        mac.update(text.as_bytes());
        Ok(HEXLOWER.encode(&mac.finalize().into_bytes()))
    }
}
