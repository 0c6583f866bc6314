//! The compact protocol of Thrift, limited to the checks of footers and page headers.
//!
//! The reader allocates nothing and bounds its recursion, so it is safe for untrusted bytes.

/// Unknown fields nest less than this.
const MAX_SKIPPED_DEPTH: usize = 32;

/// Reads values of the compact protocol. `None` means that the bytes are malformed or cut.
pub(super) struct Thrift<'a> {
    rest: &'a [u8],
}

impl<'a> Thrift<'a> {
    pub(super) const I32: u8 = 5;
    pub(super) const LIST: u8 = 9;
    pub(super) const STRUCT: u8 = 12;

    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The type of the next field of a struct. Replaces `id` with its id; the inner `None` is the end of the struct.
    #[allow(clippy::option_option)] // broken, ended, or a field
    pub(super) fn field(&mut self, id: &mut i64) -> Option<Option<u8>> {
        let header = self.byte()?;
        if header == 0 {
            return Some(None);
        }
        *id = match header >> 4 {
            0 => self.zigzag()?,
            delta => id.checked_add(i64::from(delta))?,
        };
        Some(Some(header & 0xf))
    }

    /// The next field of a struct if it is an i32 and its id follows `id`.
    pub(super) fn next_i32(&mut self, id: &mut i64) -> Option<i64> {
        let expected = id.checked_add(1)?;
        let kind = self.field(id)??;
        if (*id, kind) == (expected, Self::I32) { self.zigzag() } else { None }
    }

    /// The number and the type of the elements of a list.
    pub(super) fn list(&mut self) -> Option<(u64, u8)> {
        let header = self.byte()?;
        let length = if header >> 4 == 15 { self.varint()? } else { u64::from(header >> 4) };
        Some((length, header & 0xf))
    }

    /// Skips a value of any type.
    pub(super) fn skip(&mut self, kind: u8) -> Option<()> {
        self.skip_within(kind, MAX_SKIPPED_DEPTH)
    }

    fn skip_within(&mut self, kind: u8, depth: usize) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        match kind {
            // Booleans are in the field's header.
            1 | 2 => {}
            3 => _ = self.byte()?,
            4..=6 => _ = self.varint()?,
            7 => self.rest = self.rest.get(8..)?,
            8 => {
                let length = usize::try_from(self.varint()?).ok()?;
                self.rest = self.rest.get(length..)?;
            }
            9 | 10 => {
                let (length, kind) = self.list()?;
                for _ in 0..length {
                    self.skip_element(kind, depth)?;
                }
            }
            11 => {
                let length = self.varint()?;
                let kinds = if length > 0 { self.byte()? } else { 0 };
                for _ in 0..length {
                    self.skip_element(kinds >> 4, depth)?;
                    self.skip_element(kinds & 0xf, depth)?;
                }
            }
            12 => {
                let mut id = 0;
                while let Some(kind) = self.field(&mut id)? {
                    self.skip_within(kind, depth)?;
                }
            }
            _ => return None,
        }
        Some(())
    }

    /// In a list a boolean is a byte.
    fn skip_element(&mut self, kind: u8, depth: usize) -> Option<()> {
        if matches!(kind, 1 | 2) { self.byte().map(|_| ()) } else { self.skip_within(kind, depth) }
    }

    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    pub(super) fn zigzag(&mut self) -> Option<i64> {
        let value = self.varint()?;
        Some((value >> 1) as i64 ^ -((value & 1) as i64))
    }
}
