//! The cost of a regular expression (ReDoS), estimated from its text.
//!
//! The linear engine takes time in proportion to states times text. Counted repetition multiplies states, so a short pattern
//! can have very many. The backtracking engine (look-around, back references) has a backtrack limit.

/// Backtrack limit of one match. Ordinary patterns need some hundred.
pub(super) const BACKTRACKS_MAX: usize = 1_000;
/// How often the validator may repeat a validation after matches that hit the limit.
const RUNS_MAX: u64 = 64;
/// The maximum cost of one match with backtracking.
const BACKTRACKING_STEPS: u64 = BACKTRACKS_MAX as u64 * RUNS_MAX;
/// States times characters processed in the time of one step.
const STATES_PER_STEP: u64 = 64;
/// Approximate number of states of a Unicode class.
const UNICODE_CLASS_STATES: u64 = 256;

/// The cost of one pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PatternWeight {
    states: u64,
    backtracks: bool,
}

impl PatternWeight {
    pub(super) fn of(pattern: &str) -> PatternWeight {
        PatternWeight { states: states(pattern), backtracks: backtracks(pattern) }
    }

    pub(super) fn states(self) -> u64 {
        self.states
    }

    /// Returns the steps to match a text.
    pub(super) fn steps(self, text: &str) -> u64 {
        let scan = self.states.saturating_mul(text.len() as u64 + 1) / STATES_PER_STEP;
        scan.saturating_add(if self.backtracks { BACKTRACKING_STEPS } else { 1 })
    }
}

/// Returns whether the engine may backtrack: look-around, back references, atomic groups, possessive quantifiers,
/// conditionals. False positives are fine.
fn backtracks(pattern: &str) -> bool {
    let groups = ["(?=", "(?!", "(?<", "(?>", "(?(", "(?P=", "(?P>", "(?|"];
    let possessive = ["++", "*+", "?+", "}+"];
    let escape = |two: &[u8]| two[0] == b'\\' && matches!(two[1], b'1'..=b'9' | b'k' | b'g' | b'K' | b'G');
    groups.iter().chain(&possessive).any(|mark| pattern.contains(mark))
        || pattern.as_bytes().windows(2).any(escape)
}

/// Returns the number of states: one per character or class, times its repetition.
fn states(pattern: &str) -> u64 {
    let mut chars = pattern.chars().peekable();
    // Per open group: its states so far, and those of the last atom, which a counter would repeat.
    let (mut open, mut sum, mut last) = (Vec::new(), 0_u64, 0_u64);
    while let Some(c) = chars.next() {
        let states = match c {
            '(' => {
                open.push(sum.saturating_add(last));
                (sum, last) = (0, 0);
                continue;
            }
            ')' => {
                let group = sum.saturating_add(last).saturating_add(1);
                (sum, last) = (open.pop().unwrap_or_default(), group);
                continue;
            }
            '{' => {
                let counter: String = chars.by_ref().take_while(|c| *c != '}').collect();
                let times = counter.split(',').filter_map(|bound| bound.trim().parse::<u64>().ok()).max();
                last = last.saturating_mul(times.unwrap_or(1).max(1));
                continue;
            }
            '[' => {
                let mut escaped = false;
                let class = chars.by_ref().take_while(|c| {
                    let ends = *c == ']' && !escaped;
                    escaped = *c == '\\' && !escaped;
                    !ends
                });
                class.map(|c| if matches!(c, 'p' | 'P') { UNICODE_CLASS_STATES } else { 1 }).sum::<u64>() + 1
            }
            '\\' => match chars.next() {
                Some('p' | 'P') => UNICODE_CLASS_STATES,
                _ => 1,
            },
            _ => 1,
        };
        sum = sum.saturating_add(last);
        last = states;
    }
    open.into_iter().fold(sum.saturating_add(last), u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_backtrack_costs_all_that_the_engine_may_do() {
        for pattern in [
            "(?=a)b",
            "(?!a)b",
            "(?<=a)b",
            "(?<!a)b",
            "(?>a*)b",
            r"(a)\1",
            r"(?<n>a)\k<n>",
            "(?:(?:x++)?a|a)*c",
            "x*+y",
            "x?+y",
            "x{1,9}+y",
            "(a)?(?(1)b|c)",
        ] {
            assert!(PatternWeight::of(pattern).steps("") >= BACKTRACKING_STEPS, "{pattern}");
        }
        // The linear engine is accounted for by its states.
        for pattern in ["^[a-z]+$", r"\d{4}-\d{2}", "(?:a|b)*c", r"\bword\b", "(?i)x"] {
            assert!(PatternWeight::of(pattern).steps("") < 100, "{pattern}");
        }
    }

    #[test]
    fn counters_multiply_what_they_repeat() {
        for (pattern, expected) in [
            ("abc", 3),
            ("a{5}", 5),
            ("(ab){3}", 9),
            ("((a{10}){10}){10}", 1_110),
            (r"\d{4}-\d{2}", 7),
            (r"[a\]b]{2,3}x", 16),
            ("a{3", 3),
            (r"\p{L}", UNICODE_CLASS_STATES),
        ] {
            assert_eq!(states(pattern), expected, "{pattern}");
        }
        assert_eq!(states(&"(a{9999}".repeat(9)), 9 * 9_999);
        assert_eq!(states(&format!("{}a{}", "(".repeat(99), "{9999})".repeat(99))), u64::MAX);
    }
}
