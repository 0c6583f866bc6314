//! The lines of a snapshot query as work items: the header lines, then one line per file of a scan.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::Result;
use crate::actions::{RowIndices, Totals};
use crate::column_cache::CachedBatch;
use crate::lock::lock;
use crate::ndjson::{LineCounts, LineWriter};
use crate::scan::{Outcome, Precount, Scan, ScanStep, Selected};
use crate::stop::Stop;
use crate::stream::{LineSource, Turn};

/// Files of the first chunk, which is small so that the first byte is early.
const FIRST_CHUNK_FILES: usize = 64;
/// Files of a chunk, about 220 KB of lines with statistics.
const CHUNK_FILES: usize = 256;
/// Maximum bytes of the lines of a chunk with more than one file: see [`crate::actions::FileBatch::line_bytes`].
pub(super) const CHUNK_BYTES: usize = 256 << 10;
/// Maximum batches per turn if few of their files are selected. Decoding and evaluating them costs about as much as
/// writing a few chunks.
const BATCHES_A_TURN: usize = 4;
/// Maximum delay of the first byte for the counts in the header of the answer. A predicate over the cached columns
/// of a million files is evaluated by then.
const PRECOUNT_TIME: Duration = Duration::from_millis(50);

/// Divides a scan into chunks.
#[derive(Debug)]
pub struct FileLines {
    head: Option<Vec<u8>>,
    scan: Scan,
    precount: Option<Precount>,
    /// Whether the precount was made, which happens once.
    has_precounted: bool,
    /// Files for the next chunk, and the number of files it still needs.
    collected: Vec<BatchRows>,
    wanted: usize,
    /// Bytes of lines that the next chunk still needs.
    wanted_bytes: usize,
    /// Remaining files of the last batch, and the number of its returned rows.
    rest: Option<(Selected, usize)>,
    writers: Writers,
    /// The files that the head counts, if all of them follow.
    totals: Option<Totals>,
}

impl FileLines {
    /// `head` is written before the first file; `writer` is prepared for the stream's format and signer. `totals` are
    /// those of the head, if all files follow.
    #[must_use]
    pub fn new(head: Vec<u8>, scan: Scan, writer: LineWriter, totals: Option<Totals>) -> Self {
        Self {
            head: Some(head),
            totals,
            scan,
            precount: None,
            has_precounted: false,
            collected: Vec::new(),
            wanted: FIRST_CHUNK_FILES,
            wanted_bytes: CHUNK_BYTES,
            rest: None,
            writers: Writers::new(writer),
        }
    }

    /// Collects files until there are enough for a chunk, or none are left. Returns false if another turn is needed.
    fn collect_files(&mut self) -> Result<bool> {
        let mut batches = BATCHES_A_TURN;
        while self.wanted > 0 && self.wanted_bytes > 0 {
            let (selected, begin) = match self.rest.take() {
                Some(rest) => rest,
                None => match self.scan.step(&mut batches)? {
                    ScanStep::Files(selected) => (selected, 0),
                    ScanStep::Pending => return Ok(false),
                    ScanStep::End => break,
                },
            };
            let files = &selected.batch.files;
            let rows =
                files.first_lines(&selected.rows[begin..], &mut self.wanted, &mut self.wanted_bytes).to_vec();
            let (end, of_files) = (begin + rows.len(), selected.rows.len());
            self.collected.push(BatchRows { batch: Arc::clone(&selected.batch), rows, of_files });
            if end < selected.rows.len() {
                self.rest = Some((selected, end));
                break;
            }
        }
        Ok(true)
    }
}

/// Files of one batch for a chunk.
#[derive(Debug)]
struct BatchRows {
    batch: Arc<CachedBatch>,
    rows: RowIndices,
    /// Number of files of the batch that the scan selected.
    of_files: usize,
}

impl BatchRows {
    fn write(&self, writer: &mut LineWriter, out: &mut Vec<u8>) -> Result<LineCounts> {
        let ids = self.batch.ids(writer.id_scheme(), self.of_files);
        writer.write_with_ids(&self.batch.files, ids, &self.rows, out)
    }
}

impl LineSource for FileLines {
    fn next_turn(&mut self) -> Result<Turn> {
        if !std::mem::replace(&mut self.has_precounted, true) {
            self.precount = self.scan.precount(Instant::now() + PRECOUNT_TIME)?;
            if let Some(precount) = &self.precount {
                self.writers.check_files(precount.files)?;
            }
        }
        if !self.collect_files()? {
            return Ok(Turn::Pending);
        }
        (self.wanted, self.wanted_bytes) = (CHUNK_FILES, CHUNK_BYTES);
        let (head, files) = (self.head.take(), std::mem::take(&mut self.collected));
        Ok(self.writers.turn(head, files, BatchRows::write))
    }

    fn precount(&mut self) -> Option<Precount> {
        self.precount.take()
    }

    fn totals(&self) -> Option<Totals> {
        self.totals
    }

    fn outcome(&self) -> Outcome {
        self.scan.outcome()
    }

    fn stop(&self) -> Option<Stop> {
        self.writers.stop()
    }
}

/// Line writers of one stream, one for each thread that works on it.
#[derive(Debug, Clone)]
pub(crate) struct Writers(Arc<(LineWriter, Mutex<Vec<LineWriter>>)>);

impl Writers {
    pub(crate) fn new(writer: LineWriter) -> Self {
        Self(Arc::new((writer, Mutex::default())))
    }

    /// Returns an error if the URLs of an answer of `files` cannot be signed.
    fn check_files(&self, files: u64) -> Result<()> {
        self.0.0.check_files(files)
    }

    /// Returns the stop of the requests of a service that signs.
    pub(crate) fn stop(&self) -> Option<Stop> {
        self.0.0.stop()
    }

    /// Returns the turn that writes `pieces` behind the head of the answer; the end without either.
    pub(crate) fn turn<P: Send + 'static>(
        &self,
        head: Option<Vec<u8>>,
        pieces: Vec<P>,
        write: fn(&P, &mut LineWriter, &mut Vec<u8>) -> Result<LineCounts>,
    ) -> Turn {
        if head.is_none() && pieces.is_empty() {
            return Turn::End;
        }
        let writers = self.clone();
        Turn::Lines(Box::new(move |out| {
            out.extend_from_slice(&head.unwrap_or_default());
            writers.with(out, |writer, out| {
                pieces.iter().try_fold(LineCounts::default(), |counts, piece| {
                    Ok(counts.plus(write(piece, writer, out)?))
                })
            })
        }))
    }

    /// Writes the lines of one chunk to the end of `out`.
    pub(crate) fn with<T>(
        &self,
        out: &mut Vec<u8>,
        work: impl FnOnce(&mut LineWriter, &mut Vec<u8>) -> Result<T>,
    ) -> Result<T> {
        let (prepared, idle) = &*self.0;
        let spare = lock(idle).pop();
        let mut writer = spare.unwrap_or_else(|| prepared.clone());
        let done = work(&mut writer, out)?;
        writer.finish(out)?;
        lock(idle).push(writer);
        Ok(done)
    }
}
