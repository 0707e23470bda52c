//! Writes the commented example, completes an existing file with it, or replaces the file and keeps a backup.

use super::{ConfigChange, ConfigEditLock, ConfigFormat, EditError, NEW_FILE, PRIVATE_FILE, edit};
use crate::atomic_write::{keep_backup, replace, write_new};
use crate::example::{example, example_sections};
use crate::{Environment, FILE_NAMES, read};
use portcullis_tools::FAMILIES;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// What to do with an existing file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InitMode {
    /// Append the sections that it lacks, and change nothing else.
    Complete,
    /// Replace it, and keep a backup.
    Replace,
}

/// What became of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InitOutcome {
    Written {
        path: PathBuf,
    },
    Replaced {
        path: PathBuf,
        backup: PathBuf,
    },
    /// The sections in the order of the file; none if it had all.
    Completed {
        path: PathBuf,
        sections: Vec<String>,
    },
}

/// Writes, completes or replaces the configuration file of a home.
pub fn init(
    editing: &ConfigEditLock,
    env: Environment<'_>,
    mode: InitMode,
) -> Result<InitOutcome, EditError> {
    let exists = |name: &&str| std::fs::symlink_metadata(editing.home().join(name)).is_ok();
    match (FILE_NAMES.into_iter().find(exists), mode) {
        (None, _) => {
            let path = editing.home().join(NEW_FILE);
            write_new(&path, example(), PRIVATE_FILE).map_err(|error| failed(&path, error))?;
            Ok(InitOutcome::Written { path })
        }
        (Some(_), InitMode::Complete) => complete(editing, env),
        (Some(_), InitMode::Replace) => replace_file(editing),
    }
}

fn complete(editing: &ConfigEditLock, env: Environment<'_>) -> Result<InitOutcome, EditError> {
    const BY_HAND: &str = "`portcullis init --print` prints every section with its defaults\n";
    let mut added = Vec::new();
    let edited = edit(editing.home(), env, &|_| BY_HAND.to_owned(), |_, form, text| {
        if form != ConfigFormat::Toml {
            return Err(EditError::Form("only TOML files can be completed".to_owned()));
        }
        let written = read::parse(NEW_FILE, text)?.value;
        let mut text = text.to_owned();
        for section in example_sections(FAMILIES) {
            if written.get(&section.key).is_some() || section.is_shown_in(&text) {
                continue;
            }
            if !text.is_empty() && !text.ends_with('\n') {
                text.push('\n');
            }
            text.push_str(if text.is_empty() { section.text.trim_start() } else { &section.text });
            added.push(section.key);
        }
        Ok((text, ConfigChange::Nothing))
    })?;
    let path = if added.is_empty() { edited.source.path } else { edited.write(editing)? };
    Ok(InitOutcome::Completed { path, sections: added })
}

/// Replaces the file, whatever it holds: what is not understood is kept in the backup byte for byte.
fn replace_file(editing: &ConfigEditLock) -> Result<InitOutcome, EditError> {
    let exists = |name: &&str| std::fs::symlink_metadata(editing.home().join(name)).is_ok();
    if let Some(name) = FILE_NAMES.into_iter().filter(|name| *name != NEW_FILE).find(exists) {
        return Err(EditError::OtherFormat(name.to_owned()));
    }
    let path = editing.home().join(NEW_FILE);
    // A symlink is followed: its target is replaced, and the backup is beside the link.
    let target = std::fs::canonicalize(&path).map_err(|error| failed(&path, error))?;
    let metadata = std::fs::metadata(&target).map_err(|error| failed(&path, error))?;
    if !metadata.is_file() {
        return Err(failed(&path, std::io::Error::other("it is not a regular file")));
    }
    let backup = keep_backup(&path).map_err(|error| failed(&path, error))?;
    replace(&target, &example(), metadata.permissions().mode() & 0o777)
        .map_err(|error| failed(&path, error))?;
    Ok(InitOutcome::Replaced { path, backup })
}

fn failed(path: &Path, source: std::io::Error) -> EditError {
    EditError::Io { path: path.display().to_string(), source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    struct Home(tempfile::TempDir);

    impl Home {
        fn with(name: &str, text: impl AsRef<[u8]>) -> Home {
            let home = Home(tempfile::tempdir().unwrap());
            std::fs::write(home.0.path().join(name), text).unwrap();
            home
        }

        fn init(&self, mode: InitMode) -> Result<InitOutcome, EditError> {
            init(&ConfigEditLock::of(self.0.path())?, &|_| None, mode)
        }

        fn read(&self, name: &str) -> Vec<u8> {
            std::fs::read(self.0.path().join(name)).unwrap()
        }
    }

    fn added(outcome: Result<InitOutcome, EditError>) -> Vec<String> {
        match outcome.unwrap() {
            InitOutcome::Completed { sections, .. } => sections,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_existing_file_gets_what_it_lacks_and_keeps_every_byte() {
        let all: Vec<String> = example_sections(FAMILIES).into_iter().map(|section| section.key).collect();
        let lacks = |held: &[&str]| -> Vec<String> {
            all.iter().filter(|key| !held.contains(&key.as_str())).cloned().collect()
        };
        for (text, held) in [
            ("", &[][..]),
            ("# mine", &[]),
            ("http.listen = \"127.0.0.1:4000\"\r\n\r\n# x\r\n[vault]\r\n", &["http", "vault"]),
            // Commented out, as init or a person does it, is shown.
            (
                "#[vault]\n#path = \"a\"\n # [web]\n## [[policy]]\n## [mcp.NAME]\n",
                &["vault", "web", "policy", "mcp"],
            ),
            ("mcp = { git = { command = 'git' } }\n[[policy]]\ndecision = 'ask'", &["mcp", "policy"]),
            ("# [httpd] is something else, and so is http\n", &[]),
        ] {
            let home = Home::with("portcullis.toml", text);
            let before = Config::load(home.0.path(), &|_| None).unwrap().config;
            assert_eq!(added(home.init(InitMode::Complete)), lacks(held), "{text}");
            let after = String::from_utf8(home.read("portcullis.toml")).unwrap();
            assert!(after.starts_with(text), "{after}");
            assert_eq!(after.contains("\r\n"), text.contains("\r\n"));
            let now = Config::load(home.0.path(), &|_| None).unwrap().config;
            assert_eq!(now.shown(), before.shown());
            assert_eq!(added(home.init(InitMode::Complete)), Vec::<String>::new(), "{after}");
            assert_eq!(home.read("portcullis.toml"), after.as_bytes());
        }
        let home = Home::with("portcullis.toml", example());
        assert_eq!(added(home.init(InitMode::Complete)), Vec::<String>::new());
    }

    #[test]
    fn what_cannot_be_completed_is_left_alone() {
        for (name, text, said) in [
            ("portcullis.toml", "[rate_limt]\n", "did you mean `rate_limit`?"),
            ("portcullis.toml", "[[[", "portcullis.toml:1"),
            ("portcullis.yaml", "memory:\n  enabled: true\n", "only TOML files can be completed"),
            ("portcullis.json", "{}", "portcullis init --print"),
        ] {
            let home = Home::with(name, text);
            let error = home.init(InitMode::Complete).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
            assert_eq!((home.read(name), home.0.path().read_dir().unwrap().count()), (text.into(), 2));
        }
    }

    #[test]
    fn a_replaced_file_is_kept_byte_for_byte_each_time() {
        // Neither valid nor text.
        let home = Home::with("portcullis.toml", b"[[[ \xff mine");
        let path = home.0.path().join("portcullis.toml");
        for (number, old) in [(1, b"[[[ \xff mine".to_vec()), (2, example().into_bytes())] {
            let backup = home.0.path().join(format!("portcullis.toml.bak-{number}"));
            let replaced = InitOutcome::Replaced { path: path.clone(), backup: backup.clone() };
            assert_eq!(home.init(InitMode::Replace).unwrap(), replaced);
            assert_eq!(
                (std::fs::read(&backup).unwrap(), home.read("portcullis.toml")),
                (old, example().into())
            );
            assert_eq!(std::fs::metadata(backup).unwrap().permissions().mode() & 0o777, 0o600);
        }
        // A second configuration file would stop the hub.
        let home = Home::with("portcullis.yaml", "memory:\n  enabled: true\n");
        let error = home.init(InitMode::Replace).unwrap_err().to_string();
        assert!(error.starts_with("`portcullis.yaml` is the configuration; move it away first"), "{error}");
        assert!(!home.0.path().join("portcullis.toml").exists());
    }

    #[test]
    fn a_link_stays_a_link() {
        let (home, dotfiles) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (link, target) = (home.path().join("portcullis.toml"), dotfiles.path().join("hub.toml"));
        std::fs::write(&target, "# mine\n").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        init(&ConfigEditLock::of(home.path()).unwrap(), &|_| None, InitMode::Replace).unwrap();
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(std::fs::read_to_string(target).unwrap(), example());
        assert_eq!(std::fs::read(home.path().join("portcullis.toml.bak-1")).unwrap(), b"# mine\n");
    }
}
