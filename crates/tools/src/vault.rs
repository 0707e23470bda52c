//! `vault_*`: the notes of an Obsidian vault.
//!
//! Files are accessed through `Root`, visible names only (`vault_path.rs`). The index follows the files
//! (`note_store.rs`), and with `auto_sync` the files follow a git repository (`sync.rs`).

mod dictionary;
mod doctor;
mod excerpt;
mod git;
mod index;
mod list;
mod note;
mod note_store;
mod query;
mod search;
mod sync;
#[cfg(test)]
mod tests;
mod tokenizer;
mod vault_path;
mod vault_section;

pub use git::{RemoteAddress, find_git};
pub use sync::{CommitAuthor, SyncConfig, SyncTimes};
pub use vault_section::{VaultSection, VaultSettings, VaultSyncSettings};

use crate::files;
use list::{LIST, list};
use note::Note;
use note_store::NoteStore;
use portcullis_core::root::RootError;
use portcullis_core::{
    CallCtx, CallLimits, Effect, Example, Family, IntoToolOutput, Json, Label, Reach, Root, SummaryWithData,
    ToolError, ToolOutput, ToolSpec, blocking,
};
use portcullis_family::{BoxError, FamilyModule, FamilyParts, Provided, SectionSpec};
use schemars::JsonSchema;
use search::{Excerpt, SearchHits};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use sync::{SyncReport, VaultSyncer};
use vault_path::{VaultPath, vault_path_error};

/// More than git's timeout, so that the caller gets git's error.
const WITH_GIT: CallLimits = CallLimits { deadline_ms: 290_000, ..CallLimits::DEFAULT };

const READ: ToolSpec = ToolSpec {
    name: "vault_read",
    title: "Read a note",
    description: "Return one note of the vault, by its path or, if only one note has it, by its name. Besides the text: \
                  its tags, aliases and links, and the notes that link to it. Only UTF-8 text of up to 1 MiB can be read.",
    effect: Effect::Read,
    reach: Reach::Local,
    limits: CallLimits::DEFAULT,
    example: Example { what: "Read a note by its name", arguments: r#"{"path": "Alpha"}"# },
};

pub(crate) const WRITE_NAME: &str = "vault_write";

const WRITE: ToolSpec = ToolSpec {
    name: WRITE_NAME,
    title: "Write a note",
    description: "Write a note of the vault: a new one, with the folders on the way, or all of an existing one, whose old \
                  text is lost. To keep it, read it first and write it back with your changes. Where the vault is synced with \
                  git, the note is committed and pushed; the result reports the commit and push, and any concurrent \
                  change.",
    effect: Effect::Write,
    reach: Reach::Local,
    limits: CallLimits::DEFAULT,
    example: Example {
        what: "Write a note with a tag and a link",
        arguments: r##"{"path": "Projects/Alpha.md", "content": "# Alpha\n\nWater the plants. #garden [[Home]]\n"}"##,
    },
};

const SEARCH: ToolSpec = ToolSpec {
    name: "vault_search",
    title: "Search notes",
    description: "Find the notes that fit all of a query, best first, with the lines that show it. A word matches whole \
                  words, with case and accents ignored; names, titles and headings count more than text. `begin*` matches \
                  the beginnings of words, `\"two words\"` a phrase, `tag:#project` a tag and those below it, \
                  `path:Projects/` the beginning of a path, `[[Note]]` notes that link there, `[status:done]` a property of \
                  the front matter; `-` before any of these excludes it.",
    effect: Effect::Read,
    reach: Reach::Local,
    limits: CallLimits::DEFAULT,
    example: Example { what: "Find notes about plants", arguments: r##"{"query": "plants tag:#garden"}"## },
};

/// Backlinks in one result.
const BACKLINKS_MAX: usize = 200;
/// Candidates that are listed for an ambiguous name.
const CANDIDATES_MAX: usize = 10;
const RESULTS_MAX: usize = 50;
const MESSAGE_BYTES_MAX: usize = 2_000;
/// The first pause after a failed push.
const PUSH_RETRY_AFTER: Duration = Duration::from_secs(30);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ReadArgs {
    /// Path of the note, like `Projects/Alpha.md`, or its name alone, like `Alpha`.
    path: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WriteArgs {
    /// Path of the note, relative to the vault, like `Projects/Alpha.md`.
    path: String,
    /// The whole new text of the note, at most 1 MiB.
    content: String,
    /// What the change is, for the history of a synced vault. Defaults to `Update` and the name of the note.
    #[serde(default)]
    commit_message: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SearchArgs {
    /// Words and conditions, all of which must hold.
    query: String,
    /// Folder to search in, with all below it. Defaults to the whole vault.
    #[serde(default = "the_root")]
    path: String,
    /// How many notes to return at most, 1 to 50.
    #[serde(default = "ten")]
    #[schemars(range(min = 1, max = 50))]
    limit: usize,
}

fn the_root() -> String {
    ".".to_owned()
}

fn ten() -> usize {
    10
}

#[derive(Debug, Serialize, JsonSchema)]
struct ReadFacts {
    /// Path of the note, relative to the vault.
    path: String,
    /// The whole text of the note.
    content: String,
    /// Title in the front matter, or the first heading.
    title: Option<String>,
    /// Other names that the note gives itself.
    aliases: Vec<String>,
    /// Tags in the front matter and in the text, without `#`.
    tags: Vec<String>,
    /// What the note links to, as it is written there.
    links: Vec<String>,
    /// Paths of the notes that link to this one, at most 200.
    backlinks: Vec<String>,
    /// What should be known about this answer, such as that the vault could not be synced.
    notice: Option<String>,
}

/// A note as a result: its text as it is, so that it can be written back, and behind it what should be known about it.
struct NoteOutput(ReadFacts);

impl IntoToolOutput for NoteOutput {
    fn schema() -> Option<serde_json::Value> {
        <Json<ReadFacts> as IntoToolOutput>::schema()
    }

    fn into_output(self) -> ToolOutput {
        let mut text = match self.0.content.is_empty() {
            true => format!("{} is empty.", self.0.path),
            false => self.0.content.clone(),
        };
        if let Some(notice) = &self.0.notice {
            text.push_str(&format!("\n\n[{notice}]"));
        }
        ToolOutput { structured: Json(self.0).into_output().structured, ..ToolOutput::text(text) }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
struct WriteFacts {
    /// Path of the note, relative to the vault.
    path: String,
    /// How many bytes were written.
    bytes: u64,
    /// Whether there was no such note before.
    created: bool,
    /// What became of it in the git repository; nothing where the vault is not synced.
    sync: Option<SyncReport>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct SearchResults {
    /// Notes that fit, best first.
    results: Vec<SearchResult>,
    /// How many notes fit altogether; with a phrase, how many have its words.
    total: usize,
    /// What should be known about this answer: words that no note has, or that something may be missing.
    notice: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct SearchResult {
    /// Path of the note, relative to the vault.
    path: String,
    /// Title of the note, or its name.
    title: String,
    /// How well it fits; only good for comparing with the others.
    score: f64,
    /// Lines that show why it was found.
    excerpts: Vec<Excerpt>,
}

/// What the vault tools work with.
#[derive(Debug, Clone)]
pub struct VaultConfig {
    /// The folder, created if missing.
    pub path: PathBuf,
    /// Git sync, if enabled.
    pub sync: Option<SyncConfig>,
}

struct Vault {
    notes: Arc<NoteStore>,
    sync: Option<Arc<VaultSyncer>>,
}

pub(crate) const MODULE: FamilyModule = FamilyModule {
    name: "vault",
    tables: None,
    section: Some(SectionSpec::of::<VaultSection>()),
    doctor: Some(doctor::checks),
    provide: |parts| {
        let Some(settings) = parts.section::<VaultSection>() else { return Ok(None) };
        family(&VaultConfig::of(settings, parts)).map(Some)
    },
};

impl VaultConfig {
    fn of(settings: &VaultSettings, parts: &FamilyParts) -> VaultConfig {
        let sync = settings.sync.as_ref().map(|sync| SyncConfig {
            address: sync.address.clone(),
            user: sync.user.clone(),
            token: sync.token.clone(),
            secrets: parts.secrets.clone(),
            author: sync.author.clone(),
            times: SyncTimes {
                pull_after: sync.pull_after,
                within: sync.within,
                retry_after: PUSH_RETRY_AFTER,
            },
        });
        VaultConfig { path: parts.folder(&settings.path), sync }
    }
}

fn family(config: &VaultConfig) -> Result<Provided, BoxError> {
    let shown = config.path.display();
    let root = Root::create(&config.path).map_err(|error| format!("the vault `{shown}`: {error}"))?;
    let notes =
        NoteStore::open(root, &config.path).map_err(|error| format!("the vault `{shown}`: {error}"))?;
    let sync = config.sync.as_ref().map(|sync| VaultSyncer::open(sync, &config.path, notes.clone()));
    // Everyone with access to the repository reads what is pushed.
    let (reach, limits) =
        if sync.is_some() { (Reach::Outside, WITH_GIT) } else { (Reach::Local, CallLimits::DEFAULT) };
    let written: &[Label] = if sync.is_some() { &[Label::Outward] } else { &[] };
    let service = sync.clone();
    let vault = Arc::new(Vault { notes, sync });
    let family = Family::new("vault")
        .tool(ToolSpec { limits, ..READ }, &vault, read)
        .labelled(&[Label::Private])
        .tool(ToolSpec { reach, limits, ..WRITE }, &vault, write)
        .labelled(written)
        .tool(ToolSpec { limits, ..LIST }, &vault, list)
        .labelled(&[Label::Private])
        .tool(ToolSpec { limits, ..SEARCH }, &vault, search)
        .labelled(&[Label::Private]);
    let provided = Provided::from(family);
    Ok(match service {
        Some(service) => provided.with_service(service),
        None => provided,
    })
}

impl Vault {
    /// Pulls if due, and returns a notice for the caller.
    async fn pull_if_due(&self) -> Option<String> {
        match &self.sync {
            Some(sync) => sync.pull_if_stale().await,
            None => None,
        }
    }
}

async fn read(vault: Arc<Vault>, args: ReadArgs, _: CallCtx) -> Result<NoteOutput, ToolError> {
    let notice = vault.pull_if_due().await;
    blocking(move || {
        let place = resolve(&vault.notes, &args.path)?;
        let path = place.path();
        let content = text_of(&vault.notes, &place)?;
        let note = Note::parse(&content);
        let backlinks = vault.notes.backlinks(path).into_iter().take(BACKLINKS_MAX);
        Ok(NoteOutput(ReadFacts {
            path: path.to_string(),
            title: note.title,
            aliases: note.aliases,
            tags: note.tags,
            links: note.links,
            backlinks: backlinks.map(|path| path.to_string()).collect(),
            content,
            notice,
        }))
    })
    .await
}

/// Returns the path of a note that an argument names, if no part of it is hidden.
pub(crate) fn note_path(name: &str) -> Option<portcullis_core::root::RootedPath> {
    VaultPath::parse(name, "note").ok().map(|place| place.path().clone())
}

/// Finds a note by its path or else by its name.
fn resolve(notes: &Arc<NoteStore>, asked: &str) -> Result<VaultPath, ToolError> {
    let plain = asked.trim();
    let plain =
        plain.strip_prefix("[[").map_or(plain, |inner| note::link_target(inner.trim_end_matches("]]")));
    let place = VaultPath::parse(plain, "note")?;
    match notes.root.open_nofollow(place.path()) {
        // A folder may have the name of a note.
        Err(RootError::NotFound | RootError::IsDirectory) => {}
        _ => return Ok(place),
    }
    let found = notes.named(place.path().as_str());
    match found.as_slice() {
        [only] => VaultPath::of(only.clone()).ok_or_else(|| ToolError::not_found("note", asked)),
        [] => Err(ToolError::not_found("note", asked)
            .hint("`vault_search` finds notes by what is in them, `vault_list` shows what exists")),
        many => {
            let listed: Vec<String> =
                many.iter().take(CANDIDATES_MAX).map(|path| format!("`{path}`")).collect();
            let more = if many.len() > CANDIDATES_MAX { " and others" } else { "" };
            Err(ToolError::invalid_args(format!(
                "{} notes have the name `{}`: {}{more}",
                many.len(),
                portcullis_core::json::printable(plain),
                listed.join(", ")
            ))
            .hint("give the path of one of them"))
        }
    }
}

fn text_of(notes: &NoteStore, place: &VaultPath) -> Result<String, ToolError> {
    let path = place.path();
    let tell = |error: RootError| vault_path_error(error, "note", path.as_str());
    let content =
        notes.root.open_nofollow(path).and_then(|file| file.read(files::FILE_BYTES_MAX)).map_err(tell)?;
    files::text(path, content)
}

async fn write(
    vault: Arc<Vault>,
    args: WriteArgs,
    _: CallCtx,
) -> Result<SummaryWithData<WriteFacts>, ToolError> {
    files::check_size(&args.content)?;
    let place = VaultPath::parse(&args.path, "note")?;
    let message = message(&args.commit_message, &place)?;
    let Some(sync) = &vault.sync else {
        let (notes, target) = (vault.notes.clone(), place.clone());
        let written = blocking(move || {
            let written = notes.root.write(target.path(), args.content.as_bytes());
            notes.reindex_path(target.path());
            written.map_err(|error| vault_path_error(error, "note", target.path().as_str()))
        })
        .await?;
        let facts = WriteFacts {
            path: place.path().to_string(),
            bytes: written.bytes,
            created: written.created,
            sync: None,
        };
        return Ok(SummaryWithData {
            sentence: format!("Wrote {} bytes to {}", facts.bytes, facts.path),
            facts,
        });
    };
    let (written, synced) = sync.write(place.clone(), args.content, message).await?;
    let sentence = format!("Wrote {} bytes to {}; {}", written.bytes, place.path(), synced.summary());
    let facts = WriteFacts {
        path: place.path().to_string(),
        bytes: written.bytes,
        created: written.created,
        sync: Some(synced),
    };
    Ok(SummaryWithData { sentence, facts })
}

fn message(given: &str, place: &VaultPath) -> Result<String, ToolError> {
    match given.trim() {
        "" => Ok(format!("Update {}", place.path().name().unwrap_or_default())),
        message if message.len() > MESSAGE_BYTES_MAX => {
            Err(ToolError::too_large("`commit_message`", message.len(), MESSAGE_BYTES_MAX)
                .hint("say it shorter"))
        }
        message if message.chars().any(|c| c.is_control() && c != '\n') => {
            Err(ToolError::invalid_args("`commit_message` holds control characters").hint("use plain text"))
        }
        message => Ok(message.to_owned()),
    }
}

async fn search(vault: Arc<Vault>, args: SearchArgs, _: CallCtx) -> Result<Json<SearchResults>, ToolError> {
    if args.limit == 0 || args.limit > RESULTS_MAX {
        let message = format!("invalid arguments: `limit` is {}, expected 1 to {RESULTS_MAX}", args.limit);
        return Err(ToolError::invalid_args(message));
    }
    let mut query = query::Query::parse(&args.query)?;
    let folder = VaultPath::parse(if args.path.is_empty() { "." } else { &args.path }, "folder")?;
    if !folder.path().is_root() {
        query.within(folder.path().as_str());
    }
    let notice = vault.pull_if_due().await;
    blocking(move || {
        let SearchHits { hits, total, notices } = search::run(&vault.notes, &query, args.limit);
        let notices: Vec<String> = notice.into_iter().chain(notices).collect();
        let results = hits.into_iter().map(|hit| SearchResult {
            path: hit.path.to_string(),
            title: hit.title,
            // More digits would suggest a precision that scores do not have.
            score: (hit.score * 100.0).round() / 100.0,
            excerpts: hit.excerpts,
        });
        let notice = (!notices.is_empty()).then(|| notices.join("; "));
        Ok(Json(SearchResults { results: results.collect(), total, notice }))
    })
    .await
}
