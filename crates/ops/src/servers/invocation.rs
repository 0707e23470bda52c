//! How a server is started or reached, as a person reviews it: with secrets masked, and with nothing else hidden.

use crate::config::McpServerSettings;
use crate::config::secret_detection::{ValueDisplay, shortened, shown_args, shown_pairs, shown_url};

/// Returns command line or URL, on one line.
pub fn reached(server: &McpServerSettings, extent: ValueDisplay) -> String {
    if let Some(place) = &server.place {
        return shortened(&shown_url(&place.to_string()), extent);
    }
    let args = shown_args(&server.args);
    let words = std::iter::once(&server.command).chain(&args);
    words.map(|word| shortened(word, extent)).collect::<Vec<_>>().join(" ")
}

/// Returns the working directory, and every variable and header with its value: a variable can make a program run another
/// one.
pub fn runs_with(server: &McpServerSettings, extent: ValueDisplay) -> Vec<String> {
    let folder = server.cwd.iter().map(|cwd| format!("in {}", shortened(&cwd.display().to_string(), extent)));
    let headers = server.headers.iter().map(|(name, value)| (name.to_string(), value.clone()));
    let with: Vec<(String, String)> = server.env.iter().cloned().chain(headers).collect();
    let shown = shown_pairs(&with).into_iter();
    let shown = shown
        .map(|(name, value)| format!("with {} = {}", shortened(&name, extent), shortened(&value, extent)));
    folder.chain(shown).collect()
}
