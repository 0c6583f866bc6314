//! SHA-256 (FIPS 180-4) and MD5 (RFC 1321) over vectors of words, one message in each lane.
//!
//! The algorithms are macros, so that each width is compiled with its own instructions. The module of a width defines
//! the vector `V`, the number of `LANES`, `transposed` (converts a block of each message to vectors of words) and the
//! operations `splat`, `add`, `xor3`, `choose`, `majority`, `md5_i`, `rotate_right` and `shift_right`.

use crate::hashing::block::{BLOCK_BYTES, Block};

/// The input of a lane without a message.
pub(super) static NO_BLOCK: Block = [0; BLOCK_BYTES];

/// Constants of RFC 1321, section 3.4.
#[rustfmt::skip]
pub(super) const MD5_K: [u32; 64] = [
    0xd76a_a478, 0xe8c7_b756, 0x2420_70db, 0xc1bd_ceee, 0xf57c_0faf, 0x4787_c62a, 0xa830_4613, 0xfd46_9501,
    0x6980_98d8, 0x8b44_f7af, 0xffff_5bb1, 0x895c_d7be, 0x6b90_1122, 0xfd98_7193, 0xa679_438e, 0x49b4_0821,
    0xf61e_2562, 0xc040_b340, 0x265e_5a51, 0xe9b6_c7aa, 0xd62f_105d, 0x0244_1453, 0xd8a1_e681, 0xe7d3_fbc8,
    0x21e1_cde6, 0xc337_07d6, 0xf4d5_0d87, 0x455a_14ed, 0xa9e3_e905, 0xfcef_a3f8, 0x676f_02d9, 0x8d2a_4c8a,
    0xfffa_3942, 0x8771_f681, 0x6d9d_6122, 0xfde5_380c, 0xa4be_ea44, 0x4bde_cfa9, 0xf6bb_4b60, 0xbebf_bc70,
    0x289b_7ec6, 0xeaa1_27fa, 0xd4ef_3085, 0x0488_1d05, 0xd9d4_d039, 0xe6db_99e5, 0x1fa2_7cf8, 0xc4ac_5665,
    0xf429_2244, 0x432a_ff97, 0xab94_23a7, 0xfc93_a039, 0x655b_59c3, 0x8f0c_cc92, 0xffef_f47d, 0x8584_5dd1,
    0x6fa8_7e4f, 0xfe2c_e6e0, 0xa301_4314, 0x4e08_11a1, 0xf753_7e82, 0xbd3a_f235, 0x2ad7_d2bb, 0xeb86_d391,
];

/// One round of SHA-256 with the sum of a schedule word and its constant. The caller rotates the names of the state's
/// words by one each round.
macro_rules! sha256_round {
    ($text:expr; $a:ident $b:ident $c:ident $d:ident $e:ident $f:ident $g:ident $h:ident) => {
        let sigma1 = xor3(rotate_right::<6, 26>($e), rotate_right::<11, 21>($e), rotate_right::<25, 7>($e));
        let t1 = add(add($h, sigma1), add(choose($e, $f, $g), $text));
        let sigma0 = xor3(rotate_right::<2, 30>($a), rotate_right::<13, 19>($a), rotate_right::<22, 10>($a));
        $d = add($d, t1);
        $h = add(t1, add(sigma0, majority($a, $b, $c)));
    };
}

/// Sixteen rounds of SHA-256. The macro `$text` returns the input of each round.
macro_rules! sha256_sixteen_rounds {
    ($text:ident; $a:ident $b:ident $c:ident $d:ident $e:ident $f:ident $g:ident $h:ident) => {
        sha256_round!($text!(0); $a $b $c $d $e $f $g $h);
        sha256_round!($text!(1); $h $a $b $c $d $e $f $g);
        sha256_round!($text!(2); $g $h $a $b $c $d $e $f);
        sha256_round!($text!(3); $f $g $h $a $b $c $d $e);
        sha256_round!($text!(4); $e $f $g $h $a $b $c $d);
        sha256_round!($text!(5); $d $e $f $g $h $a $b $c);
        sha256_round!($text!(6); $c $d $e $f $g $h $a $b);
        sha256_round!($text!(7); $b $c $d $e $f $g $h $a);
        sha256_round!($text!(8); $a $b $c $d $e $f $g $h);
        sha256_round!($text!(9); $h $a $b $c $d $e $f $g);
        sha256_round!($text!(10); $g $h $a $b $c $d $e $f);
        sha256_round!($text!(11); $f $g $h $a $b $c $d $e);
        sha256_round!($text!(12); $e $f $g $h $a $b $c $d);
        sha256_round!($text!(13); $d $e $f $g $h $a $b $c);
        sha256_round!($text!(14); $c $d $e $f $g $h $a $b);
        sha256_round!($text!(15); $b $c $d $e $f $g $h $a);
    };
}

/// The next sixteen words of SHA-256's message schedule.
macro_rules! sha256_expand {
    ($w:ident; $($i:literal)*) => { $(
        let (near, far) = ($w[($i + 1) % 16], $w[($i + 14) % 16]);
        let sigma0 = xor3(rotate_right::<7, 25>(near), rotate_right::<18, 14>(near), shift_right::<3>(near));
        let sigma1 = xor3(rotate_right::<17, 15>(far), rotate_right::<19, 13>(far), shift_right::<10>(far));
        $w[$i] = add(add($w[$i], sigma0), add($w[($i + 9) % 16], sigma1));
    )* };
}

macro_rules! md5_step {
    ($mix:expr, $k:expr, $w:expr, $right:literal $left:literal, $a:ident $b:ident) => {
        let sum = add(add($a, $mix), add(splat($k), $w));
        $a = add($b, rotate_right::<$right, $left>(sum));
    };
}

/// Sixteen steps of MD5 with a common function, four rotations and a stride through the message's words.
macro_rules! md5_round {
    ($w:ident; $mix:ident, $stride:literal $start:literal, $shifts:tt, $state:tt; $($at:literal)*) => { $(
        md5_four!($w; $mix, $at, $stride $start, $shifts, $state);
    )* };
}

macro_rules! md5_four {
    (
        $w:ident; $mix:ident, $at:literal, $stride:literal $start:literal,
        ($r0:literal $l0:literal $r1:literal $l1:literal $r2:literal $l2:literal $r3:literal $l3:literal),
        ($a:ident $b:ident $c:ident $d:ident)
    ) => {
        md5_step!($mix($b, $c, $d), MD5_K[$at], $w[($start + $at * $stride) % 16], $r0 $l0, $a $b);
        md5_step!($mix($a, $b, $c), MD5_K[$at + 1], $w[($start + ($at + 1) * $stride) % 16], $r1 $l1, $d $a);
        md5_step!($mix($d, $a, $b), MD5_K[$at + 2], $w[($start + ($at + 2) * $stride) % 16], $r2 $l2, $c $d);
        md5_step!($mix($c, $d, $a), MD5_K[$at + 3], $w[($start + ($at + 3) * $stride) % 16], $r3 $l3, $b $c);
    };
}

macro_rules! hash_functions {
    ($features:literal) => {
        /// Hashes padded `messages` with the state `initial`. With a `suffix`, messages must have equal lengths.
        #[target_feature(enable = $features)]
        pub(super) fn sha256(
            initial: &Sha256State,
            messages: &[&[Block]],
            suffix: &[Schedule],
            digests: &mut [[u8; 32]],
        ) {
            for (messages, digests) in messages.chunks(LANES).zip(digests.chunks_mut(LANES)) {
                let mut state = [splat(0); 8];
                for (vector, word) in state.iter_mut().zip(initial) {
                    *vector = splat(*word);
                }
                let lanes = lanes(messages);
                for index in 0..longest(messages) {
                    sha256_block(&mut state, big_endian_words(rows(&lanes, index)));
                    if suffix.is_empty() && ends_after(messages, index) {
                        write_sha256(&state, ended_after(messages, digests, index));
                    }
                }
                for schedule in suffix {
                    sha256_known_block(&mut state, schedule);
                }
                if !suffix.is_empty() {
                    write_sha256(&state, digests.iter_mut().enumerate());
                }
            }
        }

        #[target_feature(enable = $features)]
        #[inline]
        fn write_sha256<'digest>(
            state: &[V; 8],
            digests: impl Iterator<Item = (usize, &'digest mut [u8; 32])>,
        ) {
            let mut rows = [NO_BLOCK; LANES];
            for (row, words) in rows.iter_mut().zip(state) {
                row[..size_of::<V>()].copy_from_slice(bytemuck::bytes_of(&swap_bytes(*words)));
            }
            // One vector per lane, with the words of its digest.
            let lanes = transposed(rows.each_ref());
            for (lane, digest) in digests {
                digest.copy_from_slice(&bytemuck::bytes_of(&lanes[lane])[..32]);
            }
        }

        /// Hashes padded `messages`.
        #[target_feature(enable = $features)]
        pub(super) fn md5(messages: &[&[Block]], digests: &mut [[u8; 16]]) {
            for (messages, digests) in messages.chunks(LANES).zip(digests.chunks_mut(LANES)) {
                let mut state = [splat(0); 4];
                for (vector, word) in state.iter_mut().zip(MD5_INITIAL) {
                    *vector = splat(word);
                }
                let lanes = lanes(messages);
                for index in 0..longest(messages) {
                    md5_block(&mut state, &transposed(rows(&lanes, index)));
                    if ends_after(messages, index) {
                        let words: [[u32; LANES]; 4] = bytemuck::cast(state);
                        for (lane, digest) in ended_after(messages, digests, index) {
                            for (bytes, word) in digest.as_chunks_mut::<4>().0.iter_mut().zip(&words) {
                                *bytes = word[lane].to_le_bytes();
                            }
                        }
                    }
                }
            }
        }

        #[target_feature(enable = $features)]
        #[inline]
        fn big_endian_words(rows: [&Block; LANES]) -> [V; 16] {
            let mut words = transposed(rows);
            for word in &mut words {
                *word = swap_bytes(*word);
            }
            words
        }

        #[target_feature(enable = $features)]
        #[inline]
        fn sha256_block(state: &mut [V; 8], mut w: [V; 16]) {
            let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = *state;
            for (group, k) in SHA256_K.as_chunks::<16>().0.iter().enumerate() {
                if group > 0 {
                    sha256_expand!(w; 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
                }
                macro_rules! text {
                    ($at:literal) => {
                        add(splat(k[$at]), w[$at])
                    };
                }
                sha256_sixteen_rounds!(text; a b c d e f g h);
            }
            for (vector, word) in state.iter_mut().zip([a, b, c, d, e, f, g, h]) {
                *vector = add(*vector, word);
            }
        }

        /// Hashes a block that is equal in all lanes.
        #[target_feature(enable = $features)]
        #[inline]
        fn sha256_known_block(state: &mut [V; 8], schedule: &Schedule) {
            let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = *state;
            for words in schedule.as_chunks::<16>().0 {
                macro_rules! text {
                    ($at:literal) => {
                        splat(words[$at])
                    };
                }
                sha256_sixteen_rounds!(text; a b c d e f g h);
            }
            for (vector, word) in state.iter_mut().zip([a, b, c, d, e, f, g, h]) {
                *vector = add(*vector, word);
            }
        }

        #[target_feature(enable = $features)]
        #[inline]
        fn md5_block(state: &mut [V; 4], w: &[V; 16]) {
            let [mut a, mut b, mut c, mut d] = *state;
            md5_round!(w; choose, 1 0, (25 7 20 12 15 17 10 22), (a b c d); 0 4 8 12);
            md5_round!(w; md5_g, 5 1, (27 5 23 9 18 14 12 20), (a b c d); 16 20 24 28);
            md5_round!(w; xor3, 3 5, (28 4 21 11 16 16 9 23), (a b c d); 32 36 40 44);
            md5_round!(w; md5_i, 7 0, (26 6 22 10 17 15 11 21), (a b c d); 48 52 56 60);
            for (vector, word) in state.iter_mut().zip([a, b, c, d]) {
                *vector = add(*vector, word);
            }
        }

        #[target_feature(enable = $features)]
        #[inline]
        fn md5_g(x: V, y: V, z: V) -> V {
            choose(z, x, y)
        }

        /// Returns block `index` of each message, [`NO_BLOCK`] for a lane without one.
        #[inline]
        fn rows<'block>(lanes: &[&'block [Block]; LANES], index: usize) -> [&'block Block; LANES] {
            let mut rows = [&NO_BLOCK; LANES];
            for (row, message) in rows.iter_mut().zip(lanes) {
                if let Some(block) = message.get(index) {
                    *row = block;
                }
            }
            rows
        }

        /// Returns a message per lane, an empty one for the remaining lanes.
        #[inline]
        fn lanes<'block>(messages: &[&'block [Block]]) -> [&'block [Block]; LANES] {
            let mut lanes: [&[Block]; LANES] = [&[]; LANES];
            for (lane, message) in lanes.iter_mut().zip(messages) {
                *lane = message;
            }
            lanes
        }
    };
}

/// Returns the number of blocks of the longest message.
pub(super) fn longest(messages: &[&[Block]]) -> usize {
    messages.iter().map(|message| message.len()).max().unwrap_or(0)
}

/// Returns whether block `index` is the last one of a message.
pub(super) fn ends_after(messages: &[&[Block]], index: usize) -> bool {
    messages.iter().any(|message| message.len() == index + 1)
}

/// Returns the lanes whose last block is `index`, with their digests.
pub(super) fn ended_after<'digest, const BYTES: usize>(
    messages: &[&[Block]],
    digests: &'digest mut [[u8; BYTES]],
    index: usize,
) -> impl Iterator<Item = (usize, &'digest mut [u8; BYTES])> {
    messages
        .iter()
        .zip(digests)
        .enumerate()
        .filter(move |(_, (message, _))| message.len() == index + 1)
        .map(|(lane, (_, digest))| (lane, digest))
}
