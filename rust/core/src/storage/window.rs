//! Windows of a remote file.
//!
//! Columns of a row group are read side by side, each from its own place on. So windows are aligned to a grid
//! and kept until others were needed more recently; a window that continues one that is held is followed by
//! its successor before that is asked for. What is held and on its way stays under a bound, whatever the
//! file's size.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};

use super::remote::{Remote, plain_tag};
use super::runtime;
use crate::error::{Error, Result};
use crate::{log_path, pool};

/// Large enough that a request's latency is hidden behind its own transfer.
const WINDOW_BYTES: u64 = 4 << 20;
/// Windows held or on their way: several columns with one read ahead each.
const MAX_WINDOWS: usize = 8;

pub(super) struct Windows {
    shared: Arc<Shared>,
}

struct Shared {
    remote: Arc<Remote>,
    path: String,
    size: u64,
    /// Of the listing that named the file.
    listed_tag: Option<Box<str>>,
    state: Mutex<State>,
    arrived: Condvar,
}

#[derive(Default)]
struct State {
    slots: HashMap<u64, Slot>,
    clock: u64,
    /// Of the first answer: all later pieces must be cut from the same object.
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
    pub(super) fn new(remote: Arc<Remote>, path: String, size: u64, listed_tag: Option<&str>) -> Self {
        let listed_tag = listed_tag.map(Box::from);
        let (state, arrived) = (Mutex::default(), Condvar::new());
        let shared = Shared { remote, path, size, listed_tag, state, arrived };
        Self { shared: Arc::new(shared) }
    }

    /// The range must lie in the file.
    pub(super) fn read(&self, start: u64, length: usize) -> Result<Bytes> {
        let end = start + length as u64;
        let first = start / WINDOW_BYTES;
        if length == 0 {
            return Ok(Bytes::new());
        }
        if end <= (first + 1) * WINDOW_BYTES {
            let window = self.window(first)?;
            return cut(&window, start - first * WINDOW_BYTES, length);
        }
        let mut joined = BytesMut::with_capacity(length);
        let mut position = start;
        while position < end {
            let index = position / WINDOW_BYTES;
            let window_start = index * WINDOW_BYTES;
            let piece = (end.min(window_start + WINDOW_BYTES) - position) as usize;
            joined.extend_from_slice(&cut(&self.window(index)?, position - window_start, piece)?);
            position += piece as u64;
        }
        Ok(joined.freeze())
    }

    fn window(&self, index: u64) -> Result<Bytes> {
        let mut state = self.shared.lock();
        self.request(&mut state, index)?;
        let continues = index.checked_sub(1).is_some_and(|previous| state.slots.contains_key(&previous));
        if continues && (index + 1) * WINDOW_BYTES < self.shared.size {
            self.request(&mut state, index + 1)?;
        }
        loop {
            match state.slots.get(&index) {
                Some(Slot { content: Some(Ok(bytes)), .. }) => return Ok(bytes.clone()),
                Some(Slot { content: Some(Err(_)), .. }) => {
                    // Taken out, so that a later read asks the store again.
                    let failed = state.slots.remove(&index).and_then(|slot| slot.content);
                    return failed.unwrap_or_else(|| Err(lost()));
                }
                Some(Slot { content: None, .. }) => {
                    state = pool::waiting(|| self.shared.arrived.wait(state))
                        .unwrap_or_else(PoisonError::into_inner);
                }
                // Another thread took the failure or needed the room.
                None => self.request(&mut state, index)?,
            }
        }
    }

    /// Makes sure that a window is held or on its way, and marks it as just used.
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
        let entity_tag = state.entity_tag.clone();
        runtime::spawn(async move { arrival.fetch(range, entity_tag).await })?;
        state.slots.insert(index, Slot { content: None, used });
        Ok(())
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Delivers a window, or a failure if the fetch was dropped: nobody waits for ever.
struct Arrival {
    shared: Arc<Shared>,
    index: u64,
    delivered: bool,
}

impl Arrival {
    async fn fetch(mut self, range: std::ops::Range<u64>, entity_tag: Option<String>) {
        let shared = Arc::clone(&self.shared);
        let answer = shared.remote.read_range(&shared.path, range, shared.size, entity_tag).await;
        self.deliver(answer);
    }

    fn deliver(&mut self, answer: Result<(Bytes, Option<String>)>) {
        self.delivered = true;
        let mut state = self.shared.lock();
        let content = answer.and_then(|(bytes, tag)| {
            if state.entity_tag.is_some() && tag.is_some() && state.entity_tag != tag {
                return Err(changed());
            }
            if let (Some(listed), Some(found)) = (&self.shared.listed_tag, tag.as_deref().and_then(plain_tag))
                && **listed != *found
            {
                // What was listed is there no more.
                return Err(Error::FileNotFound { file: log_path::file_name(&self.shared.path).to_owned() });
            }
            state.entity_tag = state.entity_tag.take().or(tag);
            Ok(bytes)
        });
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

/// Lets the least recently used windows go. Those on their way stay: somebody waits for them.
fn make_room(slots: &mut HashMap<u64, Slot>) {
    while slots.len() >= MAX_WINDOWS {
        let held = slots.iter().filter(|(_, slot)| slot.content.is_some());
        let Some(oldest) = held.min_by_key(|(_, slot)| slot.used).map(|(index, _)| *index) else { return };
        slots.remove(&oldest);
    }
}

fn cut(window: &Bytes, offset: u64, length: usize) -> Result<Bytes> {
    let offset = offset as usize;
    // A store that sends fewer bytes than it listed has another file by now.
    if window.len() < offset + length { Err(changed()) } else { Ok(window.slice(offset..offset + length)) }
}

fn changed() -> Error {
    Error::StorageUnavailable { detail: "a file of the log was replaced while it was read".into() }
}

fn lost() -> Error {
    Error::StorageUnavailable { detail: "a read of the log was dropped".into() }
}
