//! Glob patterns over names of tools, clients and resources.

use globset::{Glob, GlobSet, GlobSetBuilder};

/// Bound on the globs of one pattern. A policy that needs more should be structured differently.
const GLOBS_MAX: usize = 1_000;
/// Bound on one glob. Names have at most 64 characters, resource URIs somewhat more.
const GLOB_BYTES_MAX: usize = 512;

/// Any of a list of globs. `*` matches any run of characters, `?` one, `[ab]` a choice, `{a,b}` words.
#[derive(Clone)]
pub struct Pattern {
    globs: Vec<String>,
    set: GlobSet,
    /// Fast path for `*`, by far the most common pattern.
    everything: bool,
}

/// Shows the globs only: the compiled automaton would print megabytes.
impl std::fmt::Debug for Pattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(&self.globs).finish()
    }
}

#[derive(Debug, thiserror::Error)]
pub enum PatternError {
    #[error("`{glob}` is not a glob: {reason}")]
    Bad { glob: String, reason: String },
    #[error("{count} globs given, at most {GLOBS_MAX} are allowed")]
    TooMany { count: usize },
}

impl Pattern {
    /// Compiles the globs.
    pub fn new<S: AsRef<str>>(globs: &[S]) -> Result<Pattern, PatternError> {
        if globs.len() > GLOBS_MAX {
            return Err(PatternError::TooMany { count: globs.len() });
        }
        let mut builder = GlobSetBuilder::new();
        for glob in globs {
            let text = glob.as_ref();
            if text.is_empty() || text.len() > GLOB_BYTES_MAX {
                let reason = format!("expected 1 to {GLOB_BYTES_MAX} bytes");
                return Err(PatternError::Bad { glob: text.to_owned(), reason });
            }
            let glob = Glob::new(text)
                .map_err(|e| PatternError::Bad { glob: text.to_owned(), reason: e.kind().to_string() })?;
            builder.add(glob);
        }
        let set = builder
            .build()
            .map_err(|e| PatternError::Bad { glob: String::new(), reason: e.kind().to_string() })?;
        let globs: Vec<String> = globs.iter().map(|g| g.as_ref().to_owned()).collect();
        let everything = globs.iter().any(|g| g == "*");
        Ok(Pattern { globs, set, everything })
    }

    /// Returns the pattern that matches every name.
    #[expect(clippy::expect_used, reason = "a constant glob")]
    pub fn any() -> Pattern {
        Pattern::new(&["*"]).expect("`*` is a glob")
    }

    /// Returns whether the pattern is known to match every name.
    pub fn is_any(&self) -> bool {
        self.everything
    }

    pub fn matches(&self, name: &str) -> bool {
        self.everything || self.set.is_match(name)
    }

    pub fn globs(&self) -> &[String] {
        &self.globs
    }
}
