//! Directory creation that survives a power failure (fsync of the parent).

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

/// Creates a directory and its missing parents with mode 0700. Their entries are fsynced before this returns: a durable
/// file in a directory that a crash loses is lost too.
pub fn create_all(path: &Path) -> io::Result<()> {
    let above = path.parent().filter(|above| !above.as_os_str().is_empty());
    let made = match new(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            create_all(above.ok_or(error)?)?;
            new(path)
        }
        made => made,
    };
    match made {
        Ok(()) => {
            let flushed = File::open(above.unwrap_or(Path::new("."))).and_then(|folder| folder.sync_all());
            // Removed, so that a retry does not mistake it for a durable one.
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
        create_all(&path).unwrap();
        create_all(&path).unwrap();
        for made in [&path, &folder.path().join("a")] {
            assert_eq!(std::fs::metadata(made).unwrap().permissions().mode() & 0o777, 0o700);
        }
    }

    #[test]
    fn a_file_is_not_taken_for_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert_eq!(create_all(&file).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(create_all(&file.join("below")).unwrap_err().kind(), io::ErrorKind::NotADirectory);
    }
}
