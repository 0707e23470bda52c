//! Trial of a server that is not in the configuration yet: what it leaves on disk, and how that is removed.

use crate::config::{Config, McpServerSettings};
use crate::context::Operations;
use crate::mcp::ServerFactory;
use std::io;
use std::path::PathBuf;

/// A server that is started before it is added.
pub struct ServerTrial<'a> {
    factory: &'a ServerFactory,
    name: String,
    /// Its working folder with the parents, if they did not exist before: the innermost first.
    made: Vec<PathBuf>,
}

impl Operations {
    /// Begins the trial of a server. What an earlier one of that name left in the store of programs is forgotten.
    pub fn begin_trial(
        &self,
        server: &McpServerSettings,
        config: &Config,
    ) -> anyhow::Result<ServerTrial<'_>> {
        let factory = self.server_factory_for(server)?;
        factory.programs.forget(&server.name)?;
        let own = config.workspace.server_dir(&server.name);
        let made = own.ancestors().take_while(|folder| !folder.exists()).map(PathBuf::from).collect();
        Ok(ServerTrial { factory, name: server.name.clone(), made })
    }
}

impl ServerTrial<'_> {
    /// Removes what the trial left, because the server is not added. A working folder from before stays. Returns what
    /// could not be removed.
    pub fn undo(self) -> Vec<String> {
        let mut left = Vec::new();
        if let Err(error) = self.factory.programs.forget(&self.name) {
            left.push(format!("The path of its program is still stored: {error}"));
        }
        for (at, folder) in self.made.iter().enumerate() {
            // Only its own folder is removed with its content: in a parent there may be another server's by now.
            let removed = if at == 0 { std::fs::remove_dir_all(folder) } else { std::fs::remove_dir(folder) };
            match removed {
                Err(error) if at == 0 && error.kind() != io::ErrorKind::NotFound => {
                    left.push(format!("Its folder `{}` was not removed: {error}", folder.display()));
                }
                _ => {}
            }
        }
        left
    }
}
