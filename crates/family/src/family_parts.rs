//! What a family is built from.

use crate::BoxError;
use crate::section::{ConfigSection, Sections};
use crate::shared_egress::SharedEgress;
use crate::workspace_settings::WorkspaceSettings;
use jiff::tz::TimeZone;
use portcullis_core::{ChangeNotifier, Clock, GateHandle, Root};
use portcullis_egress::SecretSource;
use portcullis_store::database::Database;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Returns the configured time zone, which changes with the configuration.
pub type LiveTimeZone = Arc<dyn Fn() -> TimeZone + Send + Sync>;

/// What a family is built from.
pub struct FamilyParts {
    pub sections: Sections,
    pub workspace: WorkspaceSettings,
    /// The folder of the workspace that tools reach.
    pub root: Root,
    pub database: Database,
    pub clock: Arc<dyn Clock>,
    pub zone: LiveTimeZone,
    pub secrets: Arc<dyn SecretSource>,
    /// Made at its first use: a hub that makes no request has none.
    pub egress: SharedEgress,
    /// For families whose tools make calls. Connected once the gate is built.
    pub gate: GateHandle,
    pub changes: ChangeNotifier,
    pub mode: FamilyMode,
}

/// What the tools of a family are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FamilyMode {
    /// They are called.
    Live,
    /// They are only listed: nothing of a home is read, written or started. The workspace is an empty folder.
    ListOnly,
}

impl FamilyParts {
    /// Opens the folder of the workspace that tools reach, and makes it where it is missing.
    pub fn open_root(workspace: &WorkspaceSettings) -> Result<Root, BoxError> {
        let folder = workspace.data_dir();
        Root::create(&folder).map_err(|error| format!("the workspace `{}`: {error}", folder.display()).into())
    }

    /// Returns the settings of a section; `None` if the section turns its family on and is missing.
    pub fn section<S: ConfigSection>(&self) -> Option<&S::Settings> {
        self.sections.get::<S>()
    }

    pub fn is_live(&self) -> bool {
        self.mode == FamilyMode::Live
    }

    /// Returns the folder that a section names, or an empty one where tools are only listed.
    pub fn folder(&self, configured: &Path) -> PathBuf {
        match self.mode {
            FamilyMode::Live => configured.to_owned(),
            FamilyMode::ListOnly => self.workspace.path.join("nothing"),
        }
    }
}
