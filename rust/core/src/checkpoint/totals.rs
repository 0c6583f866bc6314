//! The number and total size of the files of a checkpoint, from one pass over as few columns as possible.
//!
//! A sum over all adds reads the sizes alone. If newer commits supersede some of them, the paths decide, which cost far
//! more. A data file never changes, so only adds with the size of a superseded file can be superseded: with these sizes
//! the pass reads the paths of such adds only.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use arrow_array::{Array, RecordBatch};

use super::adds::Adds;
use super::kept_rows::RowNumbers;
use super::parquet::calendar::Calendar;
use super::parquet::file::{ParquetFile, has_values};
use super::shared_file::SharedFile;
use super::{Checkpoint, Part, PartReaders, REQUIRED_FIELDS, ReadOptions};
use crate::actions::{DeletionVectorDescriptor, Totals};
use crate::partition::PartitionInterner;
use crate::stop::Stop;
use crate::{Error, Result};

/// The reason for an error on a file whose sizes exceed any possible table.
pub(crate) fn sizes_overflow(name: &str) -> Error {
    Error::corrupt(name, "the sum of the files' sizes overflows")
}

/// Whether a newer reference to a file, by its path and deletion vector, makes an add dead.
pub type IsDead<'a> = &'a (dyn Fn(&str, Option<&DeletionVectorDescriptor>) -> bool + Sync);

/// The sums of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sums {
    /// Of the live files.
    pub live: Totals,
    /// The number of adds, of dead files too.
    pub adds: u64,
}

/// The adds that are not summed up.
#[derive(Clone, Copy)]
enum Dead<'a> {
    None,
    /// Those for which the function returns true.
    Probed(IsDead<'a>),
    /// The same, and every dead add has one of the sizes.
    Sized(IsDead<'a>, &'a Sizes<'a>),
}

impl Checkpoint {
    /// Sums up the live adds on `threads` threads of its own, until `stop`.
    ///
    /// Without `is_dead` every add is live, and only the sizes are read.
    pub fn totals(&self, is_dead: Option<IsDead<'_>>, threads: usize, stop: &Stop) -> Result<Sums> {
        self.sum_up(is_dead.map_or(Dead::None, Dead::Probed), threads, stop)
    }

    /// As [`Self::totals`], if the size of every dead add is one of `sizes`, which are ascending. Calls `is_dead` for
    /// adds of these sizes only.
    pub fn totals_without(
        &self,
        is_dead: IsDead<'_>,
        sizes: &[i64],
        threads: usize,
        stop: &Stop,
    ) -> Result<Sums> {
        self.sum_up(Dead::Sized(is_dead, &Sizes::new(sizes)), threads, stop)
    }

    fn sum_up(&self, dead: Dead<'_>, threads: usize, stop: &Stop) -> Result<Sums> {
        let threads = threads.max(1);
        let parts = self.parts.len().max(1);
        // Many parts occupy all threads; few parts are divided.
        let slices = if parts >= 2 * threads { 1 } else { (2 * threads).div_ceil(parts) };
        // The slices of a part share its footer.
        let shared: Vec<SharedFile> = self.parts.iter().map(|_| SharedFile::default()).collect();
        let (next, adds) = (AtomicUsize::new(0), AtomicU64::new(0));
        let work = || {
            let mut totals = Totals::default();
            loop {
                let task = next.fetch_add(1, Ordering::Relaxed);
                let index = task / slices;
                let Some((part, shared)) = self.parts.get(index).zip(shared.get(index)) else {
                    return Ok(totals);
                };
                let slice = Slice { number: task % slices, of: slices };
                let sums = self.part_totals(part, shared, slice, (dead, &adds), stop).inspect_err(|_| {
                    // The other threads stop after their current piece.
                    next.store(usize::MAX / 2, Ordering::Relaxed);
                })?;
                totals = totals.plus(sums).ok_or_else(|| sizes_overflow(&part.name))?;
            }
        };
        Ok(Sums { live: sum_on_threads(threads, work)?, adds: adds.into_inner() })
    }

    fn part_totals(
        &self,
        part: &Part,
        shared: &SharedFile,
        slice: Slice,
        (dead, adds): (Dead<'_>, &AtomicU64),
        stop: &Stop,
    ) -> Result<Totals> {
        stop.check()?;
        if part.is_json || !part.repeated.is_empty() {
            // Read whole or not at all.
            let is_first = slice.number == 0;
            let is_dead = match dead {
                Dead::None => None,
                Dead::Probed(is_dead) | Dead::Sized(is_dead, _) => Some(is_dead),
            };
            return if is_first {
                self.batch_totals(part, is_dead, adds, stop)
            } else {
                Ok(Totals::default())
            };
        }
        let open = || part.open_apart(&self.storage);
        // A part that is read whole is closed when it is summed up.
        let file = if slice.of == 1 { open()? } else { shared.get(open)? };
        let sums = PartSums { file, dead, adds, stop };
        let rows: Vec<u32> = sums.file.row_groups().iter().map(|group| group.num_rows() as u32).collect();
        sums.of_rows(&slice.of_row_groups(&rows))
    }

    fn batch_totals(
        &self,
        part: &Part,
        is_dead: Option<IsDead<'_>>,
        adds: &AtomicU64,
        stop: &Stop,
    ) -> Result<Totals> {
        let interner = PartitionInterner::new::<&str>(&[]);
        let (parts, options) = ([part.clone()].into(), ReadOptions::default());
        let mut totals = Totals::default();
        for batch in PartReaders::new(self.storage.clone(), parts, interner, options).flatten() {
            stop.check()?;
            let batch = batch?;
            adds.fetch_add(batch.len() as u64, Ordering::Relaxed);
            let is_live = |file: &usize| {
                is_dead
                    .is_none_or(|is_dead| !is_dead(batch.path.value(*file), batch.deletion_vector_at(*file)))
            };
            let sizes: Vec<i64> = (0..batch.len()).filter(is_live).map(|file| batch.size[file]).collect();
            let sums = if sizes.iter().any(|size| *size < 0) { None } else { sum(&sizes) };
            totals = sums.and_then(|sums| totals.plus(sums)).ok_or_else(|| sizes_overflow(&part.name))?;
        }
        Ok(totals)
    }
}

/// Adds up what `work` returns on each of `threads` threads.
pub(crate) fn sum_on_threads(threads: usize, work: impl Fn() -> Result<Totals> + Sync) -> Result<Totals> {
    let sums: Vec<Result<Totals>> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(&work)).collect();
        let panicked = |_| Err(Error::Internal { detail: "a thread that sums up files panicked".into() });
        workers.into_iter().map(|worker| worker.join().unwrap_or_else(panicked)).collect()
    });
    sums.into_iter()
        .try_fold(Totals::default(), |all, sum| all.plus(sum?).ok_or_else(|| sizes_overflow("checkpoint")))
}

/// One of several pieces of equal length.
#[derive(Clone, Copy)]
struct Slice {
    number: usize,
    of: usize,
}

impl Slice {
    /// Returns the rows of the slice, given the rows of each row group. Row groups are divided only if there are
    /// fewer of them than slices.
    fn of_row_groups(self, row_groups: &[u32]) -> Range<u32> {
        let rows = |count: usize| row_groups.iter().take(count).sum::<u32>();
        let count = row_groups.len();
        let cut = |number: usize| {
            if count >= self.of {
                rows(count * number / self.of)
            } else {
                (u64::from(rows(count)) * number as u64 / self.of as u64) as u32
            }
        };
        cut(self.number)..cut(self.number + 1)
    }
}

/// The sizes of superseded files, and a bit for each value of their hash.
pub(crate) struct Sizes<'a> {
    values: &'a [i64],
    bits: Vec<u64>,
    shift: u32,
}

impl<'a> Sizes<'a> {
    /// Bits for each size: one of as many other sizes passes.
    const BITS_PER_SIZE: usize = 64;

    /// `sizes` are ascending.
    pub(crate) fn new(sizes: &'a [i64]) -> Self {
        let bits = (sizes.len() * Self::BITS_PER_SIZE).next_power_of_two().max(64);
        let mut filter = Self { values: sizes, bits: vec![0; bits / 64], shift: 64 - bits.trailing_zeros() };
        for size in sizes {
            let bit = filter.bit_of(*size);
            filter.bits[bit / 64] |= 1 << (bit % 64);
        }
        filter
    }

    fn bit_of(&self, size: i64) -> usize {
        // Multiplicative hashing: the upper bits depend on all bits of the size.
        ((size as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize
    }

    pub(crate) fn contains(&self, size: i64) -> bool {
        let bit = self.bit_of(size);
        self.bits[bit / 64] >> (bit % 64) & 1 == 1 && self.values.binary_search(&size).is_ok()
    }
}

/// Sums over the rows of one Parquet part.
struct PartSums<'a> {
    file: ParquetFile,
    dead: Dead<'a>,
    /// Counts all adds.
    adds: &'a AtomicU64,
    stop: &'a Stop,
}

impl PartSums<'_> {
    fn of_rows(&self, wanted: &Range<u32>) -> Result<Totals> {
        let fields: &[&str] = match self.dead {
            Dead::Probed(_) => &["path", "size", "deletionVector"],
            Dead::None | Dead::Sized(..) => &["size"],
        };
        let mut totals = Totals::default();
        let mut first_row = 0;
        for (index, row_group) in self.file.row_groups().iter().enumerate() {
            let all = first_row..first_row + row_group.num_rows() as u32;
            first_row = all.end;
            let wanted = all.start.max(wanted.start)..all.end.min(wanted.end);
            if !wanted.is_empty() {
                let sums = self.of_row_group(index, &all, wanted, fields)?;
                totals = totals.plus(sums).ok_or_else(|| self.overflow())?;
            }
        }
        Ok(totals)
    }

    fn of_row_group(
        &self,
        row_group: usize,
        all: &Range<u32>,
        wanted: Range<u32>,
        fields: &[&str],
    ) -> Result<Totals> {
        let mut numbers = RowNumbers::Range(wanted.clone());
        let mut totals = Totals::default();
        let mut suspects = Suspects::default();
        self.read(row_group, all, fields, &numbers.clone(), |batch| {
            let adds = Adds::new(self.file.name(), batch, None, Calendar::default())?;
            let sizes = adds.sizes()?;
            self.adds.fetch_add(sizes.len() as u64, Ordering::Relaxed);
            let sums = match self.dead {
                Dead::None => sum(&sizes),
                Dead::Probed(is_dead) => sum(&live_sizes(&adds, &sizes, is_dead)?),
                Dead::Sized(_, dead_sizes) => {
                    let mut rows = numbers.take(batch.num_rows()).rows;
                    if sizes.iter().any(|size| dead_sizes.contains(*size)) {
                        adds.retain(&mut rows);
                        suspects.collect(&rows, &sizes, dead_sizes);
                    }
                    sum(&sizes)
                }
            };
            totals = sums.and_then(|sums| totals.plus(sums)).ok_or_else(|| self.overflow())?;
            Ok(())
        })?;
        let Dead::Sized(is_dead, _) = self.dead else { return Ok(totals) };
        if suspects.rows.is_empty() {
            return Ok(totals);
        }
        Ok(totals.minus(self.of_dead(row_group, all, wanted, suspects, is_dead)?))
    }

    /// Sums up the dead ones of the suspects.
    fn of_dead(
        &self,
        row_group: usize,
        all: &Range<u32>,
        wanted: Range<u32>,
        suspects: Suspects,
        is_dead: IsDead<'_>,
    ) -> Result<Totals> {
        let mut dead = Totals::default();
        let mut sizes = suspects.sizes.into_iter();
        let mut numbers = RowNumbers::of(suspects.rows, wanted);
        let selected = numbers.clone();
        self.read(row_group, all, &["path", "deletionVector"], &selected, |batch| {
            let taken = numbers.take(batch.num_rows());
            let adds = Adds::new(self.file.name(), batch, taken.kept, Calendar::default())?;
            let paths = adds.required_strings("path")?;
            let sizes: Vec<i64> = sizes.by_ref().take(paths.len()).collect();
            let live = live_sizes(&adds, &sizes, is_dead)?;
            let (all, live) = sum(&sizes).zip(sum(&live)).ok_or_else(|| self.overflow())?;
            dead = dead.plus(all.minus(live)).ok_or_else(|| self.overflow())?;
            Ok(())
        })?;
        Ok(dead)
    }

    /// Reads the fields of `add`, unless the row group has no adds.
    fn read(
        &self,
        row_group: usize,
        all: &Range<u32>,
        fields: &[&str],
        numbers: &RowNumbers,
        mut each: impl FnMut(&RecordBatch) -> Result<()>,
    ) -> Result<()> {
        let leaves = self.file.leaves_of_add(fields);
        let metadata = &self.file.row_groups()[row_group];
        // Of these fields only the deletion vector is optional, and has fields of its own.
        let is_required = |leaf: &usize| self.file.leaf_path(*leaf).len() == 2;
        let has_values = |leaf: &usize| has_values(metadata, *leaf);
        if !self.file.leaves_of_add(&REQUIRED_FIELDS).iter().any(has_values) {
            return Ok(());
        }
        let has_vectors = leaves.iter().any(|leaf| !is_required(leaf) && has_values(leaf));
        let leaves: Vec<_> = leaves.into_iter().filter(|leaf| is_required(leaf) || has_vectors).collect();
        let projection = self.file.project(&leaves)?;
        let batch_rows = numbers.batch_rows(self.file.batch_rows(row_group, &leaves));
        for batch in self.file.read(row_group, &projection, batch_rows, numbers.selection(all))? {
            self.stop.check()?;
            each(&batch?)?;
        }
        Ok(())
    }

    fn overflow(&self) -> Error {
        sizes_overflow(self.file.name())
    }
}

/// The adds of a row group with the size of a superseded file.
#[derive(Default)]
struct Suspects {
    /// Ascending, numbered in the part.
    rows: Vec<u32>,
    sizes: Vec<i64>,
}

impl Suspects {
    fn collect(&mut self, rows: &[u32], sizes: &[i64], dead_sizes: &Sizes<'_>) {
        for (row, size) in rows.iter().zip(sizes).filter(|(_, size)| dead_sizes.contains(**size)) {
            self.rows.push(*row);
            self.sizes.push(*size);
        }
    }
}

fn live_sizes(adds: &Adds<'_>, sizes: &[i64], is_dead: IsDead<'_>) -> Result<Vec<i64>> {
    let paths = adds.required_strings("path")?;
    let vectors = adds.deletion_vectors()?;
    let vector = |file: usize| vectors.as_ref()?.get(file)?.as_deref();
    let live = (0..sizes.len()).filter(|file| !is_dead(paths.value(*file), vector(*file)));
    Ok(live.map(|file| sizes[file]).collect())
}

/// Returns the sum over sizes that are not negative; `None` on overflow.
fn sum(sizes: &[i64]) -> Option<Totals> {
    // The sum of a batch cannot overflow this type.
    let bytes: u128 = sizes.iter().map(|size| u128::from(size.unsigned_abs())).sum();
    Some(Totals { files: sizes.len() as u64, size_bytes: u64::try_from(bytes).ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_found_among_sizes_and_no_other_one_is() {
        for count in [0, 1, 3, 1000] {
            let sizes: Vec<i64> = (0..count).map(|number| number * number * 31).collect();
            let filter = Sizes::new(&sizes);
            for size in (0..5000).chain(sizes.iter().copied()).chain([i64::MAX]) {
                assert_eq!(filter.contains(size), sizes.contains(&size), "{size} of {count}");
            }
        }
    }

    #[test]
    fn slices_have_each_row_once_and_divide_no_row_group_if_there_are_enough() {
        for groups in [vec![], vec![7], vec![5, 1, 9], vec![10; 9]] {
            let total: u32 = groups.iter().sum();
            let mut end = 0;
            for number in 0..4 {
                let rows = Slice { number, of: 4 }.of_row_groups(&groups);
                assert_eq!(rows.start, end);
                assert!(groups.len() < 4 || rows.start.is_multiple_of(10));
                end = rows.end;
            }
            assert_eq!(end, total);
        }
    }
}
