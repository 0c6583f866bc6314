//! Hashes two messages at a time with the SHA-256 instructions of the CPU. Each round waits for the previous one, so a
//! second message hides the latency.

use std::arch::x86_64::{
    __m128i, _mm_add_epi32, _mm_alignr_epi8, _mm_blend_epi16, _mm_set_epi32, _mm_sha256msg1_epu32,
    _mm_sha256msg2_epu32, _mm_sha256rnds2_epu32, _mm_shuffle_epi8, _mm_shuffle_epi32,
};

use crate::hashing::block::{Block, SHA256_K, Schedule, Sha256State};

/// Words a, b, e, f of a state and words c, d, g, h, in the order of the instructions.
type State = [__m128i; 2];

/// Hashes padded `messages` and the `suffix` with the state `initial`.
#[target_feature(enable = "sha,sse4.1,ssse3")]
pub(super) fn sha256(
    initial: &Sha256State,
    messages: &[&[Block]],
    suffix: &[Schedule],
    digests: &mut [[u8; 32]],
) {
    let initial = packed(initial);
    for (messages, digests) in messages.chunks(2).zip(digests.chunks_mut(2)) {
        let mut states = [initial; 2];
        if let [first, second] = *messages {
            let together = first.len().min(second.len());
            for blocks in first.iter().zip(second) {
                compress(&mut states, [blocks.0, blocks.1]);
            }
            finish(&mut states[0], &first[together..]);
            finish(&mut states[1], &second[together..]);
        } else if let [message] = *messages {
            finish(&mut states[0], message);
        }
        for schedule in suffix {
            compress_known(&mut states, schedule);
        }
        for (digest, state) in digests.iter_mut().zip(states) {
            *digest = unpacked(state);
        }
    }
}

#[target_feature(enable = "sha,sse4.1,ssse3")]
#[inline]
fn finish(state: &mut State, blocks: &[Block]) {
    for block in blocks {
        let mut states = [*state];
        compress(&mut states, [block]);
        *state = states[0];
    }
}

/// Groups of four rounds. A macro makes every array index a constant, so that the arrays stay in registers.
macro_rules! four_rounds {
    ($lanes:ident, $states:ident, $words:ident; $($group:literal)*) => { $(
        let [k0, k1, k2, k3] = SHA256_K.as_chunks::<4>().0[$group].map(u32::cast_signed);
        let constants = _mm_set_epi32(k3, k2, k1, k0);
        for lane in 0..$lanes {
            if $group >= 4 {
                $words[lane][$group % 4] = next_words(&$words[lane], $group % 4);
            }
            let [abef, cdgh] = &mut $states[lane];
            let text = _mm_add_epi32($words[lane][$group % 4], constants);
            *cdgh = _mm_sha256rnds2_epu32(*cdgh, *abef, text);
            *abef = _mm_sha256rnds2_epu32(*abef, *cdgh, _mm_shuffle_epi32::<0x0e>(text));
        }
    )* };
}

/// Hashes one block of each of `LANES` messages.
#[target_feature(enable = "sha,sse4.1,ssse3")]
#[inline]
fn compress<const LANES: usize>(states: &mut [State; LANES], blocks: [&Block; LANES]) {
    let before = *states;
    let mut words = [[zero(); 4]; LANES];
    for lane in 0..LANES {
        words[lane] = big_endian_words(blocks[lane]);
    }
    four_rounds!(LANES, states, words; 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
    for lane in 0..LANES {
        for half in 0..2 {
            states[lane][half] = _mm_add_epi32(states[lane][half], before[lane][half]);
        }
    }
}

/// Groups of four rounds of a block with a known schedule.
macro_rules! four_known_rounds {
    ($states:ident, $schedule:ident; $($group:literal)*) => { $(
        let text: __m128i = bytemuck::cast($schedule.as_chunks::<4>().0[$group]);
        for [abef, cdgh] in &mut $states {
            *cdgh = _mm_sha256rnds2_epu32(*cdgh, *abef, text);
            *abef = _mm_sha256rnds2_epu32(*abef, *cdgh, _mm_shuffle_epi32::<0x0e>(text));
        }
    )* };
}

/// Hashes a block that is equal in both messages.
#[target_feature(enable = "sha,sse4.1,ssse3")]
#[inline]
fn compress_known(before: &mut [State; 2], schedule: &Schedule) {
    let mut states = *before;
    four_known_rounds!(states, schedule; 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
    for (before, state) in before.as_flattened_mut().iter_mut().zip(states.as_flattened()) {
        *before = _mm_add_epi32(*before, *state);
    }
}

/// Returns the next four words of the schedule, which replace the four oldest.
#[target_feature(enable = "sha,sse4.1,ssse3")]
#[inline]
fn next_words(words: &[__m128i; 4], oldest: usize) -> __m128i {
    let word = |age: usize| words[(oldest + age) % 4];
    let sum = _mm_add_epi32(_mm_sha256msg1_epu32(word(0), word(1)), _mm_alignr_epi8::<4>(word(3), word(2)));
    _mm_sha256msg2_epu32(sum, word(3))
}

#[target_feature(enable = "ssse3")]
#[inline]
fn big_endian_words(block: &Block) -> [__m128i; 4] {
    let order = _mm_set_epi32(0x0c0d_0e0f, 0x0809_0a0b, 0x0405_0607, 0x0001_0203);
    let mut words: [__m128i; 4] = bytemuck::cast(*block);
    for word in &mut words {
        *word = _mm_shuffle_epi8(*word, order);
    }
    words
}

#[target_feature(enable = "sse2")]
#[inline]
fn zero() -> __m128i {
    _mm_set_epi32(0, 0, 0, 0)
}

#[target_feature(enable = "sse4.1,ssse3")]
#[inline]
fn packed(state: &Sha256State) -> State {
    let [abcd, efgh]: [__m128i; 2] = bytemuck::cast(*state);
    let (abcd, efgh) = (_mm_shuffle_epi32::<0xb1>(abcd), _mm_shuffle_epi32::<0x1b>(efgh));
    [_mm_alignr_epi8::<8>(abcd, efgh), _mm_blend_epi16::<0xf0>(efgh, abcd)]
}

/// Returns a state as a digest.
#[target_feature(enable = "sse4.1,ssse3")]
#[inline]
fn unpacked([abef, cdgh]: State) -> [u8; 32] {
    let (abef, cdgh) = (_mm_shuffle_epi32::<0x1b>(abef), _mm_shuffle_epi32::<0xb1>(cdgh));
    let words = [_mm_blend_epi16::<0xf0>(abef, cdgh), _mm_alignr_epi8::<8>(cdgh, abef)];
    let mut words: [u32; 8] = bytemuck::cast(words);
    for word in &mut words {
        *word = word.to_be();
    }
    bytemuck::cast(words)
}
