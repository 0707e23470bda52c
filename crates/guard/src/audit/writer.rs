//! The thread that writes: numbers the records, chains them, and says when they are durable.

use super::anchor::{Anchor, Why};
use super::chain::{ChainKey, Link};
use super::journal::{Entry, QUEUE_RECORDS_MAX, Shared};
use super::lines::CURRENT;
use super::record::{self, Gap, Opening, Record, Times, Torn};
use super::sink::Sink;
use portcullis_core::Clock;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// How many records are kept while they cannot be written. Beyond this they are counted, and the count is written.
const KEPT_RECORDS_MAX: usize = QUEUE_RECORDS_MAX;
/// How long a record waits for its anchor: so much can be cut off the log of a hub that was killed, unseen.
const ANCHOR_EVERY: Duration = Duration::from_secs(1);

/// How much room for records and for their lines is kept while nothing is written. A disk that takes long lets thousands
/// of them gather, 4 MB of lines.
const SPARE_RECORDS: usize = 512;
const SPARE_BYTES: usize = 256 * 1024;

type Waiting = Vec<(u64, oneshot::Sender<Result<(), String>>)>;

/// What the thread knows.
pub(super) struct Writer {
    shared: Arc<Shared>,
    sink: Box<dyn Sink>,
    clock: Arc<dyn Clock>,
    /// Unknown until the end of the log has been read.
    chain: Option<Chain>,
    /// Records that are not written yet.
    kept: Vec<Record>,
    /// How many records are missing before the next line, and the newest that ever was.
    lost: u64,
    lost_through: Option<u64>,
    unsynced: bool,
    anchored: Anchored,
    times: Times,
    lines: Vec<u8>,
}

struct Chain {
    key: ChainKey,
    /// The last record.
    end: Link,
    /// What is to be said before the next one.
    opening: Option<(Option<String>, Option<Torn>)>,
}

/// How far the anchors are.
struct Anchored {
    seq: u64,
    at: Instant,
    /// Whether the first anchor of this hub is written.
    begun: bool,
}

impl Writer {
    pub(super) fn new(shared: Arc<Shared>, sink: Box<dyn Sink>, clock: Arc<dyn Clock>) -> Writer {
        Writer {
            shared,
            sink,
            clock,
            chain: None,
            kept: Vec::new(),
            lost: 0,
            lost_through: None,
            unsynced: false,
            anchored: Anchored { seq: 0, at: Instant::now(), begun: false },
            times: Times::default(),
            lines: Vec::new(),
        }
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.shared
    }

    pub(super) fn run(&mut self) {
        // Opened before the first call, so that `/readyz` tells of a wrong path at once.
        self.settle(&mut Vec::new());
        let (mut spare, mut waiting) = (Vec::new(), Vec::new());
        loop {
            let (mut entries, stopping) = self.shared.take(spare, self.patience());
            for entry in entries.drain(..) {
                match entry {
                    Entry::Record { record, .. } if self.kept.len() < KEPT_RECORDS_MAX => {
                        self.kept.push(record)
                    }
                    Entry::Record { ticket, .. } => {
                        self.lost += 1;
                        self.lost_through = Some(ticket);
                    }
                    Entry::Commit { ticket, done } => waiting.push((ticket, done)),
                }
            }
            entries.shrink_to(SPARE_RECORDS);
            spare = entries;
            self.settle(&mut waiting);
            self.kept.shrink_to(SPARE_RECORDS);
            self.lines.clear();
            self.lines.shrink_to(SPARE_BYTES);
            if stopping {
                return self.finish();
            }
        }
    }

    /// Writes what there is, and answers those who wait.
    fn settle(&mut self, waiting: &mut Waiting) {
        let durable = !waiting.is_empty();
        let written = self.write(durable).map_err(|error| error.to_string());
        self.tell(&written);
        for (ticket, done) in waiting.drain(..) {
            let answer = match &written {
                Ok(()) if self.lost_through.is_some_and(|lost| ticket <= lost) => {
                    Err("the record was lost".to_owned())
                }
                other => other.clone(),
            };
            // Who does not wait any more does not need to know.
            let _ = done.send(answer);
        }
    }

    fn write(&mut self, durable: bool) -> io::Result<()> {
        if self.chain.is_none() || !self.sink.is_open() {
            self.resume()?;
        }
        if !self.anchored.begun {
            // Before the first byte: what stands after a log that was closed, and not opened again, was put there.
            self.anchor(Why::Open)?;
        }
        if self.sink.is_full() {
            if self.patience().is_some() {
                self.anchor(Why::Rotate)?;
            }
            self.sync()?;
            self.sink.rotate()?;
            self.resume()?;
        }
        self.append()?;
        if durable {
            self.sync()?;
        }
        if self.patience().is_some_and(|left| left.is_zero()) {
            self.anchor(Why::Time)?;
        }
        Ok(())
    }

    /// Finds the end of the log. The newest of what the file, the anchors and this thread know counts, so that
    /// records that were taken away stay missed.
    fn resume(&mut self) -> io::Result<()> {
        let found = self.sink.resume()?;
        let start = found.key.start();
        let in_file = found.end.unwrap_or(start);
        let known = self.chain.as_ref().map(|chain| chain.end).into_iter().chain(found.anchored);
        let end = known.fold(in_file, |end, other| if other.seq > end.seq { other } else { end });
        if end.seq > in_file.seq {
            let (last, expected) = (in_file.seq, end.seq);
            tracing::error!(
                last,
                expected,
                "Records are missing at the end of the audit log; see `audit verify`."
            );
        }
        let begins_file = found.end.is_none() || found.previous.is_some();
        let previous = (begins_file && end != start).then(|| found.previous.unwrap_or(CURRENT.to_owned()));
        let opening = (previous.is_some() || found.torn.is_some()).then_some((previous, found.torn));
        self.chain = Some(Chain { key: found.key, end, opening });
        Ok(())
    }

    fn append(&mut self) -> io::Result<()> {
        let Some(chain) = &mut self.chain else { return Err(io::Error::other("the log is not open")) };
        self.lines.clear();
        let (lines, mut end) = (&mut self.lines, chain.end);
        if let Some((previous, torn)) = &chain.opening {
            if torn.is_some() {
                lines.push(b'\n');
            }
            let opening = Opening {
                seq: end.seq + 1,
                time: record::time_text(self.clock.now()),
                phase: if torn.is_some() { "torn" } else { "file" }.to_owned(),
                previous: previous.clone(),
                previous_mac: previous.as_ref().map(|_| end.mac),
                torn: torn.clone(),
            };
            end = chain.key.add(end, lines, |_, lines| record::write_object(&opening, lines));
        }
        for record in &self.kept {
            let times = &mut self.times;
            end = chain.key.add(end, lines, |seq, lines| record.write(seq, &chain.key, times, lines));
        }
        if self.lost > 0 {
            let lost = self.lost;
            let gap =
                |seq, lines: &mut Vec<u8>| record::write_object(&Gap { seq, phase: "gap", lost }, lines);
            end = chain.key.add(end, lines, gap);
        }
        if !lines.is_empty() {
            self.sink.append(lines)?;
            self.kept.clear();
            (self.lost, self.unsynced) = (0, true);
            (chain.end, chain.opening) = (end, None);
        }
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        if self.unsynced {
            self.sink.sync()?;
            self.unsynced = false;
        }
        Ok(())
    }

    /// Returns when the next anchor is due, if there is anything to anchor.
    fn patience(&self) -> Option<Duration> {
        let end = self.chain.as_ref()?.end;
        (end.seq > self.anchored.seq).then(|| ANCHOR_EVERY.saturating_sub(self.anchored.at.elapsed()))
    }

    /// Only what is durable is anchored: otherwise a power failure would look like a cut.
    fn anchor(&mut self, why: Why) -> io::Result<()> {
        self.sync()?;
        let Some(chain) = &self.chain else { return Ok(()) };
        let Link { seq, mac } = chain.end;
        let time = record::time_text(self.clock.now());
        self.sink.anchor(&Anchor { time, file: CURRENT.to_owned(), seq, mac, why })?;
        self.anchored = Anchored { seq, at: Instant::now(), begun: true };
        Ok(())
    }

    /// Lets everyone know how it stands; the log only when it changes.
    fn tell(&self, written: &Result<(), String>) {
        let before = self.shared.trouble.load();
        match (written, before.as_deref()) {
            (Ok(()), None) => {}
            (Ok(()), Some(_)) => {
                tracing::warn!("The audit log can be written again.");
                self.shared.trouble.store(None);
            }
            (Err(reason), before) if before != Some(reason) => {
                tracing::error!(%reason, "The audit log cannot be written; calls with side effects are refused.");
                self.shared.trouble.store(Some(Arc::new(reason.clone())));
            }
            (Err(_), _) => {}
        }
    }

    fn finish(&mut self) {
        let lost = self.lost + self.kept.len() as u64;
        if lost > 0 {
            tracing::error!(lost, "Audit records could not be written before the end.");
        }
        if let Err(error) = self.anchor(Why::Close) {
            tracing::error!(%error, "The end of the audit log may not be durable.");
        }
    }
}
