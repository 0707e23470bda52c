//! Folders that are still there after a power failure.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

/// Makes a folder, and those above it, where they are missing, for this user alone. Their names are on disk when
/// this returns: a durable file in a folder that a crash forgets is lost all the same.
pub fn make(path: &Path) -> io::Result<()> {
    let above = path.parent().filter(|above| !above.as_os_str().is_empty());
    let made = match new(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            make(above.ok_or(error)?)?;
            new(path)
        }
        made => made,
    };
    match made {
        Ok(()) => {
            let flushed = File::open(above.unwrap_or(Path::new("."))).and_then(|folder| folder.sync_all());
            // Taken back, so that whoever tries again does not take it for durable.
            flushed.inspect_err(|_| drop(std::fs::remove_dir(path)))
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        Err(error) => Err(error),
    }
}

fn new(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_folder_is_made_with_those_above_it_and_for_this_user_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b/c");
        make(&path).unwrap();
        make(&path).unwrap();
        for made in [&path, &folder.path().join("a")] {
            assert_eq!(std::fs::metadata(made).unwrap().permissions().mode() & 0o777, 0o700);
        }
    }

    #[test]
    fn a_file_is_not_taken_for_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert_eq!(make(&file).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(make(&file.join("below")).unwrap_err().kind(), io::ErrorKind::NotADirectory);
    }
}
