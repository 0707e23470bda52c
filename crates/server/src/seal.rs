//! What a call wants to remember until its next round, given to the client and not trusted when it comes back.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use portcullis_core::{Answers, Clock, OWN_KEYS, Question, ToolError};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use std::sync::Arc;

/// How long a client may take to answer.
const ROUND_SECS_MAX: u64 = 15 * 60;
/// How large the sealed text may be: answers to a few forms, and what a server wants to remember.
const SEALED_BYTES_MAX: usize = 256 * 1024;

/// Enough that no two texts of one hub meet.
const MARK_BYTES: usize = 16;

/// What is sealed.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Sealed {
    /// Digest of the call that it belongs to.
    call: String,
    expires: u64,
    /// The questions that this round ends with.
    asked: Vec<String>,
    left: Left,
}

/// What a round leaves for the next one.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Left {
    pub(crate) answers: Answers,
    /// What the call remembers.
    pub(crate) state: Option<String>,
    /// What shows that a person has let the call run.
    pub(crate) approved: Option<String>,
}

/// The opened seal: what earlier rounds left.
#[derive(Debug, Default)]
pub(crate) struct Earlier {
    asked: Vec<String>,
    pub(crate) left: Left,
}

impl Earlier {
    #[cfg(test)]
    pub(crate) fn of(left: Left) -> Earlier {
        Earlier { asked: Vec::new(), left }
    }

    /// Adds what this round brings. An answer to a question of the hub's own that was never put is no answer.
    pub(crate) fn add(&mut self, answers: Answers) {
        let asked = &self.asked;
        let counts = |key: &String| !key.starts_with(OWN_KEYS) || asked.contains(key);
        self.left.answers.extend(answers.into_iter().filter(|(key, _)| counts(key)));
    }
}

/// Seals and opens.
pub(crate) struct Seal {
    key: [u8; 32],
    clock: Arc<dyn Clock>,
}

impl Seal {
    /// Makes a seal with a fresh key. A round that was open when the hub stopped must be begun again.
    pub(crate) fn new(clock: Arc<dyn Clock>) -> std::io::Result<Seal> {
        let mut key = [0; 32];
        getrandom::fill(&mut key).map_err(|e| std::io::Error::other(e.to_string()))?;
        Ok(Seal { key, clock })
    }

    /// Seals what a round leaves. What could not come back is refused at once.
    pub(crate) fn seal(
        &self,
        digest: &[u8; 32],
        questions: &[Question],
        left: Left,
    ) -> Result<String, ToolError> {
        let expires = self.clock.since_epoch().as_secs() + ROUND_SECS_MAX;
        let asked = questions.iter().map(|question| question.key.clone()).collect();
        let sealed = Sealed { call: hex(digest), expires, asked, left };
        // Answers have string keys, so writing them cannot fail.
        let payload = serde_json::to_vec(&sealed).unwrap_or_default();
        let tag = self.mac(&payload).finalize().into_bytes();
        let text = format!("{}.{}", URL_SAFE_NO_PAD.encode(&payload), URL_SAFE_NO_PAD.encode(tag));
        if text.len() > SEALED_BYTES_MAX {
            let what = "what the call has to remember until it is answered";
            return Err(ToolError::too_large(what, text.len(), SEALED_BYTES_MAX)
                .hint("begin the call again, and answer its questions with less"));
        }
        Ok(text)
    }

    /// Returns what stands for a text where the text itself must not be told. Another hub's is another one.
    pub(crate) fn mark(&self, text: &str) -> String {
        let mut mac = self.mac(b"mark");
        mac.update(text.as_bytes());
        URL_SAFE_NO_PAD.encode(&mac.finalize().into_bytes()[..MARK_BYTES])
    }

    /// Opens what a client brought back, or says why not.
    pub(crate) fn open(&self, digest: &[u8; 32], text: &str) -> Result<Earlier, &'static str> {
        const REFUSED: &str = "`requestState` is not what the hub sent; begin the call again without it";
        if text.len() > SEALED_BYTES_MAX {
            return Err(REFUSED);
        }
        let (payload, tag) = text.split_once('.').ok_or(REFUSED)?;
        let payload = URL_SAFE_NO_PAD.decode(payload).map_err(|_| REFUSED)?;
        let tag = URL_SAFE_NO_PAD.decode(tag).map_err(|_| REFUSED)?;
        self.mac(&payload).verify_slice(&tag).map_err(|_| REFUSED)?;
        let sealed: Sealed = serde_json::from_slice(&payload).map_err(|_| REFUSED)?;
        if sealed.call != hex(digest) {
            return Err("`requestState` belongs to another call; begin this one without it");
        }
        if sealed.expires < self.clock.since_epoch().as_secs() {
            return Err("`requestState` has expired; begin the call again without it");
        }
        Ok(Earlier { asked: sealed.asked, left: sealed.left })
    }

    #[expect(clippy::expect_used, reason = "HMAC takes a key of any length")]
    fn mac(&self, payload: &[u8]) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key).expect("a key of any length");
        mac.update(payload);
        mac
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use portcullis_core::{Ask, ErrorKind, SystemClock};
    use std::time::{Duration, SystemTime};

    struct Late;

    impl Clock for Late {
        fn now(&self) -> SystemTime {
            SystemClock.now() + Duration::from_secs(ROUND_SECS_MAX + 60)
        }
    }

    #[test]
    fn only_what_was_sealed_is_opened() {
        let seal = Seal::new(Arc::new(SystemClock)).unwrap();
        let answers = Answers::from([("k".to_owned(), serde_json::json!({"action": "accept"}))]);
        let ask = Ask::elicit("May it?", serde_json::json!({}));
        let questions = [Question { key: "portcullis_approval".to_owned(), ask }];
        let left = Left { answers, state: Some("s".to_owned()), approved: Some("m".to_owned()) };
        let text = seal.seal(&[7; 32], &questions, left.clone()).unwrap();
        let mut opened = seal.open(&[7; 32], &text).unwrap();
        assert_eq!(opened.left, left);

        // An approval counts where it was asked for, and nowhere else.
        let yes = || Answers::from([("portcullis_approval".to_owned(), serde_json::json!(true))]);
        let mut never_asked = Earlier::default();
        never_asked.add(yes());
        opened.add(yes());
        assert_eq!((never_asked.left.answers.len(), opened.left.answers.len()), (0, 2));

        let mut flipped = text.clone().into_bytes();
        flipped[3] ^= 1;
        let flipped = String::from_utf8(flipped).unwrap();
        for bad in [format!("{text}-TAMPERED"), flipped, String::new(), "a.b".to_owned(), "x".repeat(1 << 20)]
        {
            assert!(seal.open(&[7; 32], &bad).is_err(), "{}", &bad[..bad.len().min(40)]);
        }
        assert!(seal.open(&[8; 32], &text).unwrap_err().contains("another call"));
        let late = Seal { key: seal.key, clock: Arc::new(Late) };
        assert!(late.open(&[7; 32], &text).unwrap_err().contains("expired"));
    }

    #[test]
    fn what_could_not_come_back_is_not_handed_out() {
        let seal = Seal::new(Arc::new(SystemClock)).unwrap();
        let of = |bytes: usize| {
            seal.seal(&[7; 32], &[], Left { state: Some("s".repeat(bytes)), ..Left::default() })
        };
        let fits = of(SEALED_BYTES_MAX / 2).unwrap();
        assert!(seal.open(&[7; 32], &fits).is_ok());
        assert_eq!(of(SEALED_BYTES_MAX).unwrap_err().kind, ErrorKind::TooLarge);
    }
}
