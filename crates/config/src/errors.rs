//! Configuration errors, all of them, with file and line.

pub(super) use portcullis_family::{Finding, join, key_path};

use crate::excerpt::ConfigExcerpt;
use std::fmt;

/// One error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// The file's name, or `environment`.
    pub place: String,
    pub line: Option<usize>,
    pub text: String,
    /// The faulty line, if the format reports places.
    pub excerpt: Option<ConfigExcerpt>,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.place, self.text),
            None => write!(f, "{}: {}", self.place, self.text),
        }
    }
}

/// All errors in file order, one line each; the first hundred if there are more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigErrors {
    pub problems: Vec<ConfigError>,
}

/// Errors reported. More mean a wrong file.
pub(super) const PROBLEMS_MAX: usize = 100;

impl ConfigErrors {
    pub(super) fn new(mut problems: Vec<ConfigError>) -> ConfigErrors {
        problems.truncate(PROBLEMS_MAX);
        ConfigErrors { problems }
    }

    pub(super) fn one(place: impl Into<String>, text: impl Into<String>) -> ConfigErrors {
        let (place, text) = (place.into(), text.into());
        ConfigErrors { problems: vec![ConfigError { place, line: None, text, excerpt: None }] }
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            let newline = if index == 0 { "" } else { "\n" };
            write!(f, "{newline}{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}
