//! The `[prompts]` section.

use portcullis_family::{AbsentSection, ConfigSection, SectionChecks};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Prompt templates.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PromptsSection {
    /// Folder of prompt templates; relative to the home folder.
    #[schemars(length(min = 1), example = &"prompts")]
    path: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptSettings {
    /// It may be missing, and is picked up when it appears.
    pub path: PathBuf,
}

impl Default for PromptsSection {
    fn default() -> Self {
        PromptsSection { path: "prompts".to_owned() }
    }
}

impl ConfigSection for PromptsSection {
    const KEY: &'static str = "prompts";
    const ABSENT: AbsentSection = AbsentSection::Defaults;
    type Settings = PromptSettings;

    fn resolve(&self, checks: &mut SectionChecks<'_>) -> Option<PromptSettings> {
        Some(PromptSettings { path: checks.path("/prompts/path", &self.path) })
    }
}
