//! Sealed `requestState`: the state of a call between rounds, authenticated with HMAC because the client holds it.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use data_encoding::HEXLOWER;
use hmac::{Hmac, KeyInit, Mac};
use portcullis_core::{Clock, InputResponses, KeyedInputRequest, OWN_KEYS, ToolError};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use std::sync::Arc;

/// How long a client may take to answer.
const ROUND_SECS_MAX: u64 = 15 * 60;
/// Length of the sealed text: answers to a few forms, and the state of an upstream server.
const SEALED_BYTES_MAX: usize = 256 * 1024;

/// Enough to rule out collisions within one hub.
const MARK_BYTES: usize = 16;

/// The authenticated payload.
#[derive(Debug, Default, Serialize, Deserialize)]
struct SealedPayload {
    /// Digest of the call that it belongs to.
    call: String,
    expires: u64,
    /// The keys of the input requests of this round.
    asked: Vec<String>,
    left: RoundMemory,
}

/// State that a round passes to the next one.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct RoundMemory {
    pub(crate) answers: InputResponses,
    /// The state of the call.
    pub(crate) state: Option<String>,
    /// Proof that a person approved the call.
    pub(crate) approved: Option<String>,
}

/// The opened seal, from earlier rounds.
#[derive(Debug, Default)]
pub(crate) struct PreviousRounds {
    asked: Vec<String>,
    pub(crate) left: RoundMemory,
}

impl PreviousRounds {
    #[cfg(test)]
    pub(crate) fn of(left: RoundMemory) -> PreviousRounds {
        PreviousRounds { asked: Vec::new(), left }
    }

    /// Adds the answers of this round. An answer to a question of the hub that was never asked is dropped.
    pub(crate) fn add(&mut self, answers: InputResponses) {
        let asked = &self.asked;
        let counts = |key: &String| !key.starts_with(OWN_KEYS) || asked.contains(key);
        self.left.answers.extend(answers.into_iter().filter(|(key, _)| counts(key)));
    }
}

/// Seals and opens `requestState`.
pub(crate) struct Seal {
    key: [u8; 32],
    clock: Arc<dyn Clock>,
}

impl Seal {
    /// Makes a seal with a random key. A round that is pending when the hub stops must begin again.
    pub(crate) fn new(clock: Arc<dyn Clock>) -> std::io::Result<Seal> {
        let mut key = [0; 32];
        getrandom::fill(&mut key).map_err(|e| std::io::Error::other(e.to_string()))?;
        Ok(Seal { key, clock })
    }

    /// Seals the state of a round. State over the limit is refused at once, because it could not come back.
    pub(crate) fn seal(
        &self,
        digest: &[u8; 32],
        questions: &[KeyedInputRequest],
        left: RoundMemory,
    ) -> Result<String, ToolError> {
        let expires = self.clock.since_epoch().as_secs() + ROUND_SECS_MAX;
        let asked = questions.iter().map(|question| question.key.clone()).collect();
        let sealed = SealedPayload { call: HEXLOWER.encode(digest), expires, asked, left };
        // Answers have string keys, so serialization cannot fail.
        let payload = serde_json::to_vec(&sealed).unwrap_or_default();
        let tag = self.mac(&payload).finalize().into_bytes();
        let text = format!("{}.{}", URL_SAFE_NO_PAD.encode(&payload), URL_SAFE_NO_PAD.encode(tag));
        if text.len() > SEALED_BYTES_MAX {
            let what = "the state of the call until its next round";
            return Err(ToolError::too_large(what, text.len(), SEALED_BYTES_MAX)
                .hint("begin the call again, and answer its questions with less"));
        }
        Ok(text)
    }

    /// Returns a keyed hash of a text that must not be revealed. It differs between hubs.
    pub(crate) fn mark(&self, text: &str) -> String {
        let mut mac = self.mac(b"mark");
        mac.update(text.as_bytes());
        URL_SAFE_NO_PAD.encode(&mac.finalize().into_bytes()[..MARK_BYTES])
    }

    /// Verifies and opens the state that a client sent back.
    pub(crate) fn open(&self, digest: &[u8; 32], text: &str) -> Result<PreviousRounds, &'static str> {
        const REFUSED: &str = "`requestState` is not what the hub sent; begin the call again without it";
        if text.len() > SEALED_BYTES_MAX {
            return Err(REFUSED);
        }
        let (payload, tag) = text.split_once('.').ok_or(REFUSED)?;
        let payload = URL_SAFE_NO_PAD.decode(payload).map_err(|_| REFUSED)?;
        let tag = URL_SAFE_NO_PAD.decode(tag).map_err(|_| REFUSED)?;
        self.mac(&payload).verify_slice(&tag).map_err(|_| REFUSED)?;
        let sealed: SealedPayload = serde_json::from_slice(&payload).map_err(|_| REFUSED)?;
        if sealed.call != HEXLOWER.encode(digest) {
            return Err("`requestState` belongs to another call; begin this one without it");
        }
        if sealed.expires < self.clock.since_epoch().as_secs() {
            return Err("`requestState` has expired; begin the call again without it");
        }
        Ok(PreviousRounds { asked: sealed.asked, left: sealed.left })
    }

    #[expect(clippy::expect_used, reason = "HMAC takes a key of any length")]
    fn mac(&self, payload: &[u8]) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key).expect("a key of any length");
        mac.update(payload);
        mac
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use portcullis_core::{ErrorKind, InputRequest, SystemClock};
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
        let answers = InputResponses::from([("k".to_owned(), serde_json::json!({"action": "accept"}))]);
        let ask = InputRequest::elicit("May it?", serde_json::json!({}));
        let questions = [KeyedInputRequest { key: "portcullis_approval".to_owned(), ask }];
        let left = RoundMemory { answers, state: Some("s".to_owned()), approved: Some("m".to_owned()) };
        let text = seal.seal(&[7; 32], &questions, left.clone()).unwrap();
        let mut opened = seal.open(&[7; 32], &text).unwrap();
        assert_eq!(opened.left, left);

        // An approval counts only if it was asked for.
        let yes = || InputResponses::from([("portcullis_approval".to_owned(), serde_json::json!(true))]);
        let mut never_asked = PreviousRounds::default();
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
            seal.seal(&[7; 32], &[], RoundMemory { state: Some("s".repeat(bytes)), ..RoundMemory::default() })
        };
        let fits = of(SEALED_BYTES_MAX / 2).unwrap();
        assert!(seal.open(&[7; 32], &fits).is_ok());
        assert_eq!(of(SEALED_BYTES_MAX).unwrap_err().kind, ErrorKind::TooLarge);
    }
}
