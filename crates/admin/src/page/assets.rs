//! Static assets, embedded in the binary and served with immutable caching.
//!
//! File names contain a content hash, so browsers cache them forever and never use an old one. Scripts import one
//! another by plain names, which are rewritten at startup.

use axum::body::{Body, Bytes};
use axum::extract::Path;
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use data_encoding::HEXLOWER;
use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest, Sha256};
use std::io::Write as _;
use std::sync::LazyLock;

/// Path of the assets. They are public: no session is needed.
pub(crate) const PLACE: &str = "/admin/assets/";

/// Ordered so that each file imports only earlier ones.
const SOURCES: [(&str, &str, &str); 6] = [
    ("page.css", "text/css; charset=utf-8", include_str!("../../assets/page.css")),
    ("mark.svg", "image/svg+xml", include_str!("../../assets/mark.svg")),
    ("page.js", SCRIPT, include_str!("../../assets/page.js")),
    ("now.js", SCRIPT, include_str!("../../assets/now.js")),
    ("welcome.js", SCRIPT, include_str!("../../assets/welcome.js")),
    ("editor.js", SCRIPT, include_str!("../../assets/editor.js")),
];
const SCRIPT: &str = "text/javascript; charset=utf-8";

struct Asset {
    name: &'static str,
    /// File name with the content hash.
    file: String,
    kind: &'static str,
    plain: Bytes,
    packed: Bytes,
}

static ASSETS: LazyLock<Vec<Asset>> = LazyLock::new(|| {
    let mut made: Vec<Asset> = Vec::with_capacity(SOURCES.len());
    for (name, kind, source) in SOURCES {
        let mut text = source.to_owned();
        for before in &made {
            text = text.replace(&format!("\"./{}\"", before.name), &format!("\"./{}\"", before.file));
        }
        let hash = HEXLOWER.encode(&Sha256::digest(&text)[..6]);
        let (stem, ending) = name.rsplit_once('.').unwrap_or((name, ""));
        let packed = Bytes::from(pack(text.as_bytes()));
        made.push(Asset { name, file: format!("{stem}-{hash}.{ending}"), kind, plain: text.into(), packed });
    }
    made
});

/// Compresses once per process, so at the best level.
fn pack(plain: &[u8]) -> Vec<u8> {
    let mut packer = GzEncoder::new(Vec::new(), Compression::best());
    let packed = packer.write_all(plain).and_then(|()| packer.finish());
    // Writing to memory does not fail; an empty result would never be served.
    packed.unwrap_or_default()
}

/// Returns the URL of an asset by its plain name. A test checks that all names in templates exist.
pub(crate) fn asset(name: &str) -> String {
    let file = ASSETS.iter().find(|asset| asset.name == name).map_or(name, |asset| &asset.file);
    format!("{PLACE}{file}")
}

/// Serves an asset.
pub(crate) async fn serve(Path(file): Path<String>, headers: HeaderMap) -> Response<Body> {
    let Some(asset) = ASSETS.iter().find(|asset| asset.file == file) else {
        let mut gone = Response::new(Body::from("No such file. Reload the page.\n"));
        *gone.status_mut() = StatusCode::NOT_FOUND;
        gone.headers_mut()
            .insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        return gone;
    };
    let takes_packed = headers
        .get_all(header::ACCEPT_ENCODING)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|coding| coding.trim() == "gzip");
    let is_packed = takes_packed && !asset.packed.is_empty();
    let contents = if is_packed { asset.packed.clone() } else { asset.plain.clone() };
    let mut response = Response::new(Body::from(contents));
    let into = response.headers_mut();
    into.insert(header::CONTENT_TYPE, HeaderValue::from_static(asset.kind));
    into.insert(header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=31536000, immutable"));
    into.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    if is_packed {
        into.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn every_name_in_a_template_is_an_asset() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/templates");
        let mut named = 0;
        for file in fs::read_dir(folder).unwrap() {
            let text = fs::read_to_string(file.unwrap().path()).unwrap();
            for rest in text.split("w::asset(\"").skip(1) {
                let name = rest.split('"').next().unwrap();
                assert!(ASSETS.iter().any(|asset| asset.name == name), "{name}");
                named += 1;
            }
        }
        assert!(named >= 5);
    }

    #[test]
    fn imports_lead_to_what_is_served() {
        for asset in ASSETS.iter() {
            let text = std::str::from_utf8(&asset.plain).unwrap();
            for rest in text.split("from \"./").skip(1) {
                let file = rest.split('"').next().unwrap();
                assert!(ASSETS.iter().any(|asset| asset.file == file), "{}: {file}", asset.name);
            }
        }
    }

    /// What the content policy of the page forbids would not work; here it is said which file has it.
    #[test]
    fn nothing_is_inline_and_nothing_becomes_markup() {
        let root = env!("CARGO_MANIFEST_DIR");
        for folder in ["templates", "assets"] {
            for file in fs::read_dir(format!("{root}/{folder}")).unwrap() {
                let path = file.unwrap().path();
                let text = fs::read_to_string(&path).unwrap();
                for forbidden in [
                    "style=\"",
                    "<style",
                    " onclick",
                    " onload",
                    " onerror",
                    "|safe",
                    "innerHTML",
                    "outerHTML",
                    "insertAdjacentHTML",
                    "document.write",
                    "eval(",
                    "new Function",
                    "javascript:",
                    "http:",
                    "https:",
                ] {
                    let at = text.find(forbidden);
                    let is_namespace =
                        at.is_some_and(|at| text[at..].starts_with("http://www.w3.org/2000/svg"));
                    assert!(at.is_none() || is_namespace, "{}: {forbidden}", path.display());
                }
            }
        }
    }

    #[test]
    fn the_first_view_is_small() {
        let packed: usize =
            ASSETS.iter().filter(|asset| asset.name != "editor.js").map(|asset| asset.packed.len()).sum();
        assert!(packed < 20_000, "{packed}");
    }
}
