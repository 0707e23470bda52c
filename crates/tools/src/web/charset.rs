//! Character set detection and decoding.

use encoding_rs::{Encoding, UTF_8, WINDOWS_1252};

/// How far into a page a charset declaration is searched, as in browsers.
const LOOK_BYTES: usize = 1024;

/// Decodes a body: by byte order mark, header, declaration in the page, or else by content.
pub(super) fn decode(body: &[u8], declared: Option<&str>) -> String {
    let named = |label: &str| Encoding::for_label(label.trim().as_bytes());
    let encoding = Encoding::for_bom(body)
        .map(|(encoding, _)| encoding)
        .or_else(|| declared.and_then(named))
        .or_else(|| in_page(body).as_deref().and_then(named));
    let encoding =
        encoding.unwrap_or_else(|| if std::str::from_utf8(body).is_ok() { UTF_8 } else { WINDOWS_1252 });
    encoding.decode(body).0.into_owned()
}

/// Returns the value of `charset=` or `encoding=` near the beginning.
fn in_page(body: &[u8]) -> Option<String> {
    let head = body[..body.len().min(LOOK_BYTES)].to_ascii_lowercase();
    let head = String::from_utf8_lossy(&head);
    let at = head.find("charset=").map(|at| at + "charset=".len());
    let at = at.or_else(|| {
        head.trim_start()
            .starts_with("<?xml")
            .then(|| head.find("encoding=").map(|at| at + "encoding=".len()))
            .flatten()
    })?;
    let rest = head[at..].trim_start_matches(['"', '\'', ' ']);
    let label: String =
        rest.chars().take_while(|c| c.is_ascii_alphanumeric() || "-_:.".contains(*c)).collect();
    // A page that is readable so far is not UTF-16, regardless of its declaration.
    Some(if label.starts_with("utf-16") { "utf-8".to_owned() } else { label })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_goes_before_the_server_and_the_server_before_the_page() {
        let cases: [(&[u8], Option<&str>, &str); 11] = [
            (b"caf\xc3\xa9", None, "café"),
            (b"caf\xe9", None, "café"),
            (b"caf\xe9", Some("iso-8859-1"), "café"),
            (b"caf\xc3\xa9", Some("UTF-8"), "café"),
            (b"\xef\xbb\xbfcaf\xc3\xa9", Some("latin1"), "café"),
            (b"\xff\xfec\0a\0f\0\xe9\0", None, "café"),
            (b"\x93\xfa\x96{", Some("Shift_JIS"), "日本"),
            (b"<meta charset='shift_jis'>\x93\xfa\x96{", None, "<meta charset='shift_jis'>日本"),
            (
                b"<?xml version='1.0' encoding='koi8-r'?>\xc4\xc1",
                None,
                "<?xml version='1.0' encoding='koi8-r'?>да",
            ),
            (b"\xcf\xf0", Some("no-such-set"), "Ïð"),
            (b"", None, ""),
        ];
        for (body, declared, text) in cases {
            assert_eq!(decode(body, declared), text, "{declared:?}");
        }
        assert_eq!(decode(b"<meta charset=utf-16>caf\xc3\xa9", None), "<meta charset=utf-16>café");
    }
}
