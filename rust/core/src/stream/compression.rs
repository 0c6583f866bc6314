//! Content coding of an answer, chunk by chunk, in parallel.
//!
//! Every chunk is compressed separately, so several threads can work on one answer, and the concatenated chunks are one
//! valid body. With gzip they are fully flushed parts of a single deflate stream: one member, with a checksum combined
//! from those of the parts. With zstd they are frames, which RFC 8878 allows to be concatenated.

use std::io::Write;

use crc32fast::Hasher;
use flate2::{Compress, Compression, FlushCompress, Status};

use crate::{Error, Result};

/// The coding of an answer's bytes (RFC 9110, Content-Encoding).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ContentCoding {
    /// No coding.
    #[default]
    Identity,
    /// RFC 1952.
    Gzip,
    /// RFC 8878.
    Zstd,
}

/// An NDJSON answer of signed URLs shrinks about eightfold at the lowest level already; higher ones cost more
/// time than they save bytes.
const LEVEL: u32 = 1;

const GZIP_HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
/// An empty final block with fixed codes: ends the deflate stream.
const DEFLATE_END: [u8; 2] = [3, 0];

/// The part of a chunk in the checksum at the end of the body.
#[derive(Debug, Clone, Default)]
pub(crate) struct Checksum(Hasher);

/// Encodes one chunk. `Checksum` must be given to [`Trailer::add`] in the order of the chunks.
pub(crate) fn encode(coding: ContentCoding, plain: &[u8], out: &mut Vec<u8>) -> Result<Checksum> {
    match coding {
        ContentCoding::Identity => {
            out.extend_from_slice(plain);
            Ok(Checksum::default())
        }
        ContentCoding::Gzip => deflate(plain, out),
        ContentCoding::Zstd => {
            let failed = |error: std::io::Error| Error::Internal { detail: error.to_string() };
            let mut frame = zstd::Encoder::new(&mut *out, LEVEL as i32).map_err(failed)?;
            frame.write_all(plain).and_then(|()| frame.finish().map(drop)).map_err(failed)?;
            Ok(Checksum::default())
        }
    }
}

fn deflate(plain: &[u8], out: &mut Vec<u8>) -> Result<Checksum> {
    let mut compress = Compress::new(Compression::new(LEVEL), false);
    out.reserve(plain.len() / 4 + 64);
    loop {
        let read = compress.total_in() as usize;
        let status = compress
            .compress_vec(&plain[read..], out, FlushCompress::Full)
            .map_err(|error| Error::Internal { detail: error.to_string() })?;
        // A flush is complete if the buffer has space left.
        if compress.total_in() as usize == plain.len() && out.len() < out.capacity() {
            let mut hasher = Hasher::new();
            hasher.update(plain);
            return Ok(Checksum(hasher));
        }
        if matches!(status, Status::StreamEnd) {
            return Err(Error::Internal { detail: "deflate ended before its input".into() });
        }
        out.reserve(out.len().max(4096));
    }
}

/// The part of the coding that belongs to the body as a whole.
#[derive(Debug, Clone, Default)]
pub(crate) struct Trailer {
    checksum: Hasher,
    plain_bytes: u64,
}

impl Trailer {
    /// Writes the bytes before the first chunk.
    pub(crate) fn begin(coding: ContentCoding, out: &mut Vec<u8>) {
        if coding == ContentCoding::Gzip {
            out.extend_from_slice(&GZIP_HEADER);
        }
    }

    /// Takes account of the next chunk.
    pub(crate) fn add(&mut self, checksum: &Checksum, plain_bytes: usize) {
        self.checksum.combine(&checksum.0);
        self.plain_bytes += plain_bytes as u64;
    }

    /// Writes the bytes after the last chunk.
    pub(crate) fn finish(self, coding: ContentCoding, out: &mut Vec<u8>) {
        if coding == ContentCoding::Gzip {
            out.extend_from_slice(&DEFLATE_END);
            out.extend_from_slice(&self.checksum.finalize().to_le_bytes());
            out.extend_from_slice(&(self.plain_bytes as u32).to_le_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use proptest::prelude::*;

    use super::*;

    fn code(coding: ContentCoding, chunks: &[Vec<u8>]) -> Vec<u8> {
        let (mut out, mut trailer) = (Vec::new(), Trailer::default());
        Trailer::begin(coding, &mut out);
        for chunk in chunks {
            let mut coded = Vec::new();
            let checksum = encode(coding, chunk, &mut coded).unwrap();
            trailer.add(&checksum, chunk.len());
            out.extend(coded);
        }
        trailer.finish(coding, &mut out);
        out
    }

    proptest! {
        #[test]
        fn chunks_coded_apart_decode_to_their_concatenation(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..5000), 1..6),
            repeats in 1usize..40,
        ) {
            let chunks: Vec<Vec<u8>> = chunks.into_iter().map(|chunk| chunk.repeat(repeats)).collect();
            let plain = chunks.concat();
            let mut read = Vec::new();
            // Not MultiGzDecoder: the body must be one member, as simple clients read no further.
            flate2::read::GzDecoder::new(&code(ContentCoding::Gzip, &chunks)[..]).read_to_end(&mut read).unwrap();
            prop_assert_eq!(&read, &plain);
            read.clear();
            zstd::Decoder::new(&code(ContentCoding::Zstd, &chunks)[..]).unwrap().read_to_end(&mut read).unwrap();
            prop_assert_eq!(&read, &plain);
            prop_assert_eq!(code(ContentCoding::Identity, &chunks), plain);
        }
    }
}
