//! File ids: the hex digest of a file's path as in the log. They do not depend on the URL or the server.

use arrow_array::{Array, StringViewArray};
use arrow_buffer::Buffer;

use crate::hashing::{BLOCK_BYTES, Engine, GROUP, SHA256_INITIAL, blocks, hex, pad_md5, pad_sha256};

/// The scheme of ids. These are the schemes of the reference server, so caches of clients remain valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdScheme {
    /// MD5, as in the parquet format.
    Parquet,
    /// SHA-256, as in the delta format.
    Delta,
}

impl IdScheme {
    /// The size of an id in bytes; its text is twice as long.
    #[must_use]
    pub const fn id_bytes(self) -> usize {
        match self {
            Self::Parquet => 16,
            Self::Delta => 32,
        }
    }
}

/// The ids of all files of a batch.
#[derive(Debug)]
pub struct FileIds {
    scheme: IdScheme,
    bytes: Buffer,
}

impl FileIds {
    /// Computes the ids of `paths`.
    #[must_use]
    pub fn of(scheme: IdScheme, paths: &StringViewArray) -> Self {
        let mut hasher = IdHasher::new(scheme);
        let mut bytes = Vec::with_capacity(paths.len() * scheme.id_bytes());
        for start in (0..paths.len()).step_by(GROUP) {
            let group = start..paths.len().min(start + GROUP);
            let digests = hasher.digests(group.clone().map(|index| paths.value(index)));
            for digest in &digests[..group.len()] {
                bytes.extend_from_slice(&digest[..scheme.id_bytes()]);
            }
        }
        Self { scheme, bytes: bytes.into() }
    }

    /// Ids that were computed before, one after the other.
    pub(crate) fn of_bytes(scheme: IdScheme, bytes: Buffer) -> Self {
        Self { scheme, bytes }
    }

    /// All ids, one after the other.
    pub(crate) fn bytes(&self) -> &Buffer {
        &self.bytes
    }

    /// Returns the scheme.
    #[must_use]
    pub fn scheme(&self) -> IdScheme {
        self.scheme
    }

    pub(crate) fn digest(&self, index: usize) -> Digest {
        match self.scheme {
            IdScheme::Parquet => {
                let id = self.bytes.as_chunks::<16>().0.get(index).copied().unwrap_or_default();
                bytemuck::cast([id, [0; 16]])
            }
            IdScheme::Delta => self.bytes.as_chunks().0.get(index).copied().unwrap_or_default(),
        }
    }

    /// Returns the memory in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity()
    }
}

/// Hashes names in groups, without allocation once its buffers have grown.
#[derive(Debug)]
pub(crate) struct IdHasher {
    scheme: IdScheme,
    engine: Engine,
    messages: [Vec<u8>; GROUP],
}

/// One digest of a group; an MD5 digest is its first half.
pub(crate) type Digest = [u8; 32];

impl IdHasher {
    pub(crate) fn new(scheme: IdScheme) -> Self {
        Self { scheme, engine: Engine::detect(false), messages: Default::default() }
    }

    pub(crate) fn scheme(&self) -> IdScheme {
        self.scheme
    }

    /// The digests of at most [`GROUP`] names.
    pub(crate) fn digests<'name>(&mut self, names: impl Iterator<Item = &'name str>) -> [Digest; GROUP] {
        let mut count = 0;
        for (message, name) in self.messages.iter_mut().zip(names) {
            message.clear();
            message.reserve(name.len() + 2 * BLOCK_BYTES);
            message.extend_from_slice(name.as_bytes());
            match self.scheme {
                IdScheme::Parquet => pad_md5(message),
                IdScheme::Delta => pad_sha256(message, 0),
            }
            count += 1;
        }
        let mut texts: [&[_]; GROUP] = [&[]; GROUP];
        for (text, message) in texts.iter_mut().zip(&self.messages[..count]) {
            *text = blocks(message);
        }
        let mut digests = [[0; 32]; GROUP];
        match self.scheme {
            IdScheme::Delta => self.engine.sha256(&SHA256_INITIAL, &texts[..count], &mut digests),
            IdScheme::Parquet => {
                let mut short = [[0; 16]; GROUP];
                self.engine.md5(&texts[..count], &mut short);
                for (digest, short) in digests.iter_mut().zip(&short) {
                    digest[..16].copy_from_slice(short);
                }
            }
        }
        digests
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct FileId<'digest> {
    pub(crate) scheme: IdScheme,
    pub(crate) digest: &'digest Digest,
}

impl FileId<'_> {
    pub(crate) fn append(self, out: &mut Vec<u8>) {
        match self.scheme {
            IdScheme::Parquet => {
                out.extend_from_slice(hex(&self.digest.as_chunks::<16>().0[0]).as_flattened());
            }
            IdScheme::Delta => out.extend_from_slice(hex(self.digest).as_flattened()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_the_digests_of_the_raw_path() {
        let paths: Vec<String> =
            (0..40).map(|index| format!("d=%C3%A9/{}part-{index}", "x".repeat(index * 3))).collect();
        let array = StringViewArray::from_iter_values(&paths);
        let md5 = FileIds::of(IdScheme::Parquet, &array);
        let sha256 = FileIds::of(IdScheme::Delta, &array);
        for (index, path) in paths.iter().enumerate() {
            use sha2::Digest;
            assert_eq!(md5.digest(index)[..16], md5::Md5::digest(path)[..]);
            assert_eq!(sha256.digest(index)[..], sha2::Sha256::digest(path)[..]);
        }
        assert_eq!(md5.memory_bytes(), 40 * 16);
    }
}
