//! What the process has found out about checkpoints: which are damaged and left out, and which are counted by paths.
//!
//! It remembers them by the properties of their files, so a checkpoint that is written again is read. A store may have
//! failed for a moment only: after [`MAX_AGE`] a damaged checkpoint is tried again.

use std::collections::{HashMap, HashSet};
use std::sync::{LazyLock, Mutex};
use std::time::{Duration, Instant};

use super::CheckpointFiles;
use crate::error::Error;
use crate::hashing::SequenceDigest;
use crate::lock::lock;
use crate::log_faults::LogFault;
use crate::storage::Storage;

const MAX_AGE: Duration = Duration::from_secs(3600);
/// Maximum number of checkpoints: 100 KB.
const MAX_CHECKPOINTS: usize = 1024;

type Key = [u8; 32];

#[derive(Debug)]
struct Damage {
    found_at: Instant,
    error: Error,
    actions: u64,
}

static DAMAGED: LazyLock<Mutex<HashMap<Key, Damage>>> = LazyLock::new(Mutex::default);

fn key_of(storage: &Storage, root: &str, checkpoint: &CheckpointFiles) -> Key {
    let mut digest = SequenceDigest::default();
    storage.location().into_iter().chain([root]).for_each(|text| digest.add(text));
    for file in &checkpoint.files {
        digest.add(&file.name);
        digest.add(file.size.to_le_bytes());
        digest.add(file.modified_ms.to_le_bytes());
        digest.add(file.entity_tag.as_deref().unwrap_or_default());
        digest.add(file.identity.to_le_bytes());
    }
    digest.finish()
}

/// Leaves out a checkpoint of at least `actions` actions from here on.
pub(super) fn leave_out(
    storage: &Storage,
    root: &str,
    checkpoint: &CheckpointFiles,
    error: Error,
    actions: u64,
) {
    let (key, found_at) = (key_of(storage, root, checkpoint), Instant::now());
    let mut damaged = lock(&DAMAGED);
    if damaged.len() >= MAX_CHECKPOINTS
        && let Some(oldest) = damaged.iter().min_by_key(|(_, damage)| damage.found_at).map(|(key, _)| *key)
    {
        damaged.remove(&oldest);
    }
    if damaged.insert(key, Damage { found_at, error, actions }).is_none() {
        LogFault::Checkpoint.count();
    }
}

/// Checkpoints whose files were added again with other sizes.
static BY_PATHS: LazyLock<Mutex<HashSet<Key>>> = LazyLock::new(Mutex::default);

/// Counts the files of a checkpoint by their paths from here on.
pub(super) fn count_by_paths(storage: &Storage, root: &str, checkpoint: &CheckpointFiles) {
    let mut by_paths = lock(&BY_PATHS);
    if by_paths.len() >= MAX_CHECKPOINTS {
        by_paths.clear();
    }
    by_paths.insert(key_of(storage, root, checkpoint));
}

/// Returns whether the files of a checkpoint are counted by their paths.
pub(super) fn is_counted_by_paths(storage: &Storage, root: &str, checkpoint: &CheckpointFiles) -> bool {
    let by_paths = lock(&BY_PATHS);
    !by_paths.is_empty() && by_paths.contains(&key_of(storage, root, checkpoint))
}

/// Reads a checkpoint again from here on.
pub(super) fn forget(storage: &Storage, root: &str, checkpoint: &CheckpointFiles) {
    lock(&DAMAGED).remove(&key_of(storage, root, checkpoint));
}

/// Returns the error for which a checkpoint is left out, and a number of actions that it has at least.
pub(super) fn damage(storage: &Storage, root: &str, checkpoint: &CheckpointFiles) -> Option<(Error, u64)> {
    let mut damaged = lock(&DAMAGED);
    if damaged.is_empty() {
        return None;
    }
    let key = key_of(storage, root, checkpoint);
    if damaged.get(&key)?.found_at.elapsed() > MAX_AGE {
        damaged.remove(&key);
        return None;
    }
    damaged.get(&key).map(|damage| (damage.error.clone(), damage.actions))
}
