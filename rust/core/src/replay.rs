//! Log replay: the files whose latest action is in the commits.
//!
//! A [`ReplaySet`] is filled from the newest commit to the oldest with the keys of adds and removes; the first reference
//! to a key wins. Rows of a checkpoint are only looked up. The set grows with the commits since the checkpoint, not with
//! the table.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;

use crate::actions::{DeletionVectorDescriptor, FileBatch, RowIndices};
use crate::commit::Columns;
use crate::log_path::normal_path;

/// The size of a file whose actions do not state it.
const UNKNOWN_SIZE: i64 = -1;

/// A set of logical files: (path, unique id of the deletion vector).
///
/// Paths are compared in normal form ([`normal_path`]). Keys are stored in one arena, and only the path is hashed,
/// so a failed lookup never builds the id of a deletion vector.
#[derive(Debug, Clone, Default)]
pub struct ReplaySet {
    arena: Vec<u8>,
    entries: Vec<Entry>,
    /// Indices into `entries`, plus one; zero is free. The length is a power of two, at most half is used.
    slots: Vec<u32>,
    hasher: RandomState,
    /// Whether two actions of one file state different sizes.
    has_conflicting_sizes: bool,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    hash: u64,
    start: usize,
    path_bytes: u32,
    vector_bytes: u32,
    size: i64,
    /// Whether the oldest action is a remove, so that a valid log has the file before it.
    begins_with_remove: bool,
}

/// The facts of an action that a sum over older files needs.
#[derive(Debug, Clone, Copy)]
struct Facts {
    size: i64,
    is_remove: bool,
}

impl ReplaySet {
    /// Returns the number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the memory in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.arena.capacity() + self.entries.capacity() * size_of::<Entry>() + self.slots.capacity() * 4
    }

    /// Returns whether a newer action of the file is known, so that an older add is dead.
    #[must_use]
    #[inline]
    pub fn contains(&self, path: &str, vector: Option<&DeletionVectorDescriptor>) -> bool {
        if self.slots.is_empty() {
            return false;
        }
        let is_vector = |stored: &[u8]| match vector {
            None => stored.is_empty(),
            Some(vector) => !stored.is_empty() && stored == vector.unique_id().as_bytes(),
        };
        self.find(normal_path(path), is_vector).is_ok()
    }

    /// As [`Self::contains`], but returns a number of the key below [`Self::len`].
    #[must_use]
    pub fn position(&self, path: &str, vector: Option<&DeletionVectorDescriptor>) -> Option<usize> {
        if self.slots.is_empty() {
            return None;
        }
        let vector = vector.map(DeletionVectorDescriptor::unique_id).unwrap_or_default();
        self.find(normal_path(path), |stored| stored == vector.as_bytes()).ok()
    }

    /// Returns the sizes of the files, ascending and without duplicates. Returns `None` if the actions of a file
    /// state none, or different ones.
    #[must_use]
    pub fn sizes(&self) -> Option<Vec<i64>> {
        let mut sizes: Vec<i64> = self.entries.iter().map(|entry| entry.size).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let is_known = !self.has_conflicting_sizes && sizes.first() != Some(&UNKNOWN_SIZE);
        is_known.then_some(sizes)
    }

    /// Returns the positions of the files that exist before the commits, by the commits: their oldest action is a
    /// remove.
    pub fn older_files(&self) -> impl Iterator<Item = usize> {
        self.entries.iter().enumerate().filter(|(_, entry)| entry.begins_with_remove).map(|(index, _)| index)
    }

    /// Inserts a key; returns true if it is new.
    pub fn insert(&mut self, path: &str, vector: Option<&DeletionVectorDescriptor>) -> bool {
        self.insert_action(path, vector, Facts { size: UNKNOWN_SIZE, is_remove: false })
    }

    /// Inserts the key of an action older than all in the set; returns true if the key is new.
    fn insert_action(&mut self, path: &str, vector: Option<&DeletionVectorDescriptor>, facts: Facts) -> bool {
        let vector = vector.map(DeletionVectorDescriptor::unique_id).unwrap_or_default();
        match self.insert_key(normal_path(path), vector.as_bytes(), facts) {
            Ok(()) => true,
            Err(position) => {
                self.entries[position].begins_with_remove = facts.is_remove;
                false
            }
        }
    }

    /// Inserts all keys of newer commits.
    pub fn extend(&mut self, newer: &Self) {
        self.has_conflicting_sizes |= newer.has_conflicting_sizes;
        for entry in &newer.entries {
            let (path, vector) = newer.key(*entry);
            let facts = Facts { size: entry.size, is_remove: entry.begins_with_remove };
            // The arena holds paths as they came: UTF-8. The oldest action of a known key stays.
            _ = self.insert_key(std::str::from_utf8(path).unwrap_or_default(), vector, facts);
        }
    }

    /// Inserts a key, or adds the size to the known one and returns its position as the error.
    fn insert_key(&mut self, path: &str, vector: &[u8], facts: Facts) -> Result<(), usize> {
        self.reserve(1);
        let Facts { size, is_remove: begins_with_remove } = facts;
        let (slot, hash) = match self.find(path, |stored| stored == vector) {
            Err(free) => free,
            Ok(position) => {
                let known = &mut self.entries[position].size;
                if *known == UNKNOWN_SIZE {
                    *known = size;
                }
                self.has_conflicting_sizes |= size != UNKNOWN_SIZE && size != *known;
                return Err(position);
            }
        };
        let start = self.arena.len();
        self.arena.extend_from_slice(path.as_bytes());
        self.arena.extend_from_slice(vector);
        let (path_bytes, vector_bytes) = (path.len() as u32, vector.len() as u32);
        self.entries.push(Entry { hash, start, path_bytes, vector_bytes, size, begins_with_remove });
        self.slots[slot] = self.entries.len() as u32;
        Ok(())
    }

    /// Returns the rows of a batch whose keys are not in the set.
    #[must_use]
    pub fn live(&self, batch: &FileBatch) -> RowIndices {
        let all = 0..batch.len() as u32;
        if self.is_empty() {
            return all.collect();
        }
        all.filter(|row| self.is_live(batch, *row)).collect()
    }

    /// Returns the rows of a batch whose keys are in the set.
    #[must_use]
    pub fn dead(&self, batch: &FileBatch) -> RowIndices {
        let all = 0..batch.len() as u32;
        if self.is_empty() {
            RowIndices::new()
        } else {
            all.filter(|row| !self.is_live(batch, *row)).collect()
        }
    }

    /// Returns whether the key of file `row` of a batch is not in the set.
    #[must_use]
    pub fn is_live(&self, batch: &FileBatch, row: u32) -> bool {
        let row = row as usize;
        !self.contains(batch.path.value(row), batch.deletion_vector_at(row))
    }

    /// Inserts the keys of one commit, and returns the indices of its live adds.
    ///
    /// PROTOCOL allows one action per kind and file in a commit. In a log that violates this the last line wins, as
    /// in Spark.
    pub fn take_commit(&mut self, adds: &Columns, removes: &Columns) -> RowIndices {
        let mut live = Vec::with_capacity(adds.len());
        self.reserve(adds.len() + removes.len());
        for (is_add, index) in last_first(adds, removes) {
            let file = if is_add { adds } else { removes };
            let size = file.size(index).filter(|size| *size >= 0).unwrap_or(UNKNOWN_SIZE);
            let facts = Facts { size, is_remove: !is_add };
            let is_first = self.insert_action(file.path(index), file.deletion_vector(index), facts);
            if is_add && is_first {
                live.push(index as u32);
            }
        }
        live.sort_unstable();
        live
    }

    /// Returns the index of the key, or a free slot for it and its hash. There must be a free slot.
    fn find(&self, path: &str, is_vector: impl Fn(&[u8]) -> bool) -> Result<usize, (usize, u64)> {
        let hash = self.hasher.hash_one(path.as_bytes());
        let mask = self.slots.len() - 1;
        let mut slot = hash as usize & mask;
        loop {
            let Some(position) = (self.slots[slot] as usize).checked_sub(1) else { return Err((slot, hash)) };
            let entry = self.entries[position];
            if entry.hash == hash {
                let (stored_path, stored_vector) = self.key(entry);
                if stored_path == path.as_bytes() && is_vector(stored_vector) {
                    return Ok(position);
                }
            }
            slot = (slot + 1) & mask;
        }
    }

    fn key(&self, entry: Entry) -> (&[u8], &[u8]) {
        let end = entry.start + entry.path_bytes as usize + entry.vector_bytes as usize;
        self.arena[entry.start..end].split_at(entry.path_bytes as usize)
    }

    fn reserve(&mut self, more: usize) {
        let wanted = 2 * (self.entries.len() + more);
        if self.slots.len() >= wanted {
            return;
        }
        let mut slots = vec![0; wanted.next_power_of_two().max(64)];
        let mask = slots.len() - 1;
        for (position, entry) in self.entries.iter().enumerate() {
            let mut slot = entry.hash as usize & mask;
            while slots[slot] != 0 {
                slot = (slot + 1) & mask;
            }
            slots[slot] = position as u32 + 1;
        }
        self.slots = slots;
    }
}

/// (is an add, index in its columns) of all actions, from the last line to the first.
fn last_first<'a>(adds: &'a Columns, removes: &'a Columns) -> impl Iterator<Item = (bool, usize)> + use<'a> {
    let (mut adds_left, mut removes_left) = (adds.len(), removes.len());
    std::iter::from_fn(move || {
        let is_add = match (adds_left.checked_sub(1), removes_left.checked_sub(1)) {
            (Some(add), Some(remove)) => adds.row(add) > removes.row(remove),
            (add, _) => add.is_some(),
        };
        let left = if is_add { &mut adds_left } else { &mut removes_left };
        *left = left.checked_sub(1)?;
        Some((is_add, *left))
    })
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;
    use crate::commit::CommitFile;

    fn vector(id: u8, offset: Option<i32>) -> DeletionVectorDescriptor {
        DeletionVectorDescriptor {
            storage_type: b'u',
            path_or_inline: format!("v{id}"),
            offset,
            size_in_bytes: 1,
            cardinality: 1,
        }
    }

    fn commit(lines: &[&str]) -> CommitFile {
        CommitFile::parse("c.json", &Bytes::from(lines.join("\n"))).unwrap()
    }

    fn live_paths(set: &mut ReplaySet, lines: &[&str]) -> RowIndices {
        let file = commit(lines);
        set.take_commit(&file.adds, &file.removes)
    }

    const ADD: &str = r#"{"add":{"path":"a","size":1}}"#;
    const REMOVE: &str = r#"{"remove":{"path":"a"}}"#;
    const ADD_VECTOR: &str = r#"{"add":{"path":"a","size":1,"deletionVector":{"storageType":"u","pathOrInlineDv":"v1","sizeInBytes":1,"cardinality":1}}}"#;

    #[test]
    fn a_removed_file_with_a_new_deletion_vector_is_live() {
        for lines in [[REMOVE, ADD_VECTOR], [ADD_VECTOR, REMOVE]] {
            let mut set = ReplaySet::default();
            assert_eq!(live_paths(&mut set, &lines), [0]);
            assert!(set.contains("a", None), "the file without its vector is dead");
            assert!(set.contains("a", Some(&vector(1, None))));
            assert!(!set.contains("a", Some(&vector(2, None))));
        }
    }

    #[test]
    fn a_file_removed_and_added_again_is_live_by_its_newest_add() {
        let mut set = ReplaySet::default();
        assert_eq!(live_paths(&mut set, &[ADD]), [0]);
        assert_eq!(live_paths(&mut set, &[REMOVE]), RowIndices::new());
        assert_eq!(live_paths(&mut set, &[ADD]), RowIndices::new());
    }

    #[test]
    fn of_contradictions_in_a_commit_the_later_line_counts() {
        let live = |lines: &[&str]| live_paths(&mut ReplaySet::default(), lines);
        assert_eq!(live(&[REMOVE, ADD]), [0]);
        assert_eq!(live(&[ADD, REMOVE]), RowIndices::new());
        assert_eq!(live(&[ADD, ADD]), [1]);
    }

    #[test]
    fn the_size_of_a_file_is_that_of_its_actions_if_they_agree() {
        let take = |lines: &[&str]| {
            let mut set = ReplaySet::default();
            for line in lines {
                live_paths(&mut set, &[line]);
            }
            set
        };
        let sized = r#"{"remove":{"path":"a","size":1}}"#;
        assert_eq!(take(&[ADD]).sizes(), Some(vec![1]));
        assert_eq!(take(&[REMOVE]).sizes(), None);
        assert_eq!(take(&[r#"{"remove":{"path":"a","size":-1}}"#]).sizes(), None);
        assert_eq!(take(&[sized, REMOVE]).sizes(), Some(vec![1]));
        assert_eq!(take(&[REMOVE, ADD]).sizes(), Some(vec![1]));
        assert_eq!(take(&[ADD, r#"{"remove":{"path":"a","size":2}}"#]).sizes(), None);
        let mut joined = take(&[sized]);
        joined.extend(&take(&[r#"{"add":{"path":"b","size":7}}"#, r#"{"add":{"path":"c","size":1}}"#]));
        assert_eq!(joined.sizes(), Some(vec![1, 7]));
        joined.extend(&take(&[r#"{"add":{"path":"a","size":9}}"#]));
        assert_eq!(joined.sizes(), None);
    }

    #[test]
    fn a_file_is_older_than_the_commits_if_its_oldest_action_is_a_remove() {
        let older = |newest_first: &[&str]| {
            let mut set = ReplaySet::default();
            for line in newest_first {
                live_paths(&mut set, &[line]);
            }
            set.older_files().count()
        };
        assert_eq!(
            [older(&[REMOVE]), older(&[ADD]), older(&[REMOVE, ADD]), older(&[ADD, REMOVE])],
            [1, 0, 0, 1]
        );
        for (older, newer, expected) in [(ADD, REMOVE, 0), (REMOVE, ADD, 1), (ADD_VECTOR, REMOVE, 1)] {
            let (mut set, mut newer_set) = (ReplaySet::default(), ReplaySet::default());
            live_paths(&mut set, &[older]);
            live_paths(&mut newer_set, &[newer]);
            set.extend(&newer_set);
            assert_eq!(set.older_files().count(), expected, "{older} {newer}");
        }
    }

    #[test]
    fn spellings_of_an_absolute_path_are_one_file() {
        let mut set = ReplaySet::default();
        assert!(set.insert("file:/p/a", None));
        assert!(!set.insert("file:///p/a", None));
        assert!(set.contains("/p/a", None) && !set.contains("p/a", None));
    }

    #[test]
    fn an_offset_is_part_of_a_vectors_id() {
        let mut set = ReplaySet::default();
        assert!(set.insert("a", Some(&vector(1, Some(1)))));
        assert!(set.insert("a", Some(&vector(1, Some(11)))));
        assert!(set.insert("a", Some(&vector(1, None))));
        assert!(!set.contains("a", None));
        assert!(!set.contains("auv1", None), "path and vector do not run together");
    }

    proptest! {
        #[test]
        fn the_set_agrees_with_a_map(references in proptest::collection::vec((0u8..60, 0u8..4), 0..400)) {
            let mut set = ReplaySet::default();
            let mut twin = HashSet::new();
            for (path, id) in &references {
                let path = format!("part-{path}");
                let vector = (*id > 0).then(|| vector(*id, None));
                let key = (path.clone(), vector.as_ref().map(DeletionVectorDescriptor::unique_id));
                let is_new = twin.insert(key);
                prop_assert_eq!(set.contains(&path, vector.as_ref()), !is_new);
                prop_assert_eq!(set.insert(&path, vector.as_ref()), is_new);
            }
            prop_assert_eq!(set.len(), twin.len());
            let mut copy = ReplaySet::default();
            copy.insert("part-0", None);
            copy.extend(&set);
            prop_assert_eq!(copy.len(), twin.len() + usize::from(!set.contains("part-0", None)));
        }

        #[test]
        fn a_commit_agrees_with_forward_replay(actions in proptest::collection::vec((any::<bool>(), 0u8..5), 1..20)) {
            let lines: Vec<_> = actions.iter().map(|(is_add, path)| {
                let kind = if *is_add { "add" } else { "remove" };
                format!(r#"{{"{kind}":{{"path":"p{path}","size":1}}}}"#)
            }).collect();
            let file = commit(&lines.iter().map(String::as_str).collect::<Vec<_>>());
            let mut twin = HashMap::new();
            for (row, (is_add, path)) in actions.iter().enumerate() {
                twin.insert(path, is_add.then_some(row as u32));
            }
            let mut expected: Vec<_> = twin.into_values().flatten().collect();
            expected.sort_unstable();
            let live = ReplaySet::default().take_commit(&file.adds, &file.removes);
            let rows: Vec<_> = live.iter().map(|index| file.adds.row(*index as usize)).collect();
            prop_assert_eq!(rows, expected);
        }
    }
}
