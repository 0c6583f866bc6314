//! Reads JSON in one pass, without recursion and without a tree.

use std::borrow::Cow;

use memchr::{memchr, memchr2, memchr3};

/// A string without its quotes, with its escapes if `escaped`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct JsonText<'a> {
    pub(crate) json: &'a str,
    pub(crate) escaped: bool,
}

impl<'a> JsonText<'a> {
    /// Returns the decoded string, `None` if it is not well-formed.
    pub(crate) fn unescaped(self) -> Option<Cow<'a, str>> {
        if !self.escaped {
            return Some(self.json.into());
        }
        Some(serde_json::from_str::<String>(&format!("\"{}\"", self.json)).ok()?.into())
    }
}

/// Its methods return `None` where the text is not JSON.
pub(crate) struct Scanner<'a> {
    pub(crate) json: &'a str,
    pub(crate) position: usize,
}

impl<'a> Scanner<'a> {
    fn rest(&self) -> &'a [u8] {
        self.json.as_bytes().get(self.position..).unwrap_or_default()
    }

    /// The next byte that is not a blank.
    pub(crate) fn peek(&mut self) -> Option<u8> {
        loop {
            let byte = *self.json.as_bytes().get(self.position)?;
            if !matches!(byte, b' ' | b'\n' | b'\r' | b'\t') {
                return Some(byte);
            }
            self.position += 1;
        }
    }

    pub(crate) fn take(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.position += 1)
    }

    /// Goes to the next byte of this value, wherever it is.
    pub(crate) fn skip_to(&mut self, byte: u8) -> bool {
        let next = memchr(byte, self.rest());
        self.position += next.unwrap_or_default();
        next.is_some()
    }

    /// The key of an object's next member and the colon after it; `Some(None)` at the object's end.
    #[allow(clippy::option_option)]
    pub(crate) fn next_key(&mut self, first: &mut bool) -> Option<Option<JsonText<'a>>> {
        match self.peek()? {
            b'}' => {
                self.position += 1;
                return Some(None);
            }
            b',' if !*first => self.position += 1,
            _ if *first => {}
            _ => return None,
        }
        *first = false;
        if self.peek()? != b'"' {
            return None;
        }
        let key = self.string()?;
        self.take(b':')?;
        Some(Some(key))
    }

    pub(crate) fn string(&mut self) -> Option<JsonText<'a>> {
        self.take(b'"')?;
        let start = self.position;
        let mut escaped = false;
        loop {
            self.position += memchr2(b'"', b'\\', self.rest())?;
            if self.rest().first() == Some(&b'"') {
                let json = self.json.get(start..self.position)?;
                self.position += 1;
                return Some(JsonText { json, escaped });
            }
            escaped = true;
            self.position += 2;
        }
    }

    pub(crate) fn word(&mut self) -> Option<&'a str> {
        let rest = self.rest();
        let length = rest
            .iter()
            .position(|byte| matches!(byte, b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t'))
            .unwrap_or(rest.len());
        let word = self.json.get(self.position..self.position + length)?;
        self.position += length;
        (length > 0).then_some(word)
    }

    pub(crate) fn skip_value(&mut self) -> Option<()> {
        match self.peek()? {
            b'"' => self.string().map(drop),
            open @ (b'{' | b'[') => {
                self.position += 1;
                self.skip_rest(open)
            }
            _ => self.word().map(drop),
        }
    }

    /// Skips to the end of the current object or array, which `open` begins.
    pub(crate) fn skip_rest(&mut self, open: u8) -> Option<()> {
        let close = if open == b'{' { b'}' } else { b']' };
        let mut depth = 1_u32;
        while depth > 0 {
            self.position += memchr3(b'"', open, close, self.rest())?;
            match *self.rest().first()? {
                b'"' => {
                    self.string()?;
                    continue;
                }
                byte if byte == open => depth += 1,
                _ => depth -= 1,
            }
            self.position += 1;
        }
        Some(())
    }
}
