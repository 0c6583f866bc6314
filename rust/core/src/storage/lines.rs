//! Refuses a file of the log with a line that is too long while it is read, before all of it is in memory.

use memchr::{memchr, memchr_iter, memrchr};

use crate::error::{Error, Result};
use crate::log_path;

/// A longer line cannot be an action: the schema of 10,000 columns has 2 MB.
pub(crate) const MAX_LINE_BYTES: usize = 32 << 20;

/// The lines of a file that is read in pieces.
pub(super) struct LineLengths<'a> {
    name: &'a str,
    /// The number of ended lines.
    ended: usize,
    /// The bytes of the line that has not ended.
    open_bytes: usize,
}

impl<'a> LineLengths<'a> {
    pub(super) fn of(path: &'a str) -> Self {
        Self { name: log_path::file_name(path), ended: 0, open_bytes: 0 }
    }

    /// Takes the next piece of the file. A line that is too long is an [`Error::CorruptLog`].
    pub(super) fn take(&mut self, piece: &[u8]) -> Result<()> {
        // A line within a piece is shorter than the piece.
        let first_bytes = memchr(b'\n', piece).unwrap_or(piece.len());
        if self.open_bytes + first_bytes > MAX_LINE_BYTES {
            return Err(Error::corrupt(self.name, format!("line {} is too long", self.ended + 1)));
        }
        match memrchr(b'\n', piece) {
            Some(last) => self.open_bytes = piece.len() - last - 1,
            None => self.open_bytes += piece.len(),
        }
        self.ended += memchr_iter(b'\n', piece).count();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first_refused(name: &str, pieces: &[&[u8]]) -> Option<(usize, String)> {
        let mut lines = LineLengths::of(name);
        pieces
            .iter()
            .enumerate()
            .find_map(|(index, piece)| lines.take(piece).err().map(|error| (index, error.to_string())))
    }

    #[test]
    fn a_line_that_is_too_long_is_refused_with_the_piece_that_exceeds_the_limit() {
        let mib = vec![b'x'; 1 << 20];
        let long: Vec<&[u8]> = std::iter::once(&b"a\nb\nc"[..]).chain((0..40).map(|_| &mib[..])).collect();
        let (piece, reason) = first_refused("t/_delta_log/00000000000000000000.json", &long).unwrap();
        assert_eq!(piece, 32);
        assert!(reason.contains("00000000000000000000.json: line 3 is too long"), "{reason}");
        let ended: Vec<&[u8]> = (0..40).flat_map(|_| [&mib[..], b"\n"]).collect();
        assert!(first_refused("00000000000000000000.json", &ended).is_none());
        assert!(first_refused("00000000000000000000.crc", &long).is_some());
        assert!(first_refused("00000000000000000000.json", &[b"", b"\n\n", b""]).is_none());
    }
}
