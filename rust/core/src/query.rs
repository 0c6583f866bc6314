//! Composes the answer to a query: header lines, scan, line writer.
//!
//! Takes a snapshot or a range of versions and the options of a request. Returns a [`FileLines`] or [`ChangeLines`],
//! which [`crate::stream`] turns into chunks.

pub mod changes;
pub mod files;
#[cfg(test)]
#[cfg(target_os = "linux")]
mod memory_tests;

use std::sync::Arc;

use self::changes::{ChangeCursor, ChangeLines, ChangeOptions};
use self::files::FileLines;
use crate::Result;
use crate::actions::Metadata;
use crate::changes::Changes;
use crate::ndjson::{
    IdScheme, LineWriter, MetadataFacts, ResponseFormat, Stamp, append_metadata, append_protocol,
};
use crate::pool::Pool;
use crate::predicate::{Hints, Predicate, Rule};
use crate::scan::{Cursor, Scan, ScanOptions};
use crate::sign::SignerSet;
use crate::snapshot::Snapshot;
use crate::stop::Stop;
use crate::table::Table;

/// Maximum bytes that one stream holds ahead of its consumer: decoded batches, their pages, and chunks. Added to it
/// are one page of each current column if larger than the usual 1 MiB, as writers choose page sizes and pages are
/// decoded whole, and the line of a single file.
pub const STREAM_BYTES: usize = 64 << 20;

/// Answers from memory with at most this number of files are made on the calling thread: about 30 µs of work.
const FILES_OF_SMALL_TABLE: u64 = 64;

/// The most statistics that are parsed there, for hints: a few milliseconds of work. The usual 64 files have a third.
const STATS_BYTES_OF_SMALL_TABLE: usize = 512 << 10;

/// The format of the lines of an answer.
#[derive(Debug, Clone, Copy)]
pub struct LineOptions {
    /// The response format.
    pub format: ResponseFormat,
    /// The scheme of file ids.
    pub ids: IdScheme,
    /// The clock of all URLs, milliseconds since the epoch.
    pub now_ms: i64,
    /// The configured lifetime of URLs.
    pub lifetime_seconds: i64,
    /// Whether the reader may read the table's history, and so its change data feed.
    pub history_shared: bool,
}

impl LineOptions {
    /// Creates a writer for the lines of one stream.
    pub fn writer(self, signers: &SignerSet) -> Result<LineWriter> {
        let urls = signers.stream(self.now_ms, self.lifetime_seconds)?;
        Ok(LineWriter::new(self.format, self.ids, urls))
    }
}

/// The options of a snapshot query.
#[derive(Debug, Clone, Default)]
pub struct FilesRequest {
    /// The rule of the grant.
    pub rule: Option<Arc<Rule>>,
    /// Predicates.
    pub hints: Hints,
    /// Number of rows that suffice.
    pub limit_hint: Option<u64>,
    /// Maximum number of files of a page.
    pub max_files: Option<u64>,
    /// The end of the previous page.
    pub after: Option<Cursor>,
    /// Whether lines name the version and its timestamp.
    pub with_version: bool,
    /// As [`MetadataFacts::access`].
    pub access: Arc<str>,
    /// Ends the work before the stream.
    pub stop: Stop,
}

/// The options of the first two lines.
#[derive(Debug, Clone, Copy)]
pub struct HeaderOptions<'text> {
    /// The response format.
    pub format: ResponseFormat,
    /// Whether the metadata names its version.
    pub with_version: bool,
    /// Whether the reader may read the table's history. Otherwise the change data feed is not announced.
    pub history_shared: bool,
    /// As [`MetadataFacts::access`].
    pub access: &'text str,
    /// The rule of the grant: the totals count its files.
    pub rule: Option<&'text Arc<Rule>>,
}

/// Writes the first two lines, which are equal for every request of a version by one rule. Reads paths and sizes from
/// the log if the totals are not known.
pub fn header(
    table: &Table,
    snapshot: &Snapshot,
    options: HeaderOptions<'_>,
    stop: &Stop,
) -> Result<Vec<u8>> {
    let mut head = Vec::new();
    append_protocol(options.format, snapshot.protocol(), None, &mut head);
    append_metadata_of(table, snapshot, options, stop, &mut head)?;
    Ok(head)
}

fn append_metadata_of(
    table: &Table,
    snapshot: &Snapshot,
    options: HeaderOptions<'_>,
    stop: &Stop,
    out: &mut Vec<u8>,
) -> Result<()> {
    let rule = table.bound_rule(options.rule, snapshot)?;
    let facts = MetadataFacts {
        change_data_feed: options.history_shared && snapshot.change_data_feed(),
        version: options.with_version.then(|| snapshot.version()),
        totals: Some(table.totals_within(snapshot, rule.as_ref(), stop)?),
        access: options.access,
    };
    append_metadata(options.format, snapshot.metadata(), facts, out)
}

/// Prepares the whole answer to a query for changes except its last line. `from` is the end of the previous page.
///
/// The metadata before the files belongs to [`Changes::heading_version`]. A client of historical protocols replays
/// them, so the first protocol belongs to the first version.
pub fn changes(
    table: &Table,
    changes: &Changes,
    from: Option<ChangeCursor>,
    mut options: ChangeOptions,
    signers: &SignerSet,
    lines: LineOptions,
    stop: &Stop,
) -> Result<ChangeLines> {
    // The parquet format has one fixed protocol.
    options.include_historical_protocol &= lines.format == ResponseFormat::Delta;
    let first = changes.head();
    let heading = changes.heading();
    let with_version = options.include_historical_metadata || lines.format == ResponseFormat::Delta;
    let mut head = Vec::new();
    if options.include_historical_protocol {
        append_protocol(lines.format, first.protocol(), Some(first.version()), &mut head);
    } else {
        append_protocol(lines.format, heading.protocol(), None, &mut head);
    }
    let header = HeaderOptions {
        format: lines.format,
        with_version,
        history_shared: true,
        access: &options.access,
        rule: options.rule.as_ref().map(|named| &named.rule),
    };
    append_metadata_of(table, heading, header, stop, &mut head)?;
    // The versions of the range are bound again, each by its own metadata.
    options.rule.as_ref().map(|rule| rule.bind(first.metadata())).transpose()?;
    let from = from.unwrap_or(ChangeCursor { version: changes.starting_version(), skip: 0 });
    let batches = changes.batches(from.version)?;
    // The lines of the parquet format require all fields, and a rule the partition values.
    let needs_all = lines.format == ResponseFormat::Parquet || options.rule.is_some();
    let batches = if needs_all { batches.with_complete_removes(stop) } else { batches };
    Ok(ChangeLines::new(head, heading.metadata(), batches, from, options, lines.writer(signers)?))
}

/// Returns whether to make the answer to a snapshot query on the calling thread: its files are few and in memory, hints
/// need few statistics, and no URL is signed by a request.
#[must_use]
pub fn is_made_inline(
    table: &Table,
    snapshot: &Snapshot,
    request: &FilesRequest,
    signers: &SignerSet,
) -> bool {
    let is_small = snapshot.known_totals().is_some_and(|totals| totals.files <= FILES_OF_SMALL_TABLE);
    let parses_stats = request.hints != Hints::default() || request.limit_hint.is_some();
    is_small
        && table.is_in_memory(snapshot, None)
        && (!parses_stats || table.file_bytes(snapshot) <= STATS_BYTES_OF_SMALL_TABLE)
        && !signers.sends_requests()
}

/// Binds the hints of a query to what its client reads.
fn predicate(metadata: &Metadata, hints: &Hints, format: ResponseFormat) -> Predicate {
    let (predicate, _) = Predicate::of_table(metadata, hints);
    match format {
        ResponseFormat::Parquet => predicate.on_local_partition_times(),
        ResponseFormat::Delta => predicate,
    }
}

/// Prepares the whole answer to a snapshot query except its last line.
pub fn files(
    table: &Table,
    snapshot: &Arc<Snapshot>,
    request: &FilesRequest,
    signers: &SignerSet,
    lines: LineOptions,
    pool: &Pool,
) -> Result<FileLines> {
    if request.max_files.is_some() {
        table.remember(snapshot);
    }
    let header_options = HeaderOptions {
        format: lines.format,
        with_version: request.with_version,
        history_shared: lines.history_shared,
        access: &request.access,
        rule: request.rule.as_ref(),
    };
    let head =
        header(table, snapshot, header_options, &request.stop).map_err(|error| match request.after {
            Some(_) => snapshot.explain_missing(error),
            None => error,
        })?;
    let predicate = predicate(snapshot.metadata(), &request.hints, lines.format);
    let rule = table.bound_rule(request.rule.as_ref(), snapshot)?;
    let totals = snapshot.known_totals_within(rule.as_ref());
    let options = ScanOptions {
        rule,
        predicate: Arc::new(predicate),
        limit_hint: request.limit_hint,
        max_files: request.max_files,
        after: request.after,
        delta_fields: lines.format == ResponseFormat::Delta,
    };
    snapshot.check_totals()?;
    let is_whole = options.reads_all();
    let mut scan = Scan::new(Arc::clone(snapshot), table.column_cache(snapshot), options)?;
    scan.prepare(pool);
    if !is_whole {
        scan.record_miss()?;
    }
    let mut writer = lines.writer(signers)?;
    if lines.format == ResponseFormat::Parquet {
        writer.set_timestamps(snapshot.partition_timestamps().cloned());
    }
    if request.with_version {
        let stamp = Stamp { version: snapshot.version(), timestamp_ms: snapshot.timestamp_ms()? };
        writer.set_action(crate::ndjson::FileAction::Live, Some(stamp));
    }
    Ok(FileLines::new(head, scan, writer, totals.filter(|_| is_whole)))
}
