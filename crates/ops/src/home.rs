//! The home folder of a hub.

use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// An existing home folder, private to this user.
#[derive(Debug, Clone)]
pub struct Home {
    path: PathBuf,
}

impl Home {
    /// Finds the home: `--home`, `PORTCULLIS_HOME`, or the platform's data folder. An empty variable counts as unset.
    pub fn locate(given: Option<&Path>, env: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf> {
        let set = |name: &str| env(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        if let Some(given) = given.map(Path::to_owned).or_else(|| set("PORTCULLIS_HOME")) {
            return std::path::absolute(&given)
                .with_context(|| format!("`{}` is not a path", given.display()));
        }
        if let Some(data) = set("XDG_DATA_HOME").filter(|path| path.is_absolute()) {
            return Ok(data.join("portcullis"));
        }
        match set("HOME") {
            Some(user) if cfg!(target_os = "macos") => {
                Ok(user.join("Library/Application Support/portcullis"))
            }
            Some(user) => Ok(user.join(".local/share/portcullis")),
            None => bail!("HOME is not set; pass `--home DIR`"),
        }
    }

    /// Creates the folder with mode 0700, if it does not exist.
    pub fn open(path: PathBuf) -> Result<Home> {
        make_private(&path)?;
        Ok(Home { path })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Reads a variable of this process.
pub fn environment(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

/// Creates a private folder, or makes an existing one private.
pub fn make_private(path: &Path) -> Result<()> {
    let failed = || format!("cannot create the folder `{}`", path.display());
    portcullis_core::durable_dir::create_all(path).with_context(failed)?;
    let metadata = std::fs::metadata(path).with_context(failed)?;
    if metadata.permissions().mode() & 0o077 != 0 {
        std::fs::set_permissions(path, Permissions::from_mode(0o700)).with_context(failed)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_home_is_the_first_that_is_named() {
        type Case = (Option<&'static str>, &'static [(&'static str, &'static str)], &'static str);
        let cases: [Case; 5] = [
            (Some("/given"), &[("PORTCULLIS_HOME", "/named"), ("HOME", "/user")], "/given"),
            (None, &[("PORTCULLIS_HOME", "/named"), ("HOME", "/user")], "/named"),
            (
                None,
                &[("PORTCULLIS_HOME", ""), ("XDG_DATA_HOME", "/data"), ("HOME", "/user")],
                "/data/portcullis",
            ),
            (None, &[("XDG_DATA_HOME", "relative"), ("HOME", "/user")], "/user/.local/share/portcullis"),
            (None, &[("HOME", "/user")], "/user/.local/share/portcullis"),
        ];
        for (given, variables, expected) in cases {
            let env = |name: &str| {
                variables.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value))
            };
            let found = Home::locate(given.map(Path::new), env).unwrap();
            assert_eq!(found, Path::new(expected), "{given:?} {variables:?}");
        }
        assert!(Home::locate(None, |_| None).is_err());
    }
}
