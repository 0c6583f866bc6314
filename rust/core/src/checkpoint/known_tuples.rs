//! The partition values that a filter has seen, with its verdicts, for all readers of a checkpoint.

use std::sync::{Arc, Mutex};

use super::kept_rows::Verdicts;
use crate::lock::lock;
use crate::partition::PartitionInterner;
use crate::schema::PartitionNames;

/// Dictionaries that no reader uses. A reader takes one for a row group, so there are as many as readers that run at
/// once.
#[derive(Clone)]
pub(super) struct KnownTuples {
    names: PartitionNames,
    idle: Arc<Mutex<Vec<Tuples>>>,
}

/// A dictionary of partition values and the filter's verdicts on them. It is separate from the dictionary of the
/// answer, which has no values of dropped files.
pub(super) struct Tuples {
    pub(super) interner: PartitionInterner,
    pub(super) verdicts: Verdicts,
}

impl KnownTuples {
    pub(super) fn new(names: &PartitionNames) -> Self {
        Self { names: names.clone(), idle: Arc::default() }
    }

    pub(super) fn take(&self) -> Tuples {
        let known = lock(&self.idle).pop();
        known.unwrap_or_else(|| Tuples {
            interner: PartitionInterner::of(self.names.clone()),
            verdicts: Verdicts::default(),
        })
    }

    pub(super) fn put(&self, tuples: Tuples) {
        lock(&self.idle).push(tuples);
    }
}

impl std::fmt::Debug for KnownTuples {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("KnownTuples").finish_non_exhaustive()
    }
}
