//! Resolves a server's command to an absolute path, once.

use portcullis_store::programs::ProgramStore;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Returns the absolute path of a server's command. A name is looked up in PATH once; later lookups return the same path
/// while the file exists.
pub(super) fn find(programs: &Arc<ProgramStore>, server: &str, command: &str) -> Result<PathBuf, String> {
    if command.contains('/') {
        return Ok(PathBuf::from(command));
    }
    let kept = programs.of(server, command).map_err(|error| error.to_string())?;
    if let Some(kept) = kept.filter(|kept| is_program(kept)) {
        return Ok(kept);
    }
    let found = look_up(command).ok_or_else(|| not_found(command))?;
    programs.keep(server, command, &found).map_err(|error| error.to_string())?;
    Ok(found)
}

fn look_up(command: &str) -> Option<PathBuf> {
    let places = std::env::var_os("PATH").unwrap_or_else(|| portcullis_upstream::USUAL_PLACES.into());
    std::env::split_paths(&places).map(|place| place.join(command)).find(|path| is_program(path))
}

fn not_found(command: &str) -> String {
    let places = std::env::var("PATH").unwrap_or_else(|_| portcullis_upstream::USUAL_PLACES.to_owned());
    format!("command `{command}` not found in PATH ({places}); install it, or use its absolute path")
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.is_absolute()
        && std::fs::metadata(path)
            .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}
