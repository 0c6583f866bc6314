//! The number and total size of a version's files, from cached columns.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::Result;
use crate::actions::Totals;
use crate::checkpoint::Sizes;
use crate::column_cache::CachedColumns;
use crate::predicate::{BoundRule, RuleVerdicts};
use crate::snapshot::{Snapshot, live_totals, sum_within};
use crate::stop::Stop;

/// Batches that a thread sums up at a time.
const PIECE_BATCHES: usize = 16;
/// Files of small columns, whose paths are compared in milliseconds.
const SMALL_FILES: u64 = if cfg!(test) { 50 } else { 50_000 };

/// Sums up the live files; `None` if a batch of the columns is damaged.
pub(super) fn cached_totals(
    snapshot: &Snapshot,
    columns: &CachedColumns,
    stop: &Stop,
) -> Result<Option<Totals>> {
    let mut totals = live_totals(snapshot.commit_batches());
    if let Some(all) = columns.known_totals() {
        if snapshot.seen().is_empty() {
            return Ok(totals.plus(all));
        }
        if let Some(dead) = dead_totals(snapshot, columns, stop)? {
            return Ok(totals.plus(all.minus(dead)));
        }
    }
    for index in 0..columns.len() {
        stop.check()?;
        let Ok(Some(batch)) = columns.batch(index) else { return Ok(None) };
        totals.add(&batch.files, &batch.live_rows(snapshot.seen()));
    }
    Ok(Some(totals))
}

/// Sums up the live files within a rule; `None` if a batch of the columns is damaged.
pub(super) fn cached_totals_within(
    snapshot: &Snapshot,
    columns: &CachedColumns,
    rule: &BoundRule,
    stop: &Stop,
) -> Result<Option<Totals>> {
    let of_commits = snapshot.commit_totals_within(rule, &mut RuleVerdicts::default())?;
    let is_damaged = AtomicBool::new(false);
    let pieces: Vec<_> = (0..columns.len()).step_by(PIECE_BATCHES).collect();
    let of_columns = sum_within(pieces.into_iter(), snapshot.sum_threads(), |first, verdicts| {
        let mut totals = Totals::default();
        for index in first..columns.len().min(first + PIECE_BATCHES) {
            stop.check()?;
            let Ok(Some(batch)) = columns.batch(index) else {
                is_damaged.store(true, Ordering::Relaxed);
                return Ok(totals);
            };
            let live = batch.live_rows(snapshot.seen());
            totals.add(&batch.files, &rule.select(&batch.files.partitions, live, verdicts)?);
        }
        Ok(totals)
    })?;
    Ok(if is_damaged.into_inner() { None } else { of_commits.plus(of_columns) })
}

/// Sums up the files of a checkpoint that the commits supersede, as [`Snapshot::totals`] does: of many files, only those
/// with a size that the commits state are candidates. Of a batch of a file no more than sizes and paths are verified.
/// Returns `None` if a file that the commits only remove has another size.
fn dead_totals(snapshot: &Snapshot, columns: &CachedColumns, stop: &Stop) -> Result<Option<Totals>> {
    let seen = snapshot.seen();
    let sizes = snapshot.counted_sizes(columns.files() > SMALL_FILES);
    let sizes = sizes.as_deref().map(Sizes::new);
    let is_candidate = |size: i64| sizes.as_ref().is_none_or(|sizes| sizes.contains(size));
    let mut is_seen = vec![false; seen.len()];
    let mut totals = Totals::default();
    for index in 0..columns.len() {
        stop.check()?;
        let Ok(of_batch) = columns.sizes(index) else { return Ok(None) };
        let rows = of_batch.iter().zip(0..).filter(|(size, _)| is_candidate(**size));
        let candidates: Vec<u32> = rows.map(|(_, row)| row).collect();
        if candidates.is_empty() {
            continue;
        }
        let mut dead = Totals::default();
        let visited = columns.for_each_key(index, &candidates, |row, path, vector| {
            if let Some(position) = seen.position(path, vector) {
                is_seen[position] = true;
                dead.files += 1;
                let size = u64::try_from(of_batch[row as usize]).unwrap_or(0);
                dead.size_bytes = dead.size_bytes.saturating_add(size);
            }
        });
        let (Ok(()), Some(sum)) = (visited, totals.plus(dead)) else { return Ok(None) };
        totals = sum;
    }
    if sizes.is_none() {
        return Ok(Some(totals));
    }
    let is_right = seen.older_files().all(|position| is_seen[position]);
    if is_right {
        snapshot.set_counted_by_sizes();
    }
    Ok(is_right.then_some(totals))
}
