//! What a person chooses in the review of a server, instead of what is proposed.

use crate::Problem;
use portcullis_core::json::printable;
use portcullis_core::{Effect, Pattern};
use portcullis_store::pins::{ServerSnapshot, ToolReview, TrustPolicy};

/// How many effects may be chosen at once: some for each tool of a large server.
const EFFECTS_MAX: usize = 2_000;
/// Names listed for a glob that matches nothing.
const NAMES_MAX: usize = 10;

/// The choices of a review. What is not chosen stays as proposed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReviewChoices {
    pub policy: Option<TrustPolicy>,
    /// Effects by tool: the server's names, or globs over them. A name wins over a glob, then the longest glob.
    pub effects: Vec<(String, Effect)>,
}

impl ReviewChoices {
    /// Parses choices as they are written, such as `get_*` and `read`.
    pub fn parse<'a>(
        policy: Option<&str>,
        effects: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<ReviewChoices, Problem> {
        let policy = policy.map(|text| text.parse().map_err(Problem::invalid)).transpose()?;
        let parsed = |(tools, effect): (&str, &str)| {
            let effect = effect.parse().map_err(Problem::invalid)?;
            Ok((tools.to_owned(), effect))
        };
        let effects: Vec<(String, Effect)> =
            effects.into_iter().map(parsed).collect::<Result<_, Problem>>()?;
        if effects.len() > EFFECTS_MAX {
            return Err(Problem::invalid(format!(
                "{} effects are given, at most {EFFECTS_MAX} are allowed; use globs",
                effects.len()
            )));
        }
        Ok(ReviewChoices { policy, effects })
    }

    /// Applies the choices to what is proposed. One that concerns no tool is an error: it may be a typing mistake.
    pub fn apply(&self, mut proposed: ToolReview, seen: &ServerSnapshot) -> Result<ToolReview, Problem> {
        proposed.policy = self.policy.unwrap_or(proposed.policy);
        let mut globs: Vec<&(String, Effect)> = self.effects.iter().collect();
        // The later wins.
        globs.sort_by_key(|(tools, _)| (seen.tools.contains_key(tools), tools.len()));
        for (tools, effect) in globs {
            let mut chosen = 0;
            if let Some(reviewed) = proposed.effects.get_mut(tools) {
                reviewed.effect = *effect;
                chosen += 1;
            } else {
                let pattern = Pattern::new(&[tools]).map_err(|error| Problem::invalid(error.to_string()))?;
                for (name, reviewed) in &mut proposed.effects {
                    if pattern.matches(name) {
                        reviewed.effect = *effect;
                        chosen += 1;
                    }
                }
            }
            if chosen == 0 {
                let names = seen.tools.keys().take(NAMES_MAX).map(|name| format!("`{}`", printable(name)));
                let names = names.collect::<Vec<_>>().join(", ");
                let said = format!("no tool of the server matches `{}`", printable(tools));
                return Err(Problem::invalid(said).hint(format!("its tools are {names}")));
            }
        }
        Ok(proposed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use portcullis_store::pins::DefinitionPin;

    fn effects(choices: &[(&str, &str)]) -> Result<Vec<&'static str>, String> {
        let tools = ["get_all", "get_one", "pay"].map(|name| {
            let definition = format!(r#"{{"name":"{name}","annotations":{{"destructiveHint":false}}}}"#);
            (name.to_owned(), DefinitionPin::of(&definition).unwrap())
        });
        let seen = ServerSnapshot { tools: tools.into(), ..ServerSnapshot::default() };
        let chosen = ReviewChoices::parse(None, choices.iter().copied())
            .and_then(|choices| choices.apply(ToolReview::proposed(&seen, None), &seen))
            .map_err(|problem| problem.message)?;
        Ok(chosen.effects.values().map(|reviewed| reviewed.effect.as_str()).collect())
    }

    #[test]
    fn a_name_wins_over_globs_and_the_longest_glob_over_others() {
        assert_eq!(effects(&[]).unwrap(), ["write", "write", "write"]);
        let choices = [("get_one", "create"), ("get_*", "read"), ("*", "destroy")];
        assert_eq!(effects(&choices).unwrap(), ["read", "create", "destroy"]);
    }

    #[test]
    fn what_cannot_be_meant_is_an_error() {
        assert_eq!(effects(&[("got_*", "read")]).unwrap_err(), "no tool of the server matches `got_*`");
        assert!(
            effects(&[("get_*", "reed")]).unwrap_err().contains("expected read, create, write or destroy")
        );
        assert!(effects(&[("get_[", "read")]).unwrap_err().contains("is not a glob"));
        let policy = ReviewChoices::parse(Some("never"), []).unwrap_err();
        assert!(policy.message.contains("expected ask-changes, allow or ask"), "{}", policy.message);
    }
}
