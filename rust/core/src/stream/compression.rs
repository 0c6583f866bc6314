//! Content coding of an answer, chunk by chunk.
//!
//! A body is one gzip member or one zstd frame, flushed after each chunk: many decoders stop after the first one. With
//! gzip every chunk is compressed separately, so several threads can work on one answer: the chunks are fully flushed
//! parts of a single deflate stream, with a checksum combined from the checksums of the parts. A zstd frame is written
//! in order, because its blocks depend on earlier ones.

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

/// Less than the largest block of any frame that is made here.
const RAW_BLOCK_BYTES: usize = 1 << 16;

const GZIP_HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
/// An empty final block with fixed codes: ends the deflate stream.
const DEFLATE_END: [u8; 2] = [3, 0];

/// The part of a chunk in the checksum at the end of the body.
#[derive(Debug, Clone, Default)]
pub(crate) struct Checksum(Hasher);

/// Encodes one chunk of another coding than zstd. `Checksum` must be given to [`Trailer::add`] in the order of the chunks.
pub(crate) fn encode(coding: ContentCoding, plain: &[u8], out: &mut Vec<u8>) -> Result<Checksum> {
    match coding {
        ContentCoding::Identity | ContentCoding::Zstd => {
            out.extend_from_slice(plain);
            Ok(Checksum::default())
        }
        ContentCoding::Gzip => deflate(plain, out),
    }
}

/// The zstd frame of a body.
#[derive(Default)]
pub(crate) struct ZstdFrame(Option<zstd::Encoder<'static, Vec<u8>>>);

impl ZstdFrame {
    /// Appends the next chunk to `out`.
    pub(crate) fn write(&mut self, plain: &[u8], out: Vec<u8>) -> Result<Vec<u8>> {
        let encoder = self.begun()?;
        *encoder.get_mut() = out;
        encoder.write_all(plain).and_then(|()| encoder.flush()).map_err(failed)?;
        Ok(std::mem::take(encoder.get_mut()))
    }

    /// Returns a frame of one chunk.
    pub(crate) fn whole(plain: &[u8]) -> Result<Vec<u8>> {
        let mut encoder = zstd::Encoder::new(Vec::new(), LEVEL as i32).map_err(failed)?;
        encoder.write_all(plain).and_then(|()| encoder.finish()).map_err(failed)
    }

    /// Returns the end of a frame, with the last chunk in raw blocks. They refer to no earlier ones: chunks that were
    /// written may be left out.
    pub(crate) fn end(plain: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(plain.len() + 8);
        let mut rest = plain;
        loop {
            let (block, after) = rest.split_at(rest.len().min(RAW_BLOCK_BYTES));
            let header = ((block.len() as u32) << 3) | u32::from(after.is_empty());
            out.extend_from_slice(&header.to_le_bytes()[..3]);
            out.extend_from_slice(block);
            if after.is_empty() {
                return out;
            }
            rest = after;
        }
    }

    fn begun(&mut self) -> Result<&mut zstd::Encoder<'static, Vec<u8>>> {
        if self.0.is_none() {
            self.0 = Some(zstd::Encoder::new(Vec::new(), LEVEL as i32).map_err(failed)?);
        }
        self.0.as_mut().ok_or_else(|| Error::Internal { detail: "no zstd encoder".into() })
    }
}

#[allow(clippy::needless_pass_by_value, reason = "the signature of `map_err`")]
fn failed(error: std::io::Error) -> Error {
    Error::Internal { detail: error.to_string() }
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
        if coding == ContentCoding::Zstd {
            let mut frame = ZstdFrame::default();
            let mut out = Vec::new();
            for chunk in chunks {
                out.extend(frame.write(chunk, Vec::new()).unwrap());
            }
            // Bodies begin with lines; a chunk without any does not begin the frame.
            let is_begun = chunks.iter().any(|chunk| !chunk.is_empty());
            out.extend(if is_begun { ZstdFrame::end(b"") } else { ZstdFrame::whole(b"").unwrap() });
            return out;
        }
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

    /// Returns the whole body by a decoder that reads no second member or frame.
    fn decode_one(coding: ContentCoding, body: impl Read) -> Vec<u8> {
        let mut plain = Vec::new();
        match coding {
            ContentCoding::Identity => { body }.read_to_end(&mut plain).unwrap(),
            ContentCoding::Gzip => flate2::read::GzDecoder::new(body).read_to_end(&mut plain).unwrap(),
            ContentCoding::Zstd => {
                zstd::Decoder::new(body).unwrap().single_frame().read_to_end(&mut plain).unwrap()
            }
        };
        plain
    }

    /// Gives one byte at a time.
    struct ByteByByte<'a>(&'a [u8]);

    impl Read for ByteByByte<'_> {
        fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
            let most = into.len().min(1);
            self.0.read(&mut into[..most])
        }
    }

    const CODINGS: [ContentCoding; 3] = [ContentCoding::Identity, ContentCoding::Gzip, ContentCoding::Zstd];

    #[test]
    fn each_zstd_chunk_can_be_decoded_when_it_arrives() {
        let mut frame = ZstdFrame::default();
        let mut decoder = zstd::stream::write::Decoder::new(Vec::new()).unwrap();
        for chunk in [&b"one\n"[..], b"two\n", b"three\n"] {
            let before = decoder.get_ref().len();
            decoder.write_all(&frame.write(chunk, Vec::new()).unwrap()).unwrap();
            decoder.flush().unwrap();
            assert_eq!(&decoder.get_ref()[before..], chunk);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases / 4))]

        #[test]
        fn a_body_is_one_member_or_frame_for_every_decoder(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..5000), 1..6),
            repeats in 1usize..40,
        ) {
            let chunks: Vec<Vec<u8>> = chunks.into_iter().map(|chunk| chunk.repeat(repeats)).collect();
            let plain = chunks.concat();
            for coding in CODINGS {
                let body = code(coding, &chunks);
                prop_assert_eq!(&decode_one(coding, &body[..]), &plain);
                prop_assert_eq!(&decode_one(coding, ByteByByte(&body)), &plain);
            }
            let all = zstd::bulk::decompress(&code(ContentCoding::Zstd, &chunks), plain.len().max(1)).unwrap();
            prop_assert_eq!(&all, &plain);
        }
    }
}
