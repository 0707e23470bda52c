//! Workspace files as resources.

use super::{changes, file_uri};
use crate::files;
use crate::watch::WatchGuard;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use portcullis_core::root::{DEPTH_MAX, RootedPath, WalkedFile};
use portcullis_core::{
    BoxFuture, CallCtx, Caller, ChangeNotifier, Completion, CompletionArgument, ResourceBody,
    ResourceContents, ResourceDef, ResourceSource, ResourceVisibility, Root, TemplateDef, ToolError,
    blocking,
};
use std::path::Path;
use std::sync::Arc;

/// Files and folders that are scanned for a list.
pub(super) const FILES_MAX: usize = 10_000;

/// Media types by extension. Other files are text or bytes.
const TYPES: [(&str, &str); 26] = [
    ("css", "text/css"),
    ("csv", "text/csv"),
    ("gif", "image/gif"),
    ("htm", "text/html"),
    ("html", "text/html"),
    ("ics", "text/calendar"),
    ("jpeg", "image/jpeg"),
    ("jpg", "image/jpeg"),
    ("js", "text/javascript"),
    ("json", "application/json"),
    ("md", "text/markdown"),
    ("mp3", "audio/mpeg"),
    ("mp4", "video/mp4"),
    ("pdf", "application/pdf"),
    ("png", "image/png"),
    ("py", "text/x-python"),
    ("rs", "text/x-rust"),
    ("svg", "image/svg+xml"),
    ("toml", "application/toml"),
    ("txt", "text/plain"),
    ("wav", "audio/wav"),
    ("webp", "image/webp"),
    ("xml", "application/xml"),
    ("yaml", "application/yaml"),
    ("yml", "application/yaml"),
    ("zip", "application/zip"),
];

pub(super) struct WorkspaceFiles {
    root: Root,
    /// Dropped with the family.
    _watch: Option<WatchGuard>,
}

impl WorkspaceFiles {
    pub(super) fn new(root: Root, host: &Path, changes: ChangeNotifier) -> WorkspaceFiles {
        // Without a watch files can still be read; only change notifications are missing.
        let watch = changes::watch(root.clone(), host, changes)
            .inspect_err(
                |error| tracing::warn!(%error, "cannot watch the workspace; changes are not announced"),
            )
            .ok();
        WorkspaceFiles { root, _watch: watch }
    }

    async fn walk(&self) -> Result<Vec<WalkedFile>, ToolError> {
        let root = self.root.clone();
        let walked = blocking(move || root.walk(FILES_MAX, DEPTH_MAX)).await;
        Ok(walked.map_err(|error| error.into_tool_error("folder", ".", super::LIST.name))?.files)
    }

    async fn contents(&self, uri: String) -> Result<Vec<ResourceContents>, ToolError> {
        let path = file_uri::parse(&uri)?;
        let content = files::read(&self.root, &path).await;
        let content =
            content.map_err(|error| error.into_tool_error("resource", path.as_str(), super::LIST.name))?;
        let known = mime_type(&path);
        let (body, otherwise) = match String::from_utf8(content) {
            Ok(text) => (ResourceBody::Text(text), "text/plain"),
            Err(error) => {
                (ResourceBody::Base64(STANDARD.encode(error.as_bytes())), "application/octet-stream")
            }
        };
        Ok(vec![ResourceContents { uri, mime_type: Some(known.unwrap_or(otherwise).to_owned()), body }])
    }
}

impl ResourceSource for WorkspaceFiles {
    fn owns(&self, uri: &str) -> bool {
        uri.starts_with(file_uri::PREFIX)
    }

    fn templates(&self) -> Vec<Arc<TemplateDef>> {
        vec![Arc::new(TemplateDef {
            uri_template: file_uri::TEMPLATE.to_owned(),
            name: "workspace-file".to_owned(),
            title: Some("Workspace file".to_owned()),
            description: Some("A file of the workspace, by its relative path.".to_owned()),
            mime_type: None,
            definition: None,
        })]
    }

    fn list<'a>(&'a self, _: &'a Caller) -> BoxFuture<'a, Result<Vec<ResourceDef>, ToolError>> {
        Box::pin(async {
            let files = self.walk().await?;
            Ok(files.into_iter().map(|file| resource(&file)).collect())
        })
    }

    fn read(&self, uri: String, _: CallCtx) -> BoxFuture<'_, Result<Vec<ResourceContents>, ToolError>> {
        Box::pin(self.contents(uri))
    }

    fn complete(
        &self,
        _: String,
        argument: CompletionArgument,
        sight: ResourceVisibility,
        _: CallCtx,
    ) -> BoxFuture<'_, Result<Completion, ToolError>> {
        Box::pin(async move {
            if argument.name != "path" {
                return Ok(Completion::default());
            }
            let files = self.walk().await?.into_iter();
            let visible = files.filter(|file| sight.sees_resource(&file_uri::of(&file.path)));
            Ok(Completion::matching(visible.map(|file| file.path.to_string()), &argument.value))
        })
    }
}

fn resource(file: &WalkedFile) -> ResourceDef {
    ResourceDef {
        uri: file_uri::of(&file.path),
        name: file.path.to_string(),
        title: None,
        description: None,
        mime_type: mime_type(&file.path).map(str::to_owned),
        size: Some(file.size),
        definition: None,
    }
}

fn mime_type(path: &RootedPath) -> Option<&'static str> {
    let extension = path.extension()?.to_ascii_lowercase();
    TYPES.iter().find(|(known, _)| *known == extension).map(|(_, mime_type)| *mime_type)
}
