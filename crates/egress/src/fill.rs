//! Texts with secrets in them, which are put in when a request is sent.
//!
//! A handle is a type, not a way of writing: a text that a model wrote never becomes a secret, whatever it says.

use crate::error::EgressError;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use portcullis_core::Secret;
use portcullis_store::secrets::{SecretError, SecretRef, SecretStore};
use std::fmt;

/// Where the values come from.
pub trait SecretSource: Send + Sync {
    /// Returns a value for `field` of a request to `host`, if it was granted for that.
    fn resolve_for(&self, name: &str, host: &str, field: &str) -> Result<Secret<String>, SecretError>;

    /// Returns a value that is an address as a whole, for a request to that address.
    fn resolve_address(&self, name: &str) -> Result<Secret<String>, SecretError> {
        Err(SecretError::Unknown(name.to_owned()))
    }
}

impl SecretSource for SecretStore {
    fn resolve_for(&self, name: &str, host: &str, field: &str) -> Result<Secret<String>, SecretError> {
        SecretStore::resolve_for(self, name, host, field)
    }

    fn resolve_address(&self, name: &str) -> Result<Secret<String>, SecretError> {
        SecretStore::resolve_address(self, name)
    }
}

/// A source without any.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoSecrets;

impl SecretSource for NoSecrets {
    fn resolve_for(&self, name: &str, _: &str, _: &str) -> Result<Secret<String>, SecretError> {
        Err(SecretError::Unknown(name.to_owned()))
    }
}

/// How a value is written where it stands, so that it cannot become anything else there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Escape {
    AsIs,
    /// Within a JSON string.
    Json,
    /// In an address or a form.
    Percent,
}

#[derive(Clone)]
enum Piece {
    Text(String),
    Secret(SecretRef),
}

/// A text with secrets in it. Shows their handles, never their values.
#[derive(Clone, Default)]
pub struct Fill(Vec<Piece>);

impl Fill {
    pub fn text(text: impl Into<String>) -> Fill {
        Fill(vec![Piece::Text(text.into())])
    }

    pub fn secret(handle: SecretRef) -> Fill {
        Fill(vec![Piece::Secret(handle)])
    }

    pub fn then_text(mut self, text: impl Into<String>) -> Fill {
        self.0.push(Piece::Text(text.into()));
        self
    }

    pub fn then_secret(mut self, handle: SecretRef) -> Fill {
        self.0.push(Piece::Secret(handle));
        self
    }

    pub(crate) fn has_secret(&self) -> bool {
        self.0.iter().any(|piece| matches!(piece, Piece::Secret(_)))
    }

    /// Returns the text with the values in it, as far as they were granted for this host and field.
    pub(crate) fn filled(
        &self,
        source: &dyn SecretSource,
        host: &str,
        field: &str,
        escape: Escape,
    ) -> Result<Secret<String>, EgressError> {
        let mut text = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Text(piece) => text.push_str(piece),
                Piece::Secret(handle) => text.push_str(value(handle, source, host, field, escape)?.expose()),
            }
        }
        Ok(Secret::new(text))
    }
}

/// Returns one value, written for its place.
pub(crate) fn value(
    handle: &SecretRef,
    source: &dyn SecretSource,
    host: &str,
    field: &str,
    escape: Escape,
) -> Result<Secret<String>, EgressError> {
    let value = source.resolve_for(handle.name(), host, field);
    // The store's words name the secret and the place, never the value.
    let value = value.map_err(|error| EgressError::Secret { why: error.to_string() })?;
    Ok(Secret::new(match escape {
        Escape::AsIs => value.expose().clone(),
        Escape::Percent => utf8_percent_encode(value.expose(), NON_ALPHANUMERIC).to_string(),
        Escape::Json => json_escaped(value.expose()),
    }))
}

/// Returns a text as it stands between the quotes of a JSON string.
fn json_escaped(text: &str) -> String {
    use std::fmt::Write;
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '"' | '\\' => escaped.extend(['\\', c]),
            c if c < ' ' => {
                // Writing to a string cannot fail.
                let _ = write!(escaped, "\\u{:04x}", u32::from(c));
            }
            c => escaped.push(c),
        }
    }
    escaped
}

impl fmt::Debug for Fill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => f.write_str(text)?,
                Piece::Secret(handle) => write!(f, "{handle}")?,
            }
        }
        Ok(())
    }
}
