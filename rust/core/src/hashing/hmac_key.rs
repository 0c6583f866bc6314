//! An HMAC-SHA256 key as the two hash states after its padded blocks, which are hashed once per key.

use super::{
    BLOCK_BYTES, Block, SHA256_INITIAL, Sha256State, absorb_whole_blocks, big_endian, blocks, pad_sha256,
};
use sha2::{Digest, block_api::compress256};

/// RFC 2104 with the key's blocks already hashed. As secret as the key itself.
#[derive(Clone, Copy)]
pub(crate) struct HmacKey {
    inner: Sha256State,
    outer: Sha256State,
}

impl HmacKey {
    pub(crate) fn new(key: &[u8]) -> Self {
        let mut block: Block = [0; BLOCK_BYTES];
        if key.len() > BLOCK_BYTES {
            block[..32].copy_from_slice(&sha2::Sha256::digest(key));
        } else {
            block[..key.len()].copy_from_slice(key);
        }
        Self { inner: padded_key_state(block, 0x36), outer: padded_key_state(block, 0x5c) }
    }

    /// The state in which a message is hashed; [`BLOCK_BYTES`] are absorbed in it.
    pub(crate) fn inner(&self) -> Sha256State {
        self.inner
    }

    /// The state in which the message's digest is hashed, as the one block [`outer_block`].
    pub(crate) fn outer(&self) -> Sha256State {
        self.outer
    }

    pub(crate) fn sign(&self, message: &[u8]) -> [u8; 32] {
        let mut state = self.inner;
        let mut rest = absorb_whole_blocks(&mut state, message).to_vec();
        let absorbed_bytes = BLOCK_BYTES + message.len() - rest.len();
        pad_sha256(&mut rest, absorbed_bytes);
        compress256(&mut state, blocks(&rest));
        let mut outer = self.outer;
        compress256(&mut outer, &[outer_block(&big_endian(&state))]);
        big_endian(&outer)
    }
}

fn padded_key_state(mut block: Block, pad: u8) -> Sha256State {
    for byte in &mut block {
        *byte ^= pad;
    }
    let mut state = SHA256_INITIAL;
    compress256(&mut state, &[block]);
    state
}

/// The padded block that holds an inner digest.
pub(crate) fn outer_block(digest: &[u8; 32]) -> Block {
    const TOTAL_BITS: u64 = ((BLOCK_BYTES + 32) * 8) as u64;
    let mut block = [0; BLOCK_BYTES];
    block[..32].copy_from_slice(digest);
    block[32] = 0x80;
    block[56..].copy_from_slice(&TOTAL_BITS.to_be_bytes());
    block
}

#[cfg(test)]
mod tests {
    use hmac::{Hmac, KeyInit, Mac};
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn agrees_with_the_hmac_crate(
            key in prop::collection::vec(any::<u8>(), 0..150),
            message in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            let mut expected = Hmac::<sha2::Sha256>::new_from_slice(&key).unwrap();
            expected.update(&message);
            let expected = expected.finalize().into_bytes();
            prop_assert_eq!(&HmacKey::new(&key).sign(&message)[..], &expected[..]);
        }
    }
}
