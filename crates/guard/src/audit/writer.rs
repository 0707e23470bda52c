//! The journal's writer thread: numbers records, chains them, syncs, and anchors.

use super::anchor::{Anchor, AnchorReason};
use super::chain::{ChainKey, ChainLink};
use super::journal::{JournalEntry, JournalState, QUEUE_RECORDS_MAX};
use super::log_lines::CURRENT;
use super::record::{self, GapRecord, JournalRecord, OpeningRecord, TimestampCache, TornTail};
use super::sink::LogSink;
use portcullis_core::Clock;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Bound on records buffered while the log cannot be written. Beyond it they are counted, and the count is written.
const BUFFERED_RECORDS_MAX: usize = QUEUE_RECORDS_MAX;
/// Interval of anchors: this much could be truncated unnoticed from the log of a killed hub.
const ANCHOR_EVERY: Duration = Duration::from_secs(1);

/// Buffer capacity kept while idle. A slow disk can let thousands of records gather, 4 MB of lines.
const SPARE_RECORDS: usize = 512;
const SPARE_BYTES: usize = 256 * 1024;

type SyncWaiters = Vec<(u64, oneshot::Sender<Result<(), String>>)>;

/// The state of the thread.
pub(super) struct JournalWriter {
    shared: Arc<JournalState>,
    sink: Box<dyn LogSink>,
    clock: Arc<dyn Clock>,
    /// `None` until the end of the log was read.
    chain: Option<ChainState>,
    /// Records not written yet.
    buffered: Vec<JournalRecord>,
    /// The number of records lost before the next line, and the ticket of the newest one ever lost.
    lost: u64,
    lost_through: Option<u64>,
    unsynced: bool,
    anchored: AnchorProgress,
    times: TimestampCache,
    lines: Vec<u8>,
}

struct ChainState {
    key: ChainKey,
    /// The last record.
    end: ChainLink,
    /// The previous file and torn line to describe in the next record.
    opening: Option<(Option<String>, Option<TornTail>)>,
}

/// The state of the anchors.
struct AnchorProgress {
    seq: u64,
    at: Instant,
    /// Whether the first anchor of this hub was written.
    begun: bool,
}

impl JournalWriter {
    pub(super) fn new(
        shared: Arc<JournalState>,
        sink: Box<dyn LogSink>,
        clock: Arc<dyn Clock>,
    ) -> JournalWriter {
        JournalWriter {
            shared,
            sink,
            clock,
            chain: None,
            buffered: Vec::new(),
            lost: 0,
            lost_through: None,
            unsynced: false,
            anchored: AnchorProgress { seq: 0, at: Instant::now(), begun: false },
            times: TimestampCache::default(),
            lines: Vec::new(),
        }
    }

    pub(super) fn shared(&self) -> &JournalState {
        &self.shared
    }

    pub(super) fn run(&mut self) {
        // Opened before the first call, so that `/readyz` reports a wrong path at once.
        self.settle(&mut Vec::new());
        let (mut spare, mut waiting) = (Vec::new(), Vec::new());
        loop {
            let (mut entries, stopping) = self.shared.take(spare, self.until_anchor());
            for entry in entries.drain(..) {
                match entry {
                    JournalEntry::Record { record, .. } if self.buffered.len() < BUFFERED_RECORDS_MAX => {
                        self.buffered.push(record)
                    }
                    JournalEntry::Record { ticket, .. } => {
                        self.lost += 1;
                        self.lost_through = Some(ticket);
                    }
                    JournalEntry::Commit { ticket, done } => waiting.push((ticket, done)),
                }
            }
            entries.shrink_to(SPARE_RECORDS);
            spare = entries;
            self.settle(&mut waiting);
            self.buffered.shrink_to(SPARE_RECORDS);
            self.lines.clear();
            self.lines.shrink_to(SPARE_BYTES);
            if stopping {
                return self.finish();
            }
        }
    }

    /// Writes the buffered records and completes the commits.
    fn settle(&mut self, waiting: &mut SyncWaiters) {
        let durable = !waiting.is_empty();
        let written = self.write(durable).map_err(|error| error.to_string());
        self.report(&written);
        for (ticket, done) in waiting.drain(..) {
            let answer = match &written {
                Ok(()) if self.lost_through.is_some_and(|lost| ticket <= lost) => {
                    Err("the record was lost".to_owned())
                }
                other => other.clone(),
            };
            // The receiver may be gone.
            let _ = done.send(answer);
        }
    }

    fn write(&mut self, durable: bool) -> io::Result<()> {
        if self.chain.is_none() || !self.sink.is_open() {
            self.resume()?;
        }
        if !self.anchored.begun {
            // Before the first byte: bytes after a `Close` without an `Open` prove tampering.
            self.anchor(AnchorReason::Open)?;
        }
        if self.sink.is_full() {
            if self.until_anchor().is_some() {
                self.anchor(AnchorReason::Rotate)?;
            }
            self.sync()?;
            self.sink.rotate()?;
            self.resume()?;
        }
        self.append()?;
        if durable {
            self.sync()?;
        }
        if self.until_anchor().is_some_and(|left| left.is_zero()) {
            self.anchor(AnchorReason::Time)?;
        }
        Ok(())
    }

    /// Finds the end of the log. The newest of file, anchors and memory counts, so that removed records stay detectable.
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
                "records are missing at the end of the audit log; run `portcullis audit verify`"
            );
        }
        let begins_file = found.end.is_none() || found.previous.is_some();
        let previous = (begins_file && end != start).then(|| found.previous.unwrap_or(CURRENT.to_owned()));
        let opening = (previous.is_some() || found.torn.is_some()).then_some((previous, found.torn));
        self.chain = Some(ChainState { key: found.key, end, opening });
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
            let opening = OpeningRecord {
                seq: end.seq + 1,
                time: record::time_text(self.clock.now()),
                phase: if torn.is_some() { "torn" } else { "file" }.to_owned(),
                previous: previous.clone(),
                previous_mac: previous.as_ref().map(|_| end.mac),
                torn: torn.clone(),
            };
            end = chain.key.add(end, lines, |_, lines| record::write_object(&opening, lines));
        }
        for record in &self.buffered {
            let times = &mut self.times;
            end = chain.key.add(end, lines, |seq, lines| record.write(seq, &chain.key, times, lines));
        }
        if self.lost > 0 {
            let lost = self.lost;
            let gap = |seq, lines: &mut Vec<u8>| {
                record::write_object(&GapRecord { seq, phase: "gap", lost }, lines)
            };
            end = chain.key.add(end, lines, gap);
        }
        if !lines.is_empty() {
            self.sink.append(lines)?;
            self.buffered.clear();
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

    /// Returns the time until the next anchor is due; `None` if there is nothing to anchor.
    fn until_anchor(&self) -> Option<Duration> {
        let end = self.chain.as_ref()?.end;
        (end.seq > self.anchored.seq).then(|| ANCHOR_EVERY.saturating_sub(self.anchored.at.elapsed()))
    }

    /// Writes an anchor. Syncs first: otherwise a power failure would look like a truncation.
    fn anchor(&mut self, why: AnchorReason) -> io::Result<()> {
        self.sync()?;
        let Some(chain) = &self.chain else { return Ok(()) };
        let ChainLink { seq, mac } = chain.end;
        let time = record::time_text(self.clock.now());
        self.sink.anchor(&Anchor { time, file: CURRENT.to_owned(), seq, mac, why })?;
        self.anchored = AnchorProgress { seq, at: Instant::now(), begun: true };
        Ok(())
    }

    /// Updates the health; logs only changes.
    fn report(&self, written: &Result<(), String>) {
        let before = self.shared.failure.load();
        match (written, before.as_deref()) {
            (Ok(()), None) => {}
            (Ok(()), Some(_)) => {
                tracing::warn!("audit log is writable again");
                self.shared.failure.store(None);
            }
            (Err(reason), before) if before != Some(reason) => {
                tracing::error!(%reason, "audit log is not writable; calls with side effects are refused");
                self.shared.failure.store(Some(Arc::new(reason.clone())));
            }
            (Err(_), _) => {}
        }
    }

    fn finish(&mut self) {
        let lost = self.lost + self.buffered.len() as u64;
        if lost > 0 {
            tracing::error!(lost, "audit records not written before shutdown");
        }
        if let Err(error) = self.anchor(AnchorReason::Close) {
            tracing::error!(%error, "end of the audit log may not be durable");
        }
    }
}
