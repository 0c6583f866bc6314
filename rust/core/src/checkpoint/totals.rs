//! The number and total size of the files of a checkpoint, from one pass over as few columns as possible.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow_array::RecordBatch;

use super::adds::Adds;
use super::json_file::JsonPieces;
use super::kept_rows::RowNumbers;
use super::parquet::file::{ParquetFile, has_values};
use super::{Checkpoint, Part};
use crate::actions::{DeletionVectorDescriptor, SourceId, Totals};
use crate::partition::PartitionInterner;
use crate::stop::Stop;
use crate::storage::StoredFile;
use crate::{Error, Result};

/// The reason for an error on a file whose sizes exceed those of any table.
pub(crate) fn sizes_overflow(name: &str) -> Error {
    Error::corrupt(name, "the sum of the files' sizes overflows")
}

/// Whether a newer reference to a file, by its path and deletion vector, makes an add dead.
pub type IsDead<'a> = &'a (dyn Fn(&str, Option<&DeletionVectorDescriptor>) -> bool + Sync);

impl Checkpoint {
    /// Sums up the live adds on `threads` threads of its own, until `stop`.
    ///
    /// Without `is_dead` every add is live, and only the sizes are read.
    pub fn totals(&self, is_dead: Option<IsDead<'_>>, threads: usize, stop: &Stop) -> Result<Totals> {
        let threads = threads.max(1);
        let parts = self.parts.len().max(1);
        // Many parts occupy all threads; few parts are divided.
        let slices = if parts >= 2 * threads { 1 } else { (2 * threads).div_ceil(parts) };
        let next = AtomicUsize::new(0);
        let work = || {
            let mut totals = Totals::default();
            loop {
                let task = next.fetch_add(1, Ordering::Relaxed);
                let Some(part) = self.parts.get(task / slices) else { return Ok(totals) };
                let slice = Slice { number: task % slices, of: slices };
                let sums = self.part_totals(part, slice, is_dead, stop).inspect_err(|_| {
                    // The other threads stop after their current piece.
                    next.store(usize::MAX / 2, Ordering::Relaxed);
                })?;
                totals = totals.plus(sums).ok_or_else(|| sizes_overflow(&part.name))?;
            }
        };
        let sums: Vec<Result<Totals>> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            let panicked =
                |_| Err(Error::Internal { detail: "a thread that sums up a checkpoint panicked".into() });
            workers.into_iter().map(|worker| worker.join().unwrap_or_else(panicked)).collect()
        });
        let mut totals = Totals::default();
        for sums in sums {
            totals = totals.plus(sums?).ok_or_else(|| sizes_overflow("checkpoint"))?;
        }
        Ok(totals)
    }

    fn part_totals(
        &self,
        part: &Part,
        slice: Slice,
        is_dead: Option<IsDead<'_>>,
        stop: &Stop,
    ) -> Result<Totals> {
        stop.check()?;
        if part.is_json {
            // Read whole or not at all.
            let is_first = slice.number == 0;
            return if is_first { self.json_totals(part, is_dead, stop) } else { Ok(Totals::default()) };
        }
        let file = part.open(&self.storage)?;
        let fields: &[&str] = if is_dead.is_some() { &["path", "size", "deletionVector"] } else { &["size"] };
        let leaves = file.leaves(|path| match path {
            [add, field, ..] => add == "add" && fields.contains(&field.as_str()),
            _ => false,
        });
        let rows = file.row_groups().iter().map(|row_group| row_group.num_rows() as u32).sum();
        let wanted = slice.of_rows(rows);
        let mut totals = Totals::default();
        let mut first_row = 0;
        for (index, row_group) in file.row_groups().iter().enumerate() {
            let all = first_row..first_row + row_group.num_rows() as u32;
            first_row = all.end;
            let wanted = all.start.max(wanted.start)..all.end.min(wanted.end);
            let leaves: Vec<_> = leaves.iter().copied().filter(|leaf| has_values(row_group, *leaf)).collect();
            if wanted.is_empty() || leaves.is_empty() {
                continue;
            }
            let projection = file.project(&leaves)?;
            let selection = RowNumbers::Range(wanted).selection(&all);
            for batch in file.read(index, &projection, file.batch_rows(index, &leaves), selection)? {
                stop.check()?;
                let sums = batch_totals(&file, &batch?, is_dead)?;
                totals = totals.plus(sums).ok_or_else(|| sizes_overflow(&part.name))?;
            }
        }
        Ok(totals)
    }

    fn json_totals(&self, part: &Part, is_dead: Option<IsDead<'_>>, stop: &Stop) -> Result<Totals> {
        let mut interner = PartitionInterner::new::<&str>(&[]);
        let mut totals = Totals::default();
        for piece in JsonPieces::open(&self.storage, part)? {
            stop.check()?;
            let batch = piece?.parse()?.adds.batch(SourceId::default(), &part.name, &mut interner)?;
            let is_live = |file: &usize| {
                is_dead
                    .is_none_or(|is_dead| !is_dead(batch.path.value(*file), batch.deletion_vector_at(*file)))
            };
            let sums = sum((0..batch.len()).filter(is_live).map(|file| batch.size[file]));
            totals = sums.and_then(|sums| totals.plus(sums)).ok_or_else(|| sizes_overflow(&part.name))?;
        }
        Ok(totals)
    }
}

/// One of several pieces of equal length.
#[derive(Clone, Copy)]
struct Slice {
    number: usize,
    of: usize,
}

impl Slice {
    fn of_rows(self, rows: u32) -> Range<u32> {
        let cut = |number: usize| (u64::from(rows) * number as u64 / self.of as u64) as u32;
        cut(self.number)..cut(self.number + 1)
    }
}

fn batch_totals(
    file: &ParquetFile<StoredFile>,
    batch: &RecordBatch,
    is_dead: Option<IsDead<'_>>,
) -> Result<Totals> {
    let adds = Adds::new(file.name(), batch)?;
    let sizes = adds.sizes()?;
    let overflow = || sizes_overflow(file.name());
    let Some(is_dead) = is_dead else { return sum(sizes.into_iter()).ok_or_else(overflow) };
    let paths = adds.required_strings("path")?;
    let vectors = adds.deletion_vectors()?;
    let vector = |file: usize| vectors.as_ref()?.get(file)?.as_deref();
    let live = (0..sizes.len()).filter(|file| !is_dead(paths.value(*file), vector(*file)));
    sum(live.map(|file| sizes[file])).ok_or_else(overflow)
}

fn sum(sizes: impl Iterator<Item = i64>) -> Option<Totals> {
    sizes.into_iter().try_fold(Totals::default(), |totals, size| {
        totals.plus(Totals { files: 1, size_bytes: u64::try_from(size).ok()? })
    })
}
