//! The sizes of a page: the stated sizes of its header, for the meter, and the size of a body with another codec.
//!
//! Most codecs write no more than the header states. Bodies of the other codecs are decompressed once to a sink, if they
//! are long enough to exceed the limit.
//!
//! Without it: a page of GZIP or Brotli whose header states 512 bytes takes up to a thousand times its length.

use std::io::Read;

use parquet::basic::Compression;

use super::page_meter::MAX_HELD_BYTES as MAX_PAGE_BYTES;
use super::thrift::{Shape, Thrift};

pub(crate) const TOO_LARGE: &str = "a page is too large";

/// The fields of `PageHeader` (parquet.thrift).
const PAGE_HEADER: &[(i64, Shape)] = &[
    (TYPE, Shape::I32),
    (UNCOMPRESSED, Shape::I32),
    (COMPRESSED, Shape::I32),
    (4, Shape::I32),
    (5, Shape::Struct(DATA_PAGE_HEADER)),
    (6, Shape::Struct(&[])),
    (7, Shape::Struct(&[(1, Shape::I32), (2, Shape::I32), (3, Shape::Boolean)])),
    (8, Shape::Struct(DATA_PAGE_HEADER_V2)),
];
const TYPE: i64 = 1;
const DICTIONARY_PAGE: i32 = 2;
const UNCOMPRESSED: i64 = 2;
const COMPRESSED: i64 = 3;
const DATA_PAGE_HEADER: &[(i64, Shape)] =
    &[(1, Shape::I32), (2, Shape::I32), (3, Shape::I32), (4, Shape::I32), (5, Shape::Skipped)];
const DATA_PAGE_HEADER_V2: &[(i64, Shape)] = &[
    (1, Shape::I32),
    (2, Shape::I32),
    (3, Shape::I32),
    (4, Shape::I32),
    (5, Shape::I32),
    (6, Shape::I32),
    (7, Shape::Boolean),
    (8, Shape::Skipped),
];

/// The sizes in the header of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PageSizes {
    /// The larger one of the compressed and the decompressed size.
    pub(crate) bytes: usize,
    pub(crate) is_dictionary: bool,
    /// The bytes of levels before the compressed data.
    pub(crate) level_bytes: usize,
}

/// Checks a header (parquet.thrift, `PageHeader`).
pub(crate) fn check_page_header(header: &[u8]) -> Result<PageSizes, &'static str> {
    const MALFORMED: &str = "a page header is malformed";
    let mut sizes = [None; 2];
    let mut is_dictionary = false;
    let is_known = Thrift::new(header).known(PAGE_HEADER, &mut |id, number| match id {
        TYPE => is_dictionary = number == DICTIONARY_PAGE,
        UNCOMPRESSED => sizes[0] = Some(number),
        COMPRESSED => sizes[1] = Some(number),
        _ => {}
    });
    let ([Some(uncompressed), Some(compressed)], Some(())) = (sizes, is_known) else {
        return Err(MALFORMED);
    };
    let bytes = usize::try_from(uncompressed).ok().zip(usize::try_from(compressed).ok());
    let bytes = bytes.map(|(uncompressed, compressed)| uncompressed.max(compressed));
    let bytes = bytes.ok_or(MALFORMED)?;
    let levels = levels_of_v2(header).and_then(|levels| usize::try_from(levels).ok());
    Ok(PageSizes { bytes, is_dictionary, level_bytes: levels.unwrap_or(0) })
}

/// Returns the lengths of both kinds of levels, if the header, which was checked, has a `data_page_header_v2` behind the
/// sizes and perhaps a checksum.
fn levels_of_v2(header: &[u8]) -> Option<i64> {
    let (mut thrift, mut id) = (Thrift::new(header), 0);
    for _ in 0..3 {
        thrift.next_i32(&mut id)?;
    }
    thrift.field(&mut id)??;
    if id == 4 {
        thrift.zigzag()?;
        thrift.field(&mut id)??;
    }
    if id != 8 {
        return None;
    }
    let mut id = 0;
    let mut next_i32 = || thrift.next_i32(&mut id);
    let [_values, _nulls, _rows, _encoding] = [next_i32()?, next_i32()?, next_i32()?, next_i32()?];
    next_i32()?.checked_add(next_i32()?)
}

/// Returns whether a page decompresses to less than the maximum. Invalid compressed bytes do.
pub(crate) fn inflates_to_a_page(codec: Compression, body: &[u8]) -> bool {
    /// Maximum decompressed bytes per byte of deflate; the next constant is for LZ4.
    const MAX_DEFLATE_RATIO: usize = 1032;
    const MAX_LZ4_RATIO: usize = 255;
    match codec {
        Compression::GZIP(_) if body.len() > MAX_PAGE_BYTES / MAX_DEFLATE_RATIO => {
            stays_under_the_ceiling(flate2::read::MultiGzDecoder::new(body))
        }
        Compression::BROTLI(_) => stays_under_the_ceiling(brotli::Decompressor::new(body, 4096)),
        // This codec is ambiguous. The reader tries frames last, and only frames have no bound.
        Compression::LZ4 if body.len() > MAX_PAGE_BYTES / MAX_LZ4_RATIO => !is_lz4_frame(body),
        _ => true,
    }
}

fn stays_under_the_ceiling(mut inflated: impl Read) -> bool {
    let mut buffer = vec![0; 64 << 10];
    let mut total = 0;
    while total <= MAX_PAGE_BYTES {
        match inflated.read(&mut buffer) {
            Ok(0) | Err(_) => return true,
            Ok(length) => total += length,
        }
    }
    false
}

fn is_lz4_frame(body: &[u8]) -> bool {
    body.first_chunk()
        .is_some_and(|magic| matches!(u32::from_le_bytes(*magic), 0x184d_2204 | 0x184d_2a50..=0x184d_2a5f))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn the_sizes_of_a_page_header_are_not_negative() {
        // type 0, uncompressed 2000 = zigzag 4000, compressed 1000 = zigzag 2000
        let honest = [0x15, 0x00, 0x15, 0xa0, 0x1f, 0x15, 0xd0, 0x0f, 0x2c, 0x15, 0x02, 0x00, 0x00];
        let sizes = PageSizes { bytes: 2000, is_dictionary: false, level_bytes: 0 };
        assert_eq!(check_page_header(&honest), Ok(sizes));
        let negative = [0x15, 0x00, 0x15, 0x01, 0x15, 0xd0, 0x0f, 0x00];
        assert_eq!(check_page_header(&negative), Err("a page header is malformed"));
        for end in 0..honest.len() {
            assert_eq!(check_page_header(&honest[..end]), Err("a page header is malformed"));
        }
    }

    #[test]
    fn a_size_is_not_replaced_behind_the_one_that_is_checked() {
        let begin = [0x15, 0x00, 0x15, 0xa0, 0x1f, 0x15, 0xd0, 0x0f];
        let huge = [0xfe, 0xff, 0xff, 0xff, 0x0f];
        for again in [
            // The uncompressed size once more, under its id and under one that is cut to it.
            [&[0x05, 0x04][..], &huge, &[0x00]].concat(),
            [&[0x05, 0x84, 0x80, 0x08][..], &huge, &[0x00]].concat(),
            // In a text that is the checksum of another reader, and in the fields of a page.
            [&[0x18, 0x07, 0x05, 0x04][..], &huge, &[0x00]].concat(),
            [&[0x2c, 0x18, 0x08, 0x00, 0x05, 0x04][..], &huge, &[0x00, 0x00, 0x00]].concat(),
        ] {
            let header = [&begin[..], &again].concat();
            assert_eq!(check_page_header(&header), Err("a page header is malformed"), "{again:x?}");
        }
    }

    #[test]
    fn the_levels_of_a_second_version_page_are_found_with_and_without_a_checksum() {
        let levels = |header: &[u8]| check_page_header(header).unwrap().level_bytes;
        let begin = [0x15, 0x06, 0x15, 0xa0, 0x1f, 0x15, 0xd0, 0x0f];
        // values, nulls, rows, encoding, 3 bytes of definition and 5 of repetition levels
        let inner = [0x15, 2, 0x15, 0, 0x15, 2, 0x15, 0, 0x15, 6, 0x15, 10, 0x00, 0x00];
        assert_eq!(levels(&[&begin[..], &[0x5c], &inner].concat()), 8);
        assert_eq!(levels(&[&begin[..], &[0x15, 0xff, 0x7f, 0x4c], &inner].concat()), 8);
        // data_page_header, the first version's: values and three encodings
        let inner = [0x15, 2, 0x15, 0, 0x15, 6, 0x15, 6, 0x00, 0x00];
        assert_eq!(levels(&[&begin[..], &[0x2c], &inner].concat()), 0);
    }

    fn gzip(content: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(content).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn a_body_that_inflates_beyond_the_ceiling_is_refused() {
        let zeros = vec![0; MAX_PAGE_BYTES];
        let gzip_codec = Compression::GZIP(parquet::basic::GzipLevel::default());
        let at_the_ceiling = gzip(&zeros);
        assert!(inflates_to_a_page(gzip_codec, &at_the_ceiling));
        assert!(!inflates_to_a_page(gzip_codec, &[at_the_ceiling, gzip(b"more")].concat()));
        assert!(
            inflates_to_a_page(gzip_codec, &vec![7; 1 << 20]),
            "what is no gzip is refused by its reader"
        );

        let brotli_codec = Compression::BROTLI(parquet::basic::BrotliLevel::default());
        let mut bomb = Vec::new();
        brotli::CompressorWriter::new(&mut bomb, 4096, 1, 22).write_all(&[zeros, vec![0]].concat()).unwrap();
        assert!(bomb.len() < MAX_PAGE_BYTES / 100);
        assert!(!inflates_to_a_page(brotli_codec, &bomb));
        assert!(inflates_to_a_page(brotli_codec, b"no brotli"));

        let frame = [&0x184d_2204_u32.to_le_bytes()[..], &vec![0; 2 << 20]].concat();
        assert!(!inflates_to_a_page(Compression::LZ4, &frame));
        assert!(inflates_to_a_page(Compression::LZ4, &frame[..100]));
    }
}
