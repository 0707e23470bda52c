//! One engine for each database file and process. A second open shares it.

use super::engine::Engine;
use super::file_identity::FileIdentity;
use super::migration::Migration;
use super::{DatabaseError, connection};
use crate::locked_file::make_private_folder;
use parking_lot::Mutex;
use std::path::Path;
use std::sync::{Arc, Weak};

struct OpenEngine {
    file: FileIdentity,
    engine: Weak<Engine>,
}

static OPEN: Mutex<Vec<OpenEngine>> = Mutex::new(Vec::new());

pub(super) fn open(
    folder: &Path,
    name: &'static str,
    migrations: &[Migration],
) -> Result<Arc<Engine>, DatabaseError> {
    make_private_folder(folder).map_err(|e| DatabaseError::file("make", folder, e))?;
    // SQLite refuses a symlink anywhere in the path, and a home may well have one; only the file itself must be none.
    let folder = folder.canonicalize().map_err(|e| DatabaseError::file("find", folder, e))?;
    let path = folder.join(name);
    let mut open = OPEN.lock();
    let file = FileIdentity::new(&path, &connection::make_file(&path)?);
    open.retain(|known| known.engine.strong_count() > 0);
    let mut known = open.iter().filter(|known| known.file.is_same_file(&file));
    if let Some(engine) = known.find_map(|known| known.engine.upgrade()) {
        drop(open);
        engine.migrate(migrations)?;
        return Ok(engine);
    }
    let engine = Arc::new(Engine::open(&path, file.clone(), migrations)?);
    open.push(OpenEngine { file, engine: Arc::downgrade(&engine) });
    Ok(engine)
}
