//! The expression tree that both kinds of hints are parsed to, without a schema.

use std::fmt;

use crate::schema::PrimitiveType;

/// More nodes than this in one hint, and the hint is skipped.
pub(crate) const MAX_NODES: usize = 50_000;

/// Deeper trees are skipped.
pub(crate) const MAX_DEPTH: usize = 100;

/// A boolean expression or an operand of one.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Expression {
    And(Vec<Expression>),
    Or(Vec<Expression>),
    Not(Box<Expression>),
    Compare(Comparison, Box<Expression>, Box<Expression>),
    IsNull(Box<Expression>),
    /// The operand equals one of the list.
    In(Box<Expression>, Vec<Expression>),
    Like(Box<Expression>, Pattern),
    Column(ColumnName),
    Literal(Literal),
    Cast(Box<Expression>, PrimitiveType),
    /// Something understood as syntax that no statistics can decide.
    Undecidable(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    /// `<=>`: two nulls are equal, null and a value are not.
    NullSafeEqual,
}

impl Comparison {
    /// The comparison with its sides exchanged.
    pub(crate) fn mirrored(self) -> Self {
        match self {
            Self::Less => Self::Greater,
            Self::LessOrEqual => Self::GreaterOrEqual,
            Self::Greater => Self::Less,
            Self::GreaterOrEqual => Self::LessOrEqual,
            other => other,
        }
    }

    fn symbol(self) -> &'static str {
        match self {
            Self::Equal => "=",
            Self::NotEqual => "<>",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
            Self::NullSafeEqual => "<=>",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ColumnName {
    /// SQL: a path of names, quoted parts already plain.
    Path(Vec<String>),
    /// JSON: one string, either a name with dots or a path, and the type that the client declared.
    Dotted(String, Option<PrimitiveType>),
}

/// A constant. Numbers and times stay text until the column's type is known, so that nothing is rounded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Literal {
    Null,
    Boolean(bool),
    Number(String, NumberKind),
    /// `other` is the value in a second dialect of SQL, if it differs.
    Text {
        text: String,
        other: Option<String>,
    },
    Date(String),
    Timestamp(String),
    /// A timestamp of a client that cuts its literals to milliseconds, towards 1970.
    CutTimestamp(String),
    TimestampNtz(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NumberKind {
    /// Integers and decimals.
    Exact,
    Float,
    Double,
}

/// A LIKE pattern, as much of it as bounds can use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pattern {
    /// The prefix of every match.
    pub(crate) prefix: String,
    pub(crate) rest: PatternRest,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PatternRest {
    /// Nothing: the pattern is the whole string.
    Nothing,
    /// One `%`: any continuation matches.
    Anything,
    /// More wildcards: some continuations match.
    Something,
}

impl Expression {
    pub(crate) fn undecidable(reason: impl Into<String>) -> Self {
        Self::Undecidable(reason.into())
    }

    /// The expressions that must all be true, outermost ANDs opened.
    pub(crate) fn into_conjuncts(self) -> Vec<Expression> {
        match self {
            Self::And(children) => children.into_iter().flat_map(Self::into_conjuncts).collect(),
            other => vec![other],
        }
    }
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}

fn number(formatter: &mut fmt::Formatter<'_>, text: &str, suffix: char, name: &str) -> fmt::Result {
    if text.ends_with(|character: char| character.is_ascii_digit()) {
        return write!(formatter, "{text}{suffix}");
    }
    write!(formatter, "CAST({} AS {name})", quoted(text))
}

fn joined(formatter: &mut fmt::Formatter<'_>, children: &[Expression], word: &str) -> fmt::Result {
    formatter.write_str("(")?;
    for (index, child) in children.iter().enumerate() {
        if index > 0 {
            formatter.write_str(word)?;
        }
        write!(formatter, "{child}")?;
    }
    formatter.write_str(")")
}

/// SQL that the parser of this crate reads back to the same tree.
impl fmt::Display for Expression {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::And(children) => joined(formatter, children, " AND "),
            Self::Or(children) => joined(formatter, children, " OR "),
            Self::Not(child) => write!(formatter, "NOT ({child})"),
            Self::Compare(comparison, left, right) => {
                write!(formatter, "{left} {} {right}", comparison.symbol())
            }
            Self::IsNull(child) => write!(formatter, "{child} IS NULL"),
            Self::In(child, list) => {
                write!(formatter, "{child} IN ")?;
                joined(formatter, list, ", ")
            }
            Self::Like(child, pattern) => write!(formatter, "{child} LIKE {pattern}"),
            Self::Column(name) => write!(formatter, "{name}"),
            Self::Literal(literal) => write!(formatter, "{literal}"),
            Self::Cast(child, to) => write!(formatter, "CAST({child} AS {to})"),
            Self::Undecidable(reason) => write!(formatter, "<{reason}>"),
        }
    }
}

impl fmt::Display for ColumnName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(parts) => {
                for (index, part) in parts.iter().enumerate() {
                    let dot = if index > 0 { "." } else { "" };
                    write!(formatter, "{dot}`{}`", part.replace('`', "``"))?;
                }
                Ok(())
            }
            Self::Dotted(name, _) => write!(formatter, "`{}`", name.replace('`', "``")),
        }
    }
}

impl fmt::Display for Literal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => formatter.write_str("NULL"),
            Self::Boolean(value) => write!(formatter, "{value}"),
            Self::Number(text, NumberKind::Exact) => formatter.write_str(text),
            Self::Number(text, NumberKind::Float) => number(formatter, text, 'F', "float"),
            Self::Number(text, NumberKind::Double) => number(formatter, text, 'D', "double"),
            Self::Text { text, .. } => formatter.write_str(&quoted(text)),
            Self::Date(text) => write!(formatter, "DATE {}", quoted(text)),
            Self::Timestamp(text) | Self::CutTimestamp(text) => {
                write!(formatter, "TIMESTAMP {}", quoted(text))
            }
            Self::TimestampNtz(text) => write!(formatter, "TIMESTAMP_NTZ {}", quoted(text)),
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let escaped = self.prefix.replace('\\', "\\\\").replace('%', "\\%").replace('_', "\\_");
        let tail = match self.rest {
            PatternRest::Nothing => "",
            PatternRest::Anything => "%",
            PatternRest::Something => "%_",
        };
        formatter.write_str(&quoted(&(escaped + tail)))
    }
}
