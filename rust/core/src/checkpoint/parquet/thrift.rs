//! The compact protocol of Thrift, limited to the checks of footers and page headers.
//!
//! The reader allocates nothing and bounds its recursion, so it is safe for untrusted bytes. The Parquet reader decodes a
//! known field by its id whatever type the field states, and the last of several. A struct whose fields have other types
//! or another order than writers give them would be one struct here and another there, so [`Thrift::known`] rejects it.
//!
//! Without it: groups with the number of their children as an i64, or a schema that is a set, end the process.

/// Unknown fields nest less than this.
const MAX_SKIPPED_DEPTH: usize = 32;

/// Reads values of the compact protocol. `None` means that the bytes are malformed or cut.
pub(super) struct Thrift<'a> {
    rest: &'a [u8],
}

/// The type of a known field.
pub(super) enum Shape {
    Boolean,
    Byte,
    I32,
    Binary,
    /// A struct of these fields, by id.
    Struct(&'static [(i64, Shape)]),
    /// A struct that the Parquet reader skips.
    Skipped,
}

impl<'a> Thrift<'a> {
    pub(super) const I32: u8 = 5;
    pub(super) const I64: u8 = 6;
    pub(super) const LIST: u8 = 9;
    const BINARY: u8 = 8;
    const STRUCT: u8 = 12;

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

    /// Reads a struct to its end and shows `number` the id and the value of each i32, and the length of each text. Returns
    /// `None` unless the ids ascend and the known `fields` have their types.
    pub(super) fn known(
        &mut self,
        fields: &'static [(i64, Shape)],
        number: &mut dyn FnMut(i64, i32),
    ) -> Option<()> {
        let mut id = 0;
        loop {
            let before = id;
            let Some(kind) = self.field(&mut id)? else { return Some(()) };
            // The Parquet reader cuts an id to 16 bits.
            if id <= before || id > i64::from(i16::MAX) {
                return None;
            }
            let shape = fields.iter().find(|(known, _)| *known == id).map(|(_, shape)| shape);
            match (shape, kind) {
                (Some(Shape::I32), Self::I32) => number(id, i32::try_from(self.zigzag()?).ok()?),
                (Some(Shape::Binary), Self::BINARY) => number(id, self.skip_text()?),
                (Some(Shape::Struct(inner)), Self::STRUCT) => self.known(inner, &mut |_, _| {})?,
                (Some(Shape::Boolean), 1 | 2)
                | (Some(Shape::Byte), 3)
                | (Some(Shape::Skipped), Self::STRUCT)
                | (None, _) => self.skip_plain(kind, MAX_SKIPPED_DEPTH)?,
                _ => return None,
            }
        }
    }

    /// The number of the elements of a list of structs.
    pub(super) fn structs(&mut self) -> Option<u64> {
        self.list().filter(|(_, kind)| *kind == Self::STRUCT).map(|(length, _)| length)
    }

    /// The number and the type of the elements of a list.
    fn list(&mut self) -> Option<(u64, u8)> {
        let header = self.byte()?;
        let length = if header >> 4 == 15 { self.varint()? } else { u64::from(header >> 4) };
        Some((length, header & 0xf))
    }

    /// Skips a value of any type but containers, in which readers disagree about booleans.
    fn skip_plain(&mut self, kind: u8, depth: usize) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        match kind {
            // Booleans are in the field's header.
            1 | 2 => {}
            3 => _ = self.byte()?,
            4..=6 => _ = self.varint()?,
            7 => self.rest = self.rest.get(8..)?,
            8 => _ = self.skip_text()?,
            12 => {
                let mut id = 0;
                while let Some(kind) = self.field(&mut id)? {
                    self.skip_plain(kind, depth)?;
                }
            }
            _ => return None,
        }
        Some(())
    }

    /// Skips a text and returns its length.
    fn skip_text(&mut self) -> Option<i32> {
        let length = i32::try_from(self.varint()?).ok()?;
        self.rest = self.rest.get(length as usize..)?;
        Some(length)
    }

    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    fn varint(&mut self) -> Option<u64> {
        varint(&mut self.rest)
    }

    pub(super) fn zigzag(&mut self) -> Option<i64> {
        self.varint().map(zigzag)
    }
}

/// Reads an unsigned number in LEB128.
pub(super) fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, behind) = rest.split_first()?;
        *rest = behind;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

pub(super) fn zigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}
