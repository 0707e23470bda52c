//! Where the workspace is.

use std::path::PathBuf;

/// The workspace, with the folders of tools, servers and the hub's own data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkspaceSettings {
    /// Absolute if the home folder is.
    pub path: PathBuf,
    /// Whether there are `workspace_*` tools.
    pub enabled: bool,
}

impl WorkspaceSettings {
    /// Returns the only folder that tools can access.
    pub fn data_dir(&self) -> PathBuf {
        self.path.join("ai-data")
    }

    /// Returns the default working directory of servers. No tool can access it.
    pub fn server_dir(&self, name: &str) -> PathBuf {
        self.path.join("servers").join(name)
    }

    /// Returns the private folder that no tool can access.
    pub fn secure_dir(&self) -> PathBuf {
        self.path.join("secure")
    }
}
