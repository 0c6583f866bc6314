//! Windows of a remote file.
//!
//! Columns of a row group are read in parallel, each from its own offset. Windows are aligned to a grid and kept in LRU
//! order; a window that continues a held one triggers a prefetch of its successors. Memory for held and requested windows
//! is bounded for any file size.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use bytes::{Bytes, BytesMut};

use super::remote::{Piece, Remote};
use super::{LogFileEntry, other_size_than_stated, replaced, runtime};
use crate::error::{Error, Result};
use crate::lock::lock;
use crate::pool;

/// Size of a window. Two readers of a row group are at the places of some fourteen columns together.
pub(super) const WINDOW_BYTES: u64 = 2 << 20;
/// Maximum number of held and requested windows.
const MAX_WINDOWS: usize = 16;
/// Windows that are prefetched: their transfer takes longer than the latency of a request.
const WINDOWS_AHEAD: u64 = 2;

/// Maximum number of ranges that were read apart and are held: parts of a column begin with the same page or index.
const MAX_RANGES: usize = 4;

pub(super) struct Windows {
    shared: Arc<Shared>,
    ranges: Mutex<VecDeque<Arc<ApartRange>>>,
}

/// A range that was read apart. Its lock is held during its request, so that concurrent readers send one.
struct ApartRange {
    start: u64,
    length: usize,
    content: Mutex<Option<Bytes>>,
}

struct Shared {
    remote: Arc<Remote>,
    path: String,
    size: u64,
    /// `None` if the size comes from a log action.
    listed: Option<LogFileEntry>,
    state: Mutex<State>,
    arrived: Condvar,
}

#[derive(Default)]
struct State {
    slots: HashMap<u64, Slot>,
    /// The windows that were requested before. Behind the end of a reader's rows is where another one began, whose windows
    /// may have left.
    requested: HashSet<u64>,
    clock: u64,
    /// The entity tag of the first response. All later ranges must be of the same object.
    entity_tag: Option<String>,
}

struct Slot {
    content: Option<Result<Bytes>>,
    used: u64,
}

impl std::fmt::Debug for Windows {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Windows").field("size", &self.shared.size).finish_non_exhaustive()
    }
}

impl Windows {
    /// Windows of the listed file, or of one of which a log states the size.
    pub(super) fn of(remote: &Arc<Remote>, path: &str, size: u64, listed: Option<&LogFileEntry>) -> Self {
        let (state, arrived) = (Mutex::default(), Condvar::new());
        let (remote, path, listed) = (Arc::clone(remote), path.to_owned(), listed.cloned());
        let shared = Arc::new(Shared { remote, path, size, listed, state, arrived });
        Self { shared, ranges: Mutex::default() }
    }

    /// Reads a range, which must be in the file.
    pub(super) fn read(&self, start: u64, length: usize) -> Result<Bytes> {
        let end = start + length as u64;
        let first = start / WINDOW_BYTES;
        if length == 0 {
            return Ok(Bytes::new());
        }
        if end <= (first + 1) * WINDOW_BYTES {
            let window = self.window(first)?;
            return self.shared.cut(&window, start - first * WINDOW_BYTES, length);
        }
        let mut joined = BytesMut::with_capacity(length);
        let mut position = start;
        while position < end {
            let index = position / WINDOW_BYTES;
            let window_start = index * WINDOW_BYTES;
            let piece = (end.min(window_start + WINDOW_BYTES) - position) as usize;
            let window = self.window(index)?;
            joined.extend_from_slice(&self.shared.cut(&window, position - window_start, piece)?);
            position += piece as u64;
        }
        Ok(joined.freeze())
    }

    /// Reads a range, which must be in the file, by a request of its own, unless it was just read.
    pub(super) fn read_apart(&self, start: u64, length: usize) -> Result<Bytes> {
        if length == 0 {
            return Ok(Bytes::new());
        }
        if length as u64 > WINDOW_BYTES {
            return self.request_apart(start, length);
        }
        let range = self.apart_range(start, length);
        let mut content = lock(&range.content);
        if let Some(bytes) = &*content {
            return Ok(bytes.clone());
        }
        Ok(content.insert(self.request_apart(start, length)?).clone())
    }

    fn apart_range(&self, start: u64, length: usize) -> Arc<ApartRange> {
        let mut ranges = lock(&self.ranges);
        if let Some(known) = ranges.iter().find(|range| (range.start, range.length) == (start, length)) {
            return Arc::clone(known);
        }
        let range = Arc::new(ApartRange { start, length, content: Mutex::default() });
        ranges.truncate(MAX_RANGES - 1);
        ranges.push_front(Arc::clone(&range));
        range
    }

    fn request_apart(&self, start: u64, length: usize) -> Result<Bytes> {
        let Shared { remote, path, .. } = &*self.shared;
        let piece = runtime::block_on(remote.read_range(path, start..start + length as u64))??;
        self.shared.cut(&self.shared.accept(piece)?, 0, length)
    }

    fn window(&self, index: u64) -> Result<Bytes> {
        let mut state = lock(&self.shared.state);
        self.request(&mut state, index)?;
        let continues = index.checked_sub(1).is_some_and(|previous| state.slots.contains_key(&previous));
        let ahead = index + 1..=index + WINDOWS_AHEAD;
        for next in ahead.filter(|next| continues && next * WINDOW_BYTES < self.shared.size) {
            if !state.requested.contains(&next) || state.slots.contains_key(&next) {
                self.request(&mut state, next)?;
            }
        }
        loop {
            match state.slots.get(&index) {
                Some(Slot { content: Some(Ok(bytes)), .. }) => return Ok(bytes.clone()),
                Some(Slot { content: Some(Err(_)), .. }) => {
                    // Removed, so that a later read requests it again.
                    let failed = state.slots.remove(&index).and_then(|slot| slot.content);
                    return failed.unwrap_or_else(|| Err(lost()));
                }
                Some(Slot { content: None, .. }) => {
                    state = pool::block_in_place(|| self.shared.arrived.wait(state))
                        .unwrap_or_else(PoisonError::into_inner);
                }
                // Another thread took the failure or evicted the window.
                None => self.request(&mut state, index)?,
            }
        }
    }

    /// Requests a window unless it is held or requested, and marks it as used.
    fn request(&self, state: &mut State, index: u64) -> Result<()> {
        state.clock += 1;
        let used = state.clock;
        if let Some(slot) = state.slots.get_mut(&index) {
            slot.used = used;
            return Ok(());
        }
        make_room(&mut state.slots);
        let range = index * WINDOW_BYTES..self.shared.size.min((index + 1) * WINDOW_BYTES);
        let arrival = Arrival { shared: Arc::clone(&self.shared), index, delivered: false };
        runtime::spawn(arrival.fetch(range))?;
        state.slots.insert(index, Slot { content: None, used });
        state.requested.insert(index);
        Ok(())
    }
}

impl Shared {
    /// Returns the bytes of a response if it is of the listed object and of the object of earlier responses.
    fn accept(&self, piece: Piece) -> Result<Bytes> {
        if piece.object_size != Some(self.size) {
            return Err(match self.listed {
                Some(_) => replaced(&self.path),
                None => other_size_than_stated(&self.path),
            });
        }
        let mut state = lock(&self.state);
        if state.entity_tag.is_some() && piece.entity_tag.is_some() && state.entity_tag != piece.entity_tag {
            return Err(replaced(&self.path));
        }
        if self.listed.as_ref().is_some_and(|listed| !piece.is_of(listed)) {
            return Err(replaced(&self.path));
        }
        state.entity_tag = state.entity_tag.take().or(piece.entity_tag);
        Ok(piece.bytes)
    }

    /// Returns a part of a window. A store that sends fewer bytes than it says has another object by now.
    fn cut(&self, window: &Bytes, offset: u64, length: usize) -> Result<Bytes> {
        let offset = offset as usize;
        if window.len() < offset + length {
            return Err(replaced(&self.path));
        }
        Ok(window.slice(offset..offset + length))
    }
}

/// Delivers a window, or a failure if the fetch was dropped, so that no reader waits forever.
struct Arrival {
    shared: Arc<Shared>,
    index: u64,
    delivered: bool,
}

impl Arrival {
    async fn fetch(mut self, range: std::ops::Range<u64>) {
        let shared = Arc::clone(&self.shared);
        let answer = shared.remote.read_range(&shared.path, range).await;
        self.deliver(answer);
    }

    fn deliver(&mut self, answer: Result<Piece>) {
        self.delivered = true;
        let content = answer.and_then(|piece| self.shared.accept(piece));
        let mut state = lock(&self.shared.state);
        if let Some(slot) = state.slots.get_mut(&self.index) {
            slot.content = Some(content);
        }
        drop(state);
        self.shared.arrived.notify_all();
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        if !self.delivered {
            self.deliver(Err(lost()));
        }
    }
}

/// Evicts the least recently used windows, except requested ones that a reader waits for.
fn make_room(slots: &mut HashMap<u64, Slot>) {
    while slots.len() >= MAX_WINDOWS {
        let held = slots.iter().filter(|(_, slot)| slot.content.is_some());
        let Some(oldest) = held.min_by_key(|(_, slot)| slot.used).map(|(index, _)| *index) else { return };
        slots.remove(&oldest);
    }
}

fn lost() -> Error {
    Error::StorageUnavailable { detail: "a read of the log was dropped".into() }
}

#[cfg(test)]
mod tests {
    use object_store::ObjectStoreExt;
    use object_store::memory::InMemory;

    use super::*;
    use crate::storage::properties::plain_tag;
    use crate::storage::{S3Options, StoredFile, s3};

    const PATH: &str = "t/_delta_log/00000000000000000007.checkpoint.parquet";
    const SIZE: u64 = 2 * WINDOW_BYTES;

    /// Puts an object. Returns its plain entity tag and its modification time in milliseconds.
    fn put(store: &Arc<InMemory>, byte: u8, size: u64) -> (String, i64) {
        let put = async {
            let location = PATH.into();
            store.put(&location, vec![byte; size as usize].into()).await.unwrap();
            store.head(&location).await.unwrap()
        };
        let meta = runtime::block_on(put).unwrap();
        (plain_tag(&meta.e_tag.unwrap()).unwrap().to_owned(), meta.last_modified.timestamp_millis())
    }

    fn windows(store: &Arc<InMemory>, entity_tag: &str, modified_ms: i64, size: u64) -> Windows {
        Windows::of(&remote(store), PATH, size, Some(&listed(entity_tag, modified_ms, size)))
    }

    fn remote(store: &Arc<InMemory>) -> Arc<Remote> {
        let remote = s3::open(&S3Options::new("bucket", "us-east-1")).unwrap();
        Arc::new(remote.with_store(Arc::clone(store) as _))
    }

    fn listed(entity_tag: &str, modified_ms: i64, size: u64) -> LogFileEntry {
        let (name, entity_tag) = (PATH.into(), Some(entity_tag.into()));
        LogFileEntry { name, size, modified_ms, entity_tag, identity: 0 }
    }

    #[test]
    fn an_object_with_another_tag_than_was_listed_is_the_listed_one_if_its_time_is_the_listed_one() {
        let store = Arc::new(InMemory::new());
        let (tag, modified_ms) = put(&store, 1, SIZE);
        let second = modified_ms.div_euclid(1000) * 1000;
        for (tag, modified_ms) in [(&*tag, second - 60_000), ("other", second), ("other", second + 999)] {
            let windows = windows(&store, tag, modified_ms, SIZE);
            assert_eq!(windows.read(WINDOW_BYTES - 1, 2).unwrap(), [1; 2][..], "{tag} {modified_ms}");
        }
        for modified_ms in [second - 1, second + 1000] {
            let replaced = windows(&store, "other", modified_ms, SIZE).read(0, 1);
            assert!(matches!(replaced, Err(Error::FileReplaced { .. })), "{replaced:?}");
        }
    }

    #[test]
    fn a_window_that_another_reader_had_is_not_read_ahead_again() {
        let size = 8 * WINDOW_BYTES;
        let store = Arc::new(InMemory::new());
        let (tag, modified_ms) = put(&store, 1, size);
        let windows = windows(&store, &tag, modified_ms, size);
        let read = |index: u64| windows.read(index * WINDOW_BYTES, 1).unwrap();
        read(4);
        lock(&windows.shared.state).slots.clear();
        read(2);
        read(3);
        let requested = |index: u64| lock(&windows.shared.state).slots.contains_key(&index);
        assert_eq!([2, 3, 4, 5, 6].map(requested), [true, true, false, true, false]);
        assert_eq!(read(4), [1][..]);
    }

    #[test]
    fn a_range_read_apart_is_of_the_same_object_as_the_windows() {
        let store = Arc::new(InMemory::new());
        let (tag, modified_ms) = put(&store, 1, SIZE);
        let windows = windows(&store, &tag, modified_ms, SIZE);
        assert_eq!(windows.read_apart(WINDOW_BYTES - 2, 5).unwrap(), [1; 5][..]);
        assert_eq!(windows.read_apart(3, 0).unwrap(), [][..]);
        put(&store, 2, SIZE);
        for mixed in [windows.read_apart(0, 1), windows.read(0, 1)] {
            assert!(matches!(mixed, Err(Error::FileReplaced { .. })), "{mixed:?}");
        }
    }

    #[test]
    fn a_file_of_one_window_is_requested_once_also_by_readers_of_few_columns() {
        let store = Arc::new(InMemory::new());
        for (size, is_held) in [(WINDOW_BYTES, true), (WINDOW_BYTES + 1, false)] {
            let (tag, modified_ms) = put(&store, 1, size);
            let listed = listed(&tag, modified_ms, size);
            let file = StoredFile::remote(&remote(&store), PATH, size, Some(&listed)).read_apart();
            assert_eq!(file.read_range(7, 5).unwrap(), [1; 5][..]);
            put(&store, 2, size);
            assert_eq!(file.read_range(size - 3, 3).is_ok_and(|bytes| bytes == [1; 3][..]), is_held);
        }
    }

    #[test]
    fn a_range_that_was_just_read_apart_is_not_requested_again() {
        let store = Arc::new(InMemory::new());
        let (tag, modified_ms) = put(&store, 1, SIZE);
        let windows = windows(&store, &tag, modified_ms, SIZE);
        windows.read_apart(7, 5).unwrap();
        put(&store, 2, SIZE);
        assert_eq!(windows.read_apart(7, 5).unwrap(), [1; 5][..]);
        for start in 0..=MAX_RANGES as u64 {
            assert!(windows.read_apart(start, 5).is_err());
        }
        assert!(windows.read_apart(7, 5).is_err(), "only the last ranges are held");
        assert!(windows.ranges.lock().unwrap().len() <= MAX_RANGES);
    }

    #[test]
    fn all_windows_are_of_the_object_of_the_first_one_for_any_listed_tag() {
        let store = Arc::new(InMemory::new());
        let (_, modified_ms) = put(&store, 1, SIZE);
        let windows = windows(&store, "other", modified_ms, SIZE);
        assert_eq!(windows.read(0, 1).unwrap(), [1][..]);
        put(&store, 2, SIZE);
        let mixed = windows.read(WINDOW_BYTES, 1);
        assert!(matches!(mixed, Err(Error::FileReplaced { .. })), "{mixed:?}");
    }
}
