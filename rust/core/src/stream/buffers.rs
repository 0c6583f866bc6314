//! Chunks of an answer and their reusable memory.

use std::sync::{Arc, Mutex};

use crate::lock::lock;

/// Number of spare buffers. New memory costs a page fault per 4 KiB.
const SPARE_BUFFERS: usize = 24;

/// A chunk of an answer. Dropping it returns its memory to the spare buffers.
#[derive(Debug)]
pub struct Chunk {
    bytes: Vec<u8>,
    buffers: Arc<Buffers>,
}

impl Chunk {
    pub(super) fn new(bytes: Vec<u8>, buffers: &Arc<Buffers>) -> Self {
        Self { bytes, buffers: Arc::clone(buffers) }
    }

    /// The bytes to send.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        self.buffers.put(std::mem::take(&mut self.bytes));
    }
}

/// Spare buffers, shared by all streams.
#[derive(Debug, Default)]
pub struct Buffers(Mutex<Vec<Vec<u8>>>);

impl Buffers {
    /// Frees all spare buffers.
    pub fn release(&self) {
        let spare = std::mem::take(&mut *lock(&self.0));
        drop(spare);
    }

    pub(super) fn take(&self) -> Vec<u8> {
        lock(&self.0).pop().unwrap_or_default()
    }

    pub(super) fn put(&self, mut buffer: Vec<u8>) {
        buffer.clear();
        // Buffers of huge lines are not reused.
        if (1..=1 << 20).contains(&buffer.capacity()) {
            let mut spare = lock(&self.0);
            if spare.len() < SPARE_BUFFERS {
                spare.push(buffer);
            }
        }
    }
}
