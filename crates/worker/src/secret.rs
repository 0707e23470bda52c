//! A secret, as a script has it: a handle. The value is with the hub, which puts it in when a request is sent.
//!
//! A handle is a text, so that it can be joined and formatted like any other. What makes it one is a number that only this
//! run knows: a text that a stranger wrote never becomes a secret, whatever it says. Wherever a text leaves the script other
//! than in a request, the handle is its name and nothing else.

use portcullis_script::Piece;

const BEGINNING: &str = "[secret ";

/// Knows the handles of one run.
#[derive(Debug)]
pub(crate) struct Handles {
    /// What stands at the end of each.
    end: String,
}

impl Handles {
    pub(crate) fn new() -> std::io::Result<Handles> {
        let mut random = [0_u8; 16];
        let read = rustix::rand::getrandom(&mut random[..], rustix::rand::GetRandomFlags::empty())?;
        if read < random.len() {
            return Err(std::io::Error::other("not enough random bytes"));
        }
        let number: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Handles { end: format!(" {number}]") })
    }

    pub(crate) fn handle(&self, name: &str) -> String {
        format!("{BEGINNING}{name}{}", self.end)
    }

    /// Returns whether there is a handle in the text, or what is left of one.
    pub(crate) fn is_in(&self, text: &str) -> bool {
        text.contains(&self.end)
    }

    /// Takes a text apart at its handles.
    pub(crate) fn pieces(&self, text: &str) -> Vec<Piece> {
        let (mut pieces, mut rest) = (Vec::new(), text);
        while let Some(end) = rest.find(&self.end) {
            let (before, after) = (&rest[..end], &rest[end + self.end.len()..]);
            match before.rfind(BEGINNING) {
                Some(begin) => {
                    pieces.push(Piece::Text(before[..begin].to_owned()));
                    pieces.push(Piece::Secret(before[begin + BEGINNING.len()..].to_owned()));
                }
                // Somebody cut it in two: half a handle is none.
                None => pieces.push(Piece::Text(before.to_owned())),
            }
            rest = after;
        }
        pieces.push(Piece::Text(rest.to_owned()));
        pieces.retain(|piece| *piece != Piece::Text(String::new()));
        pieces
    }

    /// Returns the text with names in place of handles.
    pub(crate) fn named(&self, text: String) -> String {
        if self.is_in(&text) { text.replace(&self.end, "]") } else { text }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_are_found_and_nothing_else_is_one() {
        let handles = Handles::new().unwrap();
        let key = handles.handle("A_KEY");
        let text = format!("Bearer {key}, {key}");
        let secret = || Piece::Secret("A_KEY".to_owned());
        let plain = |text: &str| Piece::Text(text.to_owned());
        assert_eq!(handles.pieces(&text), [plain("Bearer "), secret(), plain(", "), secret()]);
        assert_eq!(handles.named(text), "Bearer [secret A_KEY], [secret A_KEY]");
        // What a stranger writes, and a handle of another run.
        for other in ["[secret A_KEY]".to_owned(), Handles::new().unwrap().handle("A_KEY")] {
            assert_eq!(handles.pieces(&other), [plain(&other)]);
        }
        // Half of one.
        assert_eq!(handles.pieces(&key[9..]), [plain("_KEY")]);
        assert_eq!(handles.pieces(&key[..12]), [plain(&key[..12])]);
    }
}
