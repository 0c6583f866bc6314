//! The last blocks of many messages with the same suffix. Their message schedule does not depend on the hash state, so
//! it is computed once for all messages.

use crate::hashing::block::{Block, SHA256_K, Schedule};

/// The whole blocks of the suffix, which follow the blocks of each message.
#[derive(Clone, Default)]
pub(crate) struct SharedSuffix {
    blocks: Vec<Block>,
    schedules: Vec<Schedule>,
}

impl SharedSuffix {
    pub(crate) fn of(blocks: &[Block]) -> Self {
        Self { blocks: blocks.to_vec(), schedules: blocks.iter().map(schedule).collect() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    pub(crate) fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// The same blocks, ready for the rounds.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn schedules(&self) -> &[Schedule] {
        &self.schedules
    }
}

/// FIPS 180-4, section 6.2.2, step 1, and the constants that step 3 adds.
fn schedule(block: &Block) -> Schedule {
    let mut words = [0; 64];
    for (word, bytes) in words.iter_mut().zip(block.as_chunks::<4>().0) {
        *word = u32::from_be_bytes(*bytes);
    }
    for at in 16..64 {
        let (near, far): (u32, u32) = (words[at - 15], words[at - 2]);
        let near = near.rotate_right(7) ^ near.rotate_right(18) ^ near >> 3;
        let far = far.rotate_right(17) ^ far.rotate_right(19) ^ far >> 10;
        words[at] = words[at - 16].wrapping_add(near).wrapping_add(words[at - 7]).wrapping_add(far);
    }
    for (word, constant) in words.iter_mut().zip(SHA256_K) {
        *word = word.wrapping_add(constant);
    }
    words
}
