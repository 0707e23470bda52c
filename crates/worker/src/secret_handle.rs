//! Secret handles: what a script has in place of a secret's value. The hub inserts the value when it sends a request.
//!
//! A handle is a string, so that a script can concatenate and format it. It ends with a random number that only this
//! run knows, so text from a third party never becomes a secret. In every other output of the script, the handle is
//! replaced with the secret's name.

use data_encoding::HEXLOWER;
use portcullis_script::TextPiece;

const BEGINNING: &str = "[secret ";

/// The handles of one run.
#[derive(Debug)]
pub(crate) struct SecretHandles {
    /// The random suffix of each handle.
    end: String,
}

impl SecretHandles {
    pub(crate) fn new() -> std::io::Result<SecretHandles> {
        let mut random = [0_u8; 16];
        let read = rustix::rand::getrandom(&mut random[..], rustix::rand::GetRandomFlags::empty())?;
        if read < random.len() {
            return Err(std::io::Error::other("not enough random bytes"));
        }
        let number = HEXLOWER.encode(&random);
        Ok(SecretHandles { end: format!(" {number}]") })
    }

    pub(crate) fn handle(&self, name: &str) -> String {
        format!("{BEGINNING}{name}{}", self.end)
    }

    /// Returns whether the text contains a handle or the end of one.
    pub(crate) fn is_in(&self, text: &str) -> bool {
        text.contains(&self.end)
    }

    /// Splits a text at its handles.
    pub(crate) fn pieces(&self, text: &str) -> Vec<TextPiece> {
        let (mut pieces, mut rest) = (Vec::new(), text);
        while let Some(end) = rest.find(&self.end) {
            let (before, after) = (&rest[..end], &rest[end + self.end.len()..]);
            match before.rfind(BEGINNING) {
                Some(begin) => {
                    pieces.push(TextPiece::Text(before[..begin].to_owned()));
                    pieces.push(TextPiece::Secret(before[begin + BEGINNING.len()..].to_owned()));
                }
                // The script cut the handle: half a handle is none.
                None => pieces.push(TextPiece::Text(before.to_owned())),
            }
            rest = after;
        }
        pieces.push(TextPiece::Text(rest.to_owned()));
        pieces.retain(|piece| *piece != TextPiece::Text(String::new()));
        pieces
    }

    /// Replaces handles with the names of the secrets.
    pub(crate) fn named(&self, text: String) -> String {
        if self.is_in(&text) { text.replace(&self.end, "]") } else { text }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_are_found_and_nothing_else_is_one() {
        let handles = SecretHandles::new().unwrap();
        let key = handles.handle("A_KEY");
        let text = format!("Bearer {key}, {key}");
        let secret = || TextPiece::Secret("A_KEY".to_owned());
        let plain = |text: &str| TextPiece::Text(text.to_owned());
        assert_eq!(handles.pieces(&text), [plain("Bearer "), secret(), plain(", "), secret()]);
        assert_eq!(handles.named(text), "Bearer [secret A_KEY], [secret A_KEY]");
        // Text from a third party, and a handle of another run.
        for other in ["[secret A_KEY]".to_owned(), SecretHandles::new().unwrap().handle("A_KEY")] {
            assert_eq!(handles.pieces(&other), [plain(&other)]);
        }
        // Half a handle.
        assert_eq!(handles.pieces(&key[9..]), [plain("_KEY")]);
        assert_eq!(handles.pieces(&key[..12]), [plain(&key[..12])]);
    }
}
