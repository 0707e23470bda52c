//! Durations as people write them: `90s`, `15m`, `12h`, `30d`, `2w`.

use std::time::Duration;

/// Ten years. For longer, leave the expiry out.
const SECONDS_MAX: u64 = 3650 * 24 * 60 * 60;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    #[error("`{0}` is not a duration; expected a whole number and s, m, h, d or w, like 30d")]
    Form(String),
    #[error("`{text}` has no unit; expected s, m, h, d or w, like {text}d")]
    Unit { text: String },
    #[error("`{0}` is zero; expected at least 1s")]
    Zero(String),
    #[error("`{0}` is too long; at most ten years (3650d), or leave it out for no end")]
    TooLong(String),
}

/// Reads a duration: a whole number and `s`, `m` (minutes), `h`, `d` or `w`.
pub fn parse_duration(text: &str) -> Result<Duration, DurationError> {
    let form = || DurationError::Form(portcullis_core::json::printable(text));
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    if number.is_empty() {
        return Err(form());
    }
    let unit_seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 60 * 60,
        "d" => 24 * 60 * 60,
        "w" => 7 * 24 * 60 * 60,
        "" => return Err(DurationError::Unit { text: portcullis_core::json::printable(text) }),
        _ => return Err(form()),
    };
    // Only digits are left, so a number that cannot be read is one that is too large.
    let seconds = number.parse::<u64>().ok().and_then(|n| n.checked_mul(unit_seconds));
    match seconds {
        Some(0) => Err(DurationError::Zero(text.to_owned())),
        Some(seconds) if seconds <= SECONDS_MAX => Ok(Duration::from_secs(seconds)),
        _ => Err(DurationError::TooLong(portcullis_core::json::printable(text))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(texts: &[&str]) -> String {
        let line = |text: &&str| match parse_duration(text) {
            Ok(duration) => format!("{text} = {} s\n", duration.as_secs()),
            Err(error) => format!("{error}\n"),
        };
        texts.iter().map(line).collect()
    }

    #[test]
    fn durations() {
        insta::assert_snapshot!(check(&["1s", "15m", "12h", "30d", "2w", "3650d"]), @"
        1s = 1 s
        15m = 900 s
        12h = 43200 s
        30d = 2592000 s
        2w = 1209600 s
        3650d = 315360000 s
        ");
    }

    #[test]
    fn what_is_not_a_duration_says_what_is() {
        insta::assert_snapshot!(
            check(&["", "d", "30", "30x", "1.5h", "-1d", "1d12h", " 1d", "0d", "3651d", "99999999999999999999999w", "３d"]),
            @"
        `` is not a duration; expected a whole number and s, m, h, d or w, like 30d
        `d` is not a duration; expected a whole number and s, m, h, d or w, like 30d
        `30` has no unit; expected s, m, h, d or w, like 30d
        `30x` is not a duration; expected a whole number and s, m, h, d or w, like 30d
        `1.5h` is not a duration; expected a whole number and s, m, h, d or w, like 30d
        `-1d` is not a duration; expected a whole number and s, m, h, d or w, like 30d
        `1d12h` is not a duration; expected a whole number and s, m, h, d or w, like 30d
        ` 1d` is not a duration; expected a whole number and s, m, h, d or w, like 30d
        `0d` is zero; expected at least 1s
        `3651d` is too long; at most ten years (3650d), or leave it out for no end
        `99999999999999999999999w` is too long; at most ten years (3650d), or leave it out for no end
        `３d` is not a duration; expected a whole number and s, m, h, d or w, like 30d
        "
        );
    }
}
