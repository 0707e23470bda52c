//! Search in the audit log, newest first.
//!
//! The files are read backwards in chunks, and lines are parsed only as far as needed: most searches end long before the
//! start of the log, and a full scan is bounded by the speed of a substring search.

use super::AuditSettings;
use super::each_line;
use super::log_lines::{LINE_BYTES_MAX, LogFiles};
use super::record::escaped;
use jiff::Timestamp;
use memchr::memmem::{self, Finder};
use memchr::{memchr, memrchr};
use portcullis_core::Pattern;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;

/// Read size.
const PIECE_BYTES: usize = 1024 * 1024;

/// Bound on the records scanned for the last calls of clients. A fraction of a second.
pub const LAST_CALLS_RECORDS_MAX: u64 = 100_000;
/// Bound on ended calls whose begin record is still to be found: as many as ever run at once.
const ENDS_MAX: usize = 10_000;

/// A filter. `None` matches everything.
#[derive(Debug, Clone, Default)]
pub struct AuditQuery {
    pub client: Option<Pattern>,
    /// The target: a tool, a resource or a prompt.
    pub target: Option<Pattern>,
    /// As `target`; a record has to match both.
    pub server: Option<Pattern>,
    pub outcome: Option<String>,
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
    /// A substring of the record, ignoring ASCII case.
    pub text: Option<String>,
    pub call: Option<u64>,
    /// Only records with a smaller sequence number.
    pub before: Option<u64>,
}

/// The result of a search.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditMatches {
    /// Newest first, as in the log.
    pub lines: Vec<Vec<u8>>,
    /// Whether there are more matches.
    pub more: bool,
    /// The number of records scanned.
    pub searched: u64,
}

/// Returns at most `limit` matching records, newest first.
pub fn search(settings: &AuditSettings, query: &AuditQuery, limit: usize) -> io::Result<AuditMatches> {
    let wanted = CompiledQuery::new(query);
    let mut found = AuditMatches::default();
    newest_first(settings, &mut |line| {
        found.searched += 1;
        if !wanted.takes(line) {
            return ControlFlow::Continue(());
        }
        if found.lines.len() == limit {
            found.more = true;
            return ControlFlow::Break(());
        }
        found.lines.push(line.to_vec());
        ControlFlow::Continue(())
    })?;
    Ok(found)
}

/// A call, by its begin record and, once it ended, its end record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedCall {
    pub begin: Vec<u8>,
    pub end: Option<Vec<u8>>,
}

/// The result of a search for calls.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallMatches {
    /// The last begun first.
    pub calls: Vec<RecordedCall>,
    /// Whether there are more matches.
    pub more: bool,
    /// The number of records scanned.
    pub searched: u64,
}

/// Returns at most `limit` matching calls, the last begun first. Times are compared with the begin of a call, the outcome with its
/// end, and the text with both.
pub fn search_calls(settings: &AuditSettings, query: &AuditQuery, limit: usize) -> io::Result<CallMatches> {
    let wanted = CompiledQuery::new(query);
    let is_before = |begin: u64| query.before.is_none_or(|before| begin < before);
    let mut found = CallMatches::default();
    // The ends of calls whose begin is further back, by its sequence number.
    let mut ends: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    newest_first(settings, &mut |line| {
        found.searched += 1;
        if let Some(begin) = number_in(line, "\"begin\":") {
            if is_before(begin) && wanted.has_call(line) && wanted.has_names(line) && wanted.has_outcome(line)
            {
                ends.insert(begin, line.to_vec());
            }
            if ends.len() > ENDS_MAX {
                // The begin furthest back.
                ends.pop_first();
            }
            return ControlFlow::Continue(());
        }
        let Some(seq) = number_after(line, b"{\"seq\":").filter(|seq| is_before(*seq)) else {
            return ControlFlow::Continue(());
        };
        let end = ends.remove(&seq);
        let is_call = memmem::find(line, b"\"phase\":\"begin\"").is_some();
        let has_outcome = query.outcome.is_none() || end.is_some();
        if !is_call
            || !has_outcome
            || !wanted.has_call(line)
            || !wanted.is_in_time(line)
            || !wanted.has_names(line)
        {
            return ControlFlow::Continue(());
        }
        if !wanted.has_text(line) && !end.as_ref().is_some_and(|end| wanted.has_text(end)) {
            return ControlFlow::Continue(());
        }
        if found.calls.len() == limit {
            found.more = true;
            return ControlFlow::Break(());
        }
        found.calls.push(RecordedCall { begin: line.to_vec(), end });
        ControlFlow::Continue(())
    })?;
    Ok(found)
}

/// Visits the newest end records, newest first, at most [`LAST_CALLS_RECORDS_MAX`] records back. Returns whether it visited all
/// that there are.
pub fn newest_ends(
    settings: &AuditSettings,
    visit: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
) -> io::Result<bool> {
    let (mut searched, mut is_all) = (0, true);
    newest_first(settings, &mut |line| {
        if searched == LAST_CALLS_RECORDS_MAX {
            is_all = false;
            return ControlFlow::Break(());
        }
        searched += 1;
        match memmem::find(line, b"\"phase\":\"end\"") {
            Some(_) => visit(line),
            None => ControlFlow::Continue(()),
        }
    })?;
    Ok(is_all)
}

/// Visits the matching records, oldest first.
pub fn each_match(
    settings: &AuditSettings,
    query: &AuditQuery,
    visit: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
) -> io::Result<()> {
    let wanted = CompiledQuery::new(query);
    each_line(settings, &mut |line| if wanted.takes(line) { visit(line) } else { ControlFlow::Continue(()) })
}

/// Returns the time of the last call of each client, as far as the newest records show. Stops when all are found.
pub fn last_calls(
    settings: &AuditSettings,
    mut clients: BTreeSet<String>,
) -> io::Result<HashMap<String, Timestamp>> {
    let (mut found, mut searched) = (HashMap::new(), 0);
    newest_first(settings, &mut |line| {
        if clients.is_empty() || searched == LAST_CALLS_RECORDS_MAX {
            return ControlFlow::Break(());
        }
        searched += 1;
        let client = field(line, "\"client\":\"").filter(|client| clients.contains(&**client));
        let time = client.as_ref().and_then(|_| field(line, "\"time\":\"")?.parse().ok());
        if let (Some(client), Some(time)) = (client, time) {
            clients.remove(&*client);
            found.insert(client.into_owned(), time);
        }
        ControlFlow::Continue(())
    })?;
    Ok(found)
}

/// Returns the records of one call by the sequence number of any of them, oldest first.
pub fn records_of_call(settings: &AuditSettings, seq: u64) -> io::Result<Vec<Vec<u8>>> {
    // The number of the begin record, once it is known.
    let (mut begin, mut found) = (seq, Vec::new());
    let mark = format!("\"begin\":{seq},");
    let end_of_it = Finder::new(&mark);
    newest_first(settings, &mut |line| {
        let Some(own) = number_after(line, b"{\"seq\":") else { return ControlFlow::Continue(()) };
        if own < begin {
            return ControlFlow::Break(());
        }
        if own == seq {
            begin = number_in(line, "\"begin\":").unwrap_or(seq);
            found.push(line.to_vec());
        } else if own == begin || end_of_it.find(line).is_some() {
            found.push(line.to_vec());
        }
        ControlFlow::Continue(())
    })?;
    found.reverse();
    Ok(found)
}

/// A query prepared for matching lines.
struct CompiledQuery<'q> {
    query: &'q AuditQuery,
    /// Escaped as in a record, in lower case.
    text: Option<Finder<'static>>,
    since: Option<String>,
    until: Option<String>,
    call: Option<Vec<u8>>,
}

impl<'q> CompiledQuery<'q> {
    fn new(query: &'q AuditQuery) -> CompiledQuery<'q> {
        let text = query.text.as_ref().filter(|text| !text.is_empty()).map(|text| {
            let quoted = escaped(&text.to_ascii_lowercase());
            let inner = quoted.strip_prefix('"').and_then(|quoted| quoted.strip_suffix('"'));
            Finder::new(inner.unwrap_or_default().as_bytes()).into_owned()
        });
        let time = |time: &Timestamp| format!("{time:.3}");
        CompiledQuery {
            query,
            text,
            since: query.since.as_ref().map(time),
            until: query.until.as_ref().map(time),
            call: query.call.map(|call| format!("\"call\":{call},").into_bytes()),
        }
    }

    /// Returns whether a line matches. The cheapest conditions come first.
    fn takes(&self, line: &[u8]) -> bool {
        let query = self.query;
        if let Some(before) = query.before
            && number_after(line, b"{\"seq\":").is_none_or(|seq| seq >= before)
        {
            return false;
        }
        self.has_call(line)
            && self.is_in_time(line)
            && self.has_names(line)
            && self.has_outcome(line)
            && self.has_text(line)
    }

    fn has_call(&self, line: &[u8]) -> bool {
        self.call.as_ref().is_none_or(|call| memmem::find(line, call).is_some())
    }

    fn has_names(&self, line: &[u8]) -> bool {
        let fits = |pattern: &Option<Pattern>, key: &str| {
            let Some(pattern) = pattern else { return true };
            field(line, key).is_some_and(|value| pattern.matches(&value))
        };
        let query = self.query;
        fits(&query.client, "\"client\":\"")
            && fits(&query.target, "\"target\":\"")
            && fits(&query.server, "\"target\":\"")
    }

    fn has_outcome(&self, line: &[u8]) -> bool {
        let ended = |wanted: &String| field(line, "\"outcome\":\"").is_some_and(|value| value == **wanted);
        self.query.outcome.as_ref().is_none_or(ended)
    }

    fn has_text(&self, line: &[u8]) -> bool {
        self.text.as_ref().is_none_or(|text| text.find(&line.to_ascii_lowercase()).is_some())
    }

    /// Compares as text: the format of timestamps sorts chronologically.
    fn is_in_time(&self, line: &[u8]) -> bool {
        if self.since.is_none() && self.until.is_none() {
            return true;
        }
        let Some(time) = field(line, "\"time\":\"") else { return false };
        self.since.as_ref().is_none_or(|since| *time >= **since)
            && self.until.as_ref().is_none_or(|until| *time <= **until)
    }
}

/// Returns the text of a member. Quotes inside strings are escaped, so `mark` matches only at a member.
fn field<'l>(line: &'l [u8], mark: &str) -> Option<Cow<'l, str>> {
    let rest = &line[memmem::find(line, mark.as_bytes())? + mark.len()..];
    let plain = &rest[..memchr(b'"', rest)?];
    if memchr(b'\\', plain).is_none() {
        return std::str::from_utf8(plain).ok().map(Cow::Borrowed);
    }
    // It has escapes: parse as JSON, from its quote on.
    let quoted = &line[line.len() - rest.len() - 1..];
    let mut texts = serde_json::Deserializer::from_slice(quoted).into_iter::<String>();
    texts.next()?.ok().map(Cow::Owned)
}

fn number_in(line: &[u8], mark: &str) -> Option<u64> {
    number_after(&line[memmem::find(line, mark.as_bytes())?..], mark.as_bytes())
}

fn number_after(line: &[u8], mark: &[u8]) -> Option<u64> {
    let rest = line.strip_prefix(mark)?;
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()
}

/// Visits every complete line, newest first, until `visit` breaks.
fn newest_first(settings: &AuditSettings, visit: &mut dyn FnMut(&[u8]) -> ControlFlow<()>) -> io::Result<()> {
    let files = LogFiles::open(&settings.dir)?;
    if let Some(current) = &files.current
        && backwards(current, visit)?.is_break()
    {
        return Ok(());
    }
    for path in files.closed.iter().rev() {
        if backwards(&File::open(path)?, visit)?.is_break() {
            return Ok(());
        }
    }
    Ok(())
}

/// Visits the lines of one file from its end. Bytes after the last newline are an incomplete line.
fn backwards(file: &File, visit: &mut dyn FnMut(&[u8]) -> ControlFlow<()>) -> io::Result<ControlFlow<()>> {
    let mut unread = file.metadata()?.len();
    // The start of the chunk read before, which is the end of a line.
    let mut rest: Vec<u8> = Vec::new();
    let mut is_whole = false;
    while unread > 0 {
        let count = unread.min(PIECE_BYTES as u64);
        unread -= count;
        let mut piece = vec![0; usize::try_from(count).unwrap_or(PIECE_BYTES)];
        file.read_exact_at(&mut piece, unread)?;
        piece.extend_from_slice(&rest);
        let mut end = piece.len();
        while let Some(at) = memrchr(b'\n', &piece[..end]) {
            let line = &piece[at + 1..end];
            if is_whole && !line.is_empty() && visit(line).is_break() {
                return Ok(ControlFlow::Break(()));
            }
            (is_whole, end) = (true, at);
        }
        piece.truncate(end);
        // Longer than any valid record; not buffered.
        if piece.len() > PIECE_BYTES + LINE_BYTES_MAX {
            piece.clear();
        }
        rest = piece;
    }
    if is_whole && !rest.is_empty() {
        return Ok(visit(&rest));
    }
    Ok(ControlFlow::Continue(()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::log_lines::{CURRENT, closed_name};
    use std::io::Write;
    use std::path::Path;
    use std::time::Instant;

    /// One record as in the log; begin and end in turn.
    fn line(seq: u64) -> String {
        let call = seq.div_ceil(2);
        let (client, tool) = (
            ["laptop", "ci", "phone"][(call % 3) as usize],
            ["workspace_read", "memory_write"][(call % 2) as usize],
        );
        let time = Timestamp::from_second(1_800_000_000 + i64::try_from(call).unwrap()).unwrap();
        let args =
            format!("{{\\\"path\\\":\\\"Notes/{call}.md\\\",\\\"content\\\":\\\"{}\\\"}}", "x".repeat(120));
        let code = "a".repeat(64);
        let begin = format!(
            "{{\"seq\":{seq},\"time\":\"{time:.3}\",\"call\":{call},\"phase\":\"PHASE\",\"client\":\"{client}\",\"origin\":\"client\",\"kind\":\"tool\",\"target\":\"{tool}\",\"digest\":\"{code}\""
        );
        if seq % 2 == 1 {
            return format!(
                "{},\"args\":\"{args}\",\"effect\":\"read\",\"mac\":\"{code}\"}}\n",
                begin.replace("PHASE", "begin")
            );
        }
        let outcome = if call.is_multiple_of(100) { "denied" } else { "ok" };
        let end = format!(
            "\"begin\":{},\"decision\":\"allow\",\"rule\":\"default:read\",\"outcome\":\"{outcome}\",\"bytes\":4",
            seq - 1
        );
        format!(
            "{},\"effect\":\"read\",{end},\"duration_us\":12,\"mac\":\"{code}\"}}\n",
            begin.replace("PHASE", "end")
        )
    }

    fn log(dir: &Path, count: u64) -> AuditSettings {
        let settings = AuditSettings::in_folder(dir);
        std::fs::create_dir_all(&settings.dir).unwrap();
        let third = count / 3;
        let names = [closed_name(1), closed_name(2), CURRENT.to_owned()];
        for (at, name) in names.iter().enumerate() {
            let (from, to) = (third * at as u64, if at == 2 { count } else { third * (at as u64 + 1) });
            let mut file = std::io::BufWriter::new(File::create(settings.dir.join(name)).unwrap());
            (from + 1..=to).for_each(|seq| file.write_all(line(seq).as_bytes()).unwrap());
        }
        settings
    }

    fn globs(glob: &str) -> Option<Pattern> {
        Some(Pattern::new(&[glob.to_owned()]).unwrap())
    }

    fn seqs(found: &AuditMatches) -> Vec<u64> {
        found.lines.iter().map(|line| number_after(line, b"{\"seq\":").unwrap()).collect()
    }

    #[test]
    fn records_are_found_newest_first_by_everything_that_is_asked() {
        let dir = tempfile::tempdir().unwrap();
        let settings = log(dir.path(), 6_000);
        // An incomplete line, as during a write.
        let current = settings.dir.join(CURRENT);
        let mut file = std::fs::OpenOptions::new().append(true).open(current).unwrap();
        file.write_all(b"{\"seq\":6001,\"time\":\"20").unwrap();
        let all = AuditQuery::default();
        let found = search(&settings, &all, 10_000).unwrap();
        assert_eq!(seqs(&found), (1..=6_000).rev().collect::<Vec<_>>());
        assert_eq!((found.more, found.searched), (false, 6_000));
        let first = search(&settings, &all, 10).unwrap();
        assert_eq!((seqs(&first), first.more, first.searched), ((5_991..=6_000).rev().collect(), true, 11));
        let time = |seconds: i64| Some(Timestamp::from_second(1_800_000_000 + seconds).unwrap());
        for (query, expected) in [
            (AuditQuery { before: Some(11), ..all.clone() }, 10),
            (AuditQuery { client: globs("ci"), ..all.clone() }, 2_000),
            (AuditQuery { client: globs("*p*"), target: globs("memory_*"), ..all.clone() }, 2_000),
            (AuditQuery { outcome: Some("denied".to_owned()), ..all.clone() }, 30),
            (AuditQuery { call: Some(17), ..all.clone() }, 2),
            (AuditQuery { text: Some("notes/1234.MD".to_owned()), ..all.clone() }, 1),
            (AuditQuery { text: Some("\"path\":\"Notes/77.md\"".to_owned()), ..all.clone() }, 1),
            (AuditQuery { text: Some("not there".to_owned()), ..all.clone() }, 0),
            (AuditQuery { since: time(2_991), ..all.clone() }, 20),
            (AuditQuery { until: time(10), ..all.clone() }, 20),
        ] {
            assert_eq!(search(&settings, &query, 10_000).unwrap().lines.len(), expected, "{query:?}");
        }
        for seq in [1, 2, 2_000, 2_001, 5_999, 6_000] {
            let seqs: Vec<u64> = records_of_call(&settings, seq)
                .unwrap()
                .iter()
                .map(|line| number_after(line, b"{\"seq\":").unwrap())
                .collect();
            let begin = seq - (1 - seq % 2);
            assert_eq!(seqs, [begin, begin + 1], "{seq}");
        }
        assert_eq!(records_of_call(&settings, 7_000).unwrap().len(), 0);
    }

    #[test]
    fn a_call_is_found_once_by_what_is_in_either_of_its_records() {
        let dir = tempfile::tempdir().unwrap();
        let settings = log(dir.path(), 6_000);
        // A call that has not ended.
        let current = settings.dir.join(CURRENT);
        let mut file = std::fs::OpenOptions::new().append(true).open(current).unwrap();
        file.write_all(line(6_001).as_bytes()).unwrap();
        let all = AuditQuery::default();
        let seqs = |found: &CallMatches| -> Vec<(u64, Option<u64>)> {
            let seq = |line: &Vec<u8>| number_after(line, b"{\"seq\":").unwrap();
            found.calls.iter().map(|call| (seq(&call.begin), call.end.as_ref().map(seq))).collect()
        };
        let first = search_calls(&settings, &all, 3).unwrap();
        assert_eq!(seqs(&first), [(6_001, None), (5_999, Some(6_000)), (5_997, Some(5_998))]);
        assert!(first.more);
        let next = AuditQuery { before: Some(5_997), ..all.clone() };
        assert_eq!(
            seqs(&search_calls(&settings, &next, 2).unwrap()),
            [(5_995, Some(5_996)), (5_993, Some(5_994))]
        );
        let time = |seconds: i64| Some(Timestamp::from_second(1_800_000_000 + seconds).unwrap());
        for (query, expected) in [
            (all.clone(), 3_001),
            (AuditQuery { outcome: Some("denied".to_owned()), ..all.clone() }, 30),
            (AuditQuery { call: Some(17), ..all.clone() }, 1),
            (AuditQuery { text: Some("notes/1234.MD".to_owned()), ..all.clone() }, 1),
            (AuditQuery { text: Some("\"outcome\":\"denied\"".to_owned()), ..all.clone() }, 0),
            (AuditQuery { text: Some("denied".to_owned()), ..all.clone() }, 30),
            (AuditQuery { client: globs("ci"), server: globs("memory_*"), ..all.clone() }, 501),
            (AuditQuery { until: time(10), ..all.clone() }, 10),
        ] {
            assert_eq!(search_calls(&settings, &query, 10_000).unwrap().calls.len(), expected, "{query:?}");
        }
    }

    #[test]
    fn a_name_with_escapes_is_found_and_a_text_that_looks_like_a_member_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let settings = AuditSettings::in_folder(dir.path());
        std::fs::create_dir_all(&settings.dir).unwrap();
        let lines = "{\"seq\":1,\"client\":\"a\",\"target\":\"odd \\\"name\\\" \\\\\",\"args\":\"{\\\"client\\\":\\\"b\\\"}\"}\n";
        std::fs::write(settings.dir.join(CURRENT), lines).unwrap();
        let count = |query: AuditQuery| search(&settings, &query, 10).unwrap().lines.len();
        assert_eq!(count(AuditQuery { target: globs("odd \"name\"*"), ..AuditQuery::default() }), 1);
        assert_eq!(count(AuditQuery { client: globs("b"), ..AuditQuery::default() }), 0);
        assert_eq!(count(AuditQuery { text: Some("\"b\"".to_owned()), ..AuditQuery::default() }), 1);
    }

    #[test]
    fn the_last_calls_of_clients_are_found_from_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let settings = log(dir.path(), 6_000);
        let found = last_calls(&settings, ["laptop", "ci", "nobody"].map(str::to_owned).into()).unwrap();
        let of = |name: &str| found.get(name).map(|time| time.as_second() - 1_800_000_000);
        // Call 3,000 is by `laptop` and the last of all; the last of `ci` is two before it.
        assert_eq!((of("laptop"), of("ci"), of("nobody"), found.len()), (Some(3_000), Some(2_998), None, 2));
        // Not the oldest, which a forward search would find first.
        let all =
            search(&settings, &AuditQuery { client: globs("ci"), ..AuditQuery::default() }, 9_000).unwrap();
        let oldest = field(all.lines.last().unwrap(), "\"time\":\"").unwrap().parse::<Timestamp>().unwrap();
        assert!(oldest < found["ci"]);
    }

    /// The longest searches: full scans. Prints the time; `--release` shows the figure.
    #[test]
    fn a_hundred_thousand_records_are_looked_at() {
        let dir = tempfile::tempdir().unwrap();
        let settings = log(dir.path(), 100_000);
        let all = AuditQuery::default();
        for (what, query) in [
            ("text", AuditQuery { text: Some("not there".to_owned()), ..all.clone() }),
            ("client and tool", AuditQuery { client: globs("nob*y"), target: globs("m*"), ..all.clone() }),
            (
                "outcome and time",
                AuditQuery {
                    outcome: Some("timeout".to_owned()),
                    since: Some(Timestamp::UNIX_EPOCH),
                    ..all.clone()
                },
            ),
        ] {
            let began = Instant::now();
            let found = search(&settings, &query, 100).unwrap();
            eprintln!("figure: 100,000 records searched by {what}: {} ms", began.elapsed().as_millis());
            assert_eq!((found.searched, found.lines.len()), (100_000, 0));
        }
    }
}
