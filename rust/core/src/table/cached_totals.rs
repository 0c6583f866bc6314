//! The number and total size of a version's files, from cached columns.

use crate::Result;
use crate::actions::Totals;
use crate::checkpoint::Sizes;
use crate::column_cache::{CachedColumns, DamagedBatch};
use crate::snapshot::Snapshot;
use crate::stop::Stop;

/// Sums up the live files; `None` if a batch of the columns is damaged.
pub(super) fn cached_totals(
    snapshot: &Snapshot,
    columns: &CachedColumns,
    stop: &Stop,
) -> Result<Option<Totals>> {
    let mut totals = Totals::default();
    for (batch, live) in snapshot.commit_batches() {
        totals.add(batch, live);
    }
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

/// Sums up the files of a checkpoint that the commits supersede, as [`Snapshot::totals`] does: only files with a size
/// that the commits state are candidates, so of most batches of a file no more than the sizes are verified. Returns
/// `None` if the commits do not state all sizes, or if a file that they only remove is not found.
fn dead_totals(snapshot: &Snapshot, columns: &CachedColumns, stop: &Stop) -> Result<Option<Totals>> {
    let seen = snapshot.seen();
    let Some(sizes) = seen.sizes() else { return Ok(None) };
    let sizes = Sizes::new(&sizes);
    let mut found = vec![false; seen.len()];
    let mut totals = Totals::default();
    for index in 0..columns.len() {
        stop.check()?;
        let Ok(candidates) = candidates(columns, index, &sizes) else { return Ok(None) };
        if candidates.is_empty() {
            continue;
        }
        let Ok(Some(batch)) = columns.batch(index) else { return Ok(None) };
        let files = &batch.files;
        let dead = candidates.into_iter().filter(|row| {
            let file = *row as usize;
            let position = seen.position(files.path.value(file), files.deletion_vector_at(file));
            position.inspect(|position| found[*position] = true).is_some()
        });
        totals.add(files, &dead.collect::<Vec<_>>());
    }
    Ok(seen.older_files().all(|position| found[position]).then_some(totals))
}

/// Returns the rows of a batch whose size is one of `sizes`.
fn candidates(columns: &CachedColumns, index: usize, sizes: &Sizes<'_>) -> Result<Vec<u32>, DamagedBatch> {
    let found = columns.sizes(index)?;
    let rows = found.iter().zip(0..).filter(|(size, _)| sizes.contains(**size));
    Ok(rows.map(|(_, row)| row).collect())
}
