//! Opens a page in the user's browser.

use portcullis_config::Environment;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// The system's URL opener.
const OPENER: &str = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };

/// Starts the browser. Returns why it was not started.
pub(crate) fn open(url: &str, env: Environment<'_>) -> Result<(), String> {
    if rustix::process::geteuid().is_root() {
        return Err("a browser is not started as root".to_owned());
    }
    let mut reasons = Vec::new();
    for mut words in commands(url, env) {
        let program = words.remove(0);
        // Passed as one argument, without a shell.
        let started = Command::new(&program)
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Ctrl-C at the terminal ends this program, not the browser.
            .process_group(0)
            .spawn();
        match started {
            Ok(_) => return Ok(()),
            Err(error) => reasons.push(format!("cannot run `{program}`: {error}")),
        }
    }
    Err(reasons.join("; "))
}

/// Returns the commands to try: those of `$BROWSER`, separated by colons, with `%s` for the URL, and the system's opener.
fn commands(url: &str, env: Environment<'_>) -> Vec<Vec<String>> {
    let chosen = env("BROWSER").map(|chosen| chosen.to_string_lossy().into_owned()).unwrap_or_default();
    let chosen = chosen.split(':').map(|command| {
        let mut words: Vec<String> = command.split_whitespace().map(|word| word.replace("%s", url)).collect();
        if !words.is_empty() && !command.contains("%s") {
            words.push(url.to_owned());
        }
        words
    });
    let system = vec![OPENER.to_owned(), url.to_owned()];
    chosen.filter(|words| !words.is_empty()).chain([system]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;

    #[test]
    fn the_users_browser_comes_first() {
        let tried = |browser: Option<&str>| -> Vec<String> {
            let env = |name: &str| browser.filter(|_| name == "BROWSER").map(OsString::from);
            commands("http://h/#t", &env).into_iter().map(|words| words.join(" ")).collect()
        };
        let system = format!("{OPENER} http://h/#t");
        assert_eq!(tried(None), std::slice::from_ref(&system));
        assert_eq!(tried(Some("")), std::slice::from_ref(&system));
        assert_eq!(
            tried(Some("firefox -P x %s:lynx")),
            ["firefox -P x http://h/#t".to_owned(), "lynx http://h/#t".to_owned(), system]
        );
    }
}
