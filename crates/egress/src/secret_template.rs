//! Text with references to secrets, which are resolved when a request is sent.
//!
//! A reference is a type, not a syntax: text from a model never becomes a secret.

use crate::error::EgressError;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use portcullis_core::Secret;
use portcullis_store::secrets::{SecretError, SecretRef, SecretStore};
use std::fmt;

/// Resolves secrets.
pub trait SecretSource: Send + Sync {
    /// Returns the value for `field` of a request to `host`, if the secret is granted for both.
    fn resolve_for(&self, name: &str, host: &str, field: &str) -> Result<Secret<String>, SecretError>;

    /// Returns whether [`SecretSource::resolve_for`] would release the value, without doing so.
    fn releases(&self, name: &str, host: &str, field: &str) -> Result<(), SecretError> {
        self.resolve_for(name, host, field).map(drop)
    }

    /// Returns a value that is a whole URL, for a request to that URL.
    fn resolve_address(&self, name: &str) -> Result<Secret<String>, SecretError> {
        Err(SecretError::Unknown(name.to_owned()))
    }

    /// Returns whether there is a secret with this name.
    fn has(&self, _name: &str) -> bool {
        false
    }
}

impl SecretSource for SecretStore {
    fn resolve_for(&self, name: &str, host: &str, field: &str) -> Result<Secret<String>, SecretError> {
        SecretStore::resolve_for(self, name, host, field)
    }

    fn releases(&self, name: &str, host: &str, field: &str) -> Result<(), SecretError> {
        self.check_grant(name, host, field)
    }

    fn resolve_address(&self, name: &str) -> Result<Secret<String>, SecretError> {
        SecretStore::resolve_address(self, name)
    }

    fn has(&self, name: &str) -> bool {
        self.list().is_ok_and(|secrets| secrets.iter().any(|secret| secret.name == name))
    }
}

/// A source without secrets.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoSecrets;

impl SecretSource for NoSecrets {
    fn resolve_for(&self, name: &str, _: &str, _: &str) -> Result<Secret<String>, SecretError> {
        Err(SecretError::Unknown(name.to_owned()))
    }
}

/// How a value is escaped in its context, so that it cannot break out of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecretEscaping {
    AsIs,
    /// Within a JSON string.
    Json,
    /// In a URL or a form.
    Percent,
}

#[derive(Clone)]
enum TemplatePiece {
    Text(String),
    Secret(SecretRef),
}

/// Text with references to secrets. `Debug` shows the references, never the values.
#[derive(Clone, Default)]
pub struct SecretTemplate(Vec<TemplatePiece>);

impl SecretTemplate {
    pub fn text(text: impl Into<String>) -> SecretTemplate {
        SecretTemplate(vec![TemplatePiece::Text(text.into())])
    }

    pub fn secret(handle: SecretRef) -> SecretTemplate {
        SecretTemplate(vec![TemplatePiece::Secret(handle)])
    }

    pub fn then_text(mut self, text: impl Into<String>) -> SecretTemplate {
        self.0.push(TemplatePiece::Text(text.into()));
        self
    }

    pub fn then_secret(mut self, handle: SecretRef) -> SecretTemplate {
        self.0.push(TemplatePiece::Secret(handle));
        self
    }

    pub(crate) fn has_secret(&self) -> bool {
        self.0.iter().any(|piece| matches!(piece, TemplatePiece::Secret(_)))
    }

    /// Returns the text with the values. Fails if one is not granted for this host and field.
    pub(crate) fn filled(
        &self,
        source: &dyn SecretSource,
        host: &str,
        field: &str,
        escape: SecretEscaping,
    ) -> Result<Secret<String>, EgressError> {
        let mut text = String::new();
        for piece in &self.0 {
            match piece {
                TemplatePiece::Text(piece) => text.push_str(piece),
                TemplatePiece::Secret(handle) => {
                    text.push_str(value(handle, source, host, field, escape)?.expose())
                }
            }
        }
        Ok(Secret::new(text))
    }
}

/// Returns one escaped value.
pub(crate) fn value(
    handle: &SecretRef,
    source: &dyn SecretSource,
    host: &str,
    field: &str,
    escape: SecretEscaping,
) -> Result<Secret<String>, EgressError> {
    let value = source.resolve_for(handle.name(), host, field);
    // The store's error names the secret and the host, never the value.
    let value = value.map_err(|error| EgressError::Secret { why: error.to_string() })?;
    Ok(Secret::new(match escape {
        SecretEscaping::AsIs => value.expose().clone(),
        SecretEscaping::Percent => utf8_percent_encode(value.expose(), NON_ALPHANUMERIC).to_string(),
        SecretEscaping::Json => json_escaped(value.expose()),
    }))
}

/// Escapes a text for a JSON string, without the quotes.
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

impl fmt::Debug for SecretTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for piece in &self.0 {
            match piece {
                TemplatePiece::Text(text) => f.write_str(text)?,
                TemplatePiece::Secret(handle) => write!(f, "{handle}")?,
            }
        }
        Ok(())
    }
}
