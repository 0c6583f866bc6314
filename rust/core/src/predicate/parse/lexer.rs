//! Tokens of Spark SQL: names, numbers, strings with escapes, symbols.

use crate::predicate::expression::{MAX_DEPTH, NumberKind};

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Token<'a> {
    /// A single name without quotes, perhaps a keyword.
    Word(&'a str),
    /// Names joined by dots, or a quoted one.
    Path(Vec<String>),
    Number(&'a str, NumberKind),
    /// `other` is the value in a dialect in which a doubled quote is an escaped one.
    Text {
        text: String,
        other: Option<String>,
    },
    Symbol(&'static str),
    End,
}

/// The symbols, longest first, so that no symbol hides a longer one.
const SYMBOLS: [&str; 18] =
    ["<=>", "<=", "<>", "!=", "==", ">=", "||", "<", ">", "=", "(", ")", ",", "+", "-", "*", "/", "%"];

pub(crate) struct Lexer<'a> {
    sql: &'a str,
    position: usize,
}

impl<'a> Lexer<'a> {
    pub(crate) fn new(sql: &'a str) -> Self {
        Self { sql, position: 0 }
    }

    /// Returns the byte position of the next token.
    pub(crate) fn start_of_next(&mut self) -> usize {
        self.skip_blanks();
        self.position
    }

    fn rest(&self) -> &'a str {
        self.sql.get(self.position..).unwrap_or_default()
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    pub(crate) fn next_token(&mut self) -> Result<Token<'a>, String> {
        self.skip_blanks();
        let Some(first) = self.peek() else { return Ok(Token::End) };
        let second = self.rest().chars().nth(1);
        match (first, second) {
            ('r' | 'R', Some(quote @ ('\'' | '"'))) => {
                self.position += 1;
                let text = self.quoted(quote, true)?;
                Ok(Token::Text { text, other: None })
            }
            ('\'' | '"', _) => self.string(first),
            ('0'..='9', _) | ('.', Some('0'..='9')) => self.number(),
            // Spark skips comments. Here their words would be a part of the condition.
            ('-', Some('-')) | ('/', Some('*')) => Err(format!("a comment at {}", self.position)),
            _ if first == '`' || is_name_start(first) => self.name(),
            _ => match SYMBOLS.into_iter().find(|symbol| self.rest().starts_with(symbol)) {
                Some(symbol) => {
                    self.position += symbol.len();
                    Ok(Token::Symbol(symbol))
                }
                None => Err(self.unexpected()),
            },
        }
    }

    fn unexpected(&self) -> String {
        format!("unexpected character at {}", self.position)
    }

    fn skip_blanks(&mut self) {
        self.position += self.rest().len() - self.rest().trim_start().len();
    }

    fn take_while(&mut self, belongs: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let length = rest.find(|character| !belongs(character)).unwrap_or(rest.len());
        self.position += length;
        rest.get(..length).unwrap_or_default()
    }

    fn name(&mut self) -> Result<Token<'a>, String> {
        let plain = self.peek() != Some('`');
        let first = self.name_part()?;
        if plain && self.peek() != Some('.') {
            let start = self.position - first.len();
            return Ok(Token::Word(self.sql.get(start..self.position).unwrap_or_default()));
        }
        let mut parts = vec![first];
        while self.peek() == Some('.') {
            // Binding tries each tail of a path, so its cost is the square of the number of names.
            if parts.len() == MAX_DEPTH {
                return Err("a name has too many parts".into());
            }
            self.position += 1;
            parts.push(self.name_part()?);
        }
        Ok(Token::Path(parts))
    }

    fn name_part(&mut self) -> Result<String, String> {
        if self.peek() == Some('`') {
            return self.quoted_name();
        }
        match self.take_while(is_name_part) {
            "" => Err(self.unexpected()),
            word => Ok(word.to_owned()),
        }
    }

    fn quoted_name(&mut self) -> Result<String, String> {
        let mut name = String::new();
        loop {
            self.position += 1;
            name.push_str(self.take_while(|character| character != '`'));
            if self.peek().is_none() {
                return Err("a quoted name has no end".into());
            }
            self.position += 1;
            if self.peek() != Some('`') {
                return Ok(name);
            }
            name.push('`');
        }
    }

    fn number(&mut self) -> Result<Token<'a>, String> {
        let start = self.position;
        let digit = |character: char| character.is_ascii_digit();
        self.take_while(digit);
        if self.peek() == Some('.') {
            self.position += 1;
            self.take_while(digit);
        }
        let has_exponent = self.exponent();
        let text = self.sql.get(start..self.position).unwrap_or_default();
        let suffix = self.take_while(is_name_part).to_ascii_lowercase();
        let kind = match (suffix.as_str(), has_exponent) {
            ("", false) | ("l" | "s" | "y" | "bd", _) => NumberKind::Exact,
            ("", true) | ("d", _) => NumberKind::Double,
            ("f", _) => NumberKind::Float,
            _ => return Err(format!("not a number at {start}")),
        };
        Ok(Token::Number(text, kind))
    }

    fn exponent(&mut self) -> bool {
        let mut characters = self.rest().char_indices();
        let signed = match (characters.next(), characters.next(), characters.next()) {
            (Some((_, 'e' | 'E')), Some((_, '+' | '-')), Some((_, '0'..='9'))) => 2,
            (Some((_, 'e' | 'E')), Some((_, '0'..='9')), _) => 1,
            _ => return false,
        };
        self.position += signed;
        self.take_while(|character| character.is_ascii_digit());
        true
    }

    /// One string, or several behind each other, which are one.
    fn string(&mut self, quote: char) -> Result<Token<'a>, String> {
        let mut text = self.quoted(quote, false)?;
        let mut other = text.clone();
        loop {
            let end = self.position;
            self.skip_blanks();
            if self.peek() != Some(quote) {
                let differs = other != text;
                return Ok(Token::Text { text, other: differs.then_some(other) });
            }
            let doubled = self.position == end;
            let more = self.quoted(quote, false)?;
            text.push_str(&more);
            if doubled {
                other.push(quote);
            }
            other.push_str(&more);
        }
    }

    fn quoted(&mut self, quote: char, raw: bool) -> Result<String, String> {
        let start = self.position;
        self.position += 1;
        let mut text = String::new();
        loop {
            text.push_str(self.take_while(|character| character != quote && (raw || character != '\\')));
            match self.peek() {
                None => return Err(format!("the string at {start} has no end")),
                Some('\\') => self.escape(&mut text)?,
                Some(_) => {
                    self.position += 1;
                    return Ok(text);
                }
            }
        }
    }

    fn escape(&mut self, text: &mut String) -> Result<(), String> {
        self.position += 1;
        let Some(escaped) = self.peek() else { return Err("a string ends in a backslash".into()) };
        if let Some(character) = self.coded(escaped) {
            text.push(character);
            return Ok(());
        }
        self.position += escaped.len_utf8();
        match escaped {
            '0' => text.push('\0'),
            'b' => text.push('\u{8}'),
            't' => text.push('\t'),
            'n' => text.push('\n'),
            'r' => text.push('\r'),
            'Z' => text.push('\u{1a}'),
            // The pattern of a LIKE needs to see these.
            '%' | '_' => text.extend(['\\', escaped]),
            other => text.push(other),
        }
        Ok(())
    }

    /// `\uXXXX`, `\UXXXXXXXX` or three octal digits.
    fn coded(&mut self, first: char) -> Option<char> {
        let (skip, digits, radix) = match first {
            'u' => (1, 4, 16),
            'U' => (1, 8, 16),
            '0' | '1' => (0, 3, 8),
            _ => return None,
        };
        let digits = self.rest().get(skip..skip + digits)?;
        if !digits.chars().all(|digit| digit.is_digit(radix)) {
            return None;
        }
        let character = char::from_u32(u32::from_str_radix(digits, radix).ok()?)?;
        self.position += skip + digits.len();
        Some(character)
    }
}

fn is_name_start(character: char) -> bool {
    character.is_alphabetic() || character == '_'
}

fn is_name_part(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}
