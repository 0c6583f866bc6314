//! What every way of hashing takes and gives: blocks, and the state between two of them.

/// A block of SHA-256 and of MD5.
pub(crate) type Block = [u8; BLOCK_BYTES];

/// The size of [`Block`].
pub(crate) const BLOCK_BYTES: usize = 64;

/// A SHA-256 state between two blocks.
pub(crate) type Sha256State = [u32; 8];

/// FIPS 180-4, section 5.3.3.
pub(crate) const SHA256_INITIAL: Sha256State =
    [0x6a09_e667, 0xbb67_ae85, 0x3c6e_f372, 0xa54f_f53a, 0x510e_527f, 0x9b05_688c, 0x1f83_d9ab, 0x5be0_cd19];

/// RFC 1321, section 3.3.
pub(crate) const MD5_INITIAL: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
