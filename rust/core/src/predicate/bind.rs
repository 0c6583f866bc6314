//! Binds an [`Expression`] over names to the columns of one schema, as a [`Bound`].
//!
//! Negations are pushed down to the leaves, so a leaf only states which values it accepts and whether it accepts null. A
//! row matches only if the whole predicate is true; null does not match. The set of a leaf may be a superset of the
//! exact one (then it is not `exact`), never a subset.

use super::expression::{ColumnName, Comparison, Expression, Literal, NumberKind, Pattern, PatternRest};
use super::parse::json::shown;
use super::values::keys::{Coercion, KeyType, compare_as, literal_spread};
use super::values::number::{Number, Spread};
use super::values::ranges::{Ranges, TextCut};
use crate::civil_time;
use crate::schema::{Column, DataType, Names, PrimitiveType, StructType, Unresolved};

/// A column that a predicate refers to.
#[derive(Debug, Clone)]
pub(crate) struct BoundColumn {
    pub(crate) column: Column,
    pub(crate) key_type: KeyType,
    /// Its index in the partition columns.
    pub(crate) partition: Option<usize>,
    /// Whether clients get its partition values without the zone that the log names.
    pub(crate) is_read_in_any_zone: bool,
}

impl BoundColumn {
    /// Returns whether null counts are reliable. Some writers count null elements of an array as null arrays.
    pub(crate) fn counts_own_nulls(&self) -> bool {
        matches!(self.column.data_type, DataType::Primitive(primitive) if primitive != PrimitiveType::Variant)
    }
}

/// The values that a leaf accepts.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Set {
    Keys(Ranges<i128>),
    Text(Ranges<TextCut>),
}

/// A condition on one column: the accepted values, and whether null is accepted.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Leaf {
    /// The index in the columns of the binder.
    pub(crate) column: usize,
    pub(crate) set: Set,
    pub(crate) nulls: bool,
    /// Whether every accepted value matches.
    pub(crate) exact: bool,
}

/// A predicate without negations.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Bound {
    Always,
    Never,
    Undecided,
    Leaf(Leaf),
    And(Vec<Bound>),
    Or(Vec<Bound>),
}

impl Bound {
    /// Returns the memory in bytes, about.
    pub(super) fn memory_bytes(&self) -> usize {
        let own_bytes = match self {
            Self::Always | Self::Never | Self::Undecided => 0,
            Self::Leaf(Leaf { set: Set::Keys(keys), .. }) => keys.cuts.len() * size_of::<i128>(),
            Self::Leaf(Leaf { set: Set::Text(texts), .. }) => {
                texts.cuts.iter().map(|cut| size_of::<TextCut>() + cut.bytes.len()).sum()
            }
            Self::And(children) | Self::Or(children) => children.iter().map(Self::memory_bytes).sum(),
        };
        size_of::<Self>() + own_bytes
    }
}

/// Binds expressions to one schema. All bound expressions share its columns.
pub(crate) struct Binder<'a> {
    names: Names<'a>,
    partition_columns: &'a [String],
    pub(crate) columns: Vec<BoundColumn>,
    /// The reasons for undecided leaves in the last bound expression.
    pub(crate) reasons: Vec<String>,
    /// Whether a text in a list is read as a value of the column's type, as in Spark's ANSI mode. Without that mode Spark
    /// compares all values of such a list as texts.
    pub(crate) is_ansi: bool,
}

enum Operand {
    Column {
        index: usize,
        coercion: Coercion,
        /// Whether a client declares another type than the column's own: it casts the column in an unknown way.
        is_converted: bool,
    },
    Literal(Literal),
}

impl<'a> Binder<'a> {
    pub(crate) fn new(schema: &'a StructType, partition_columns: &'a [String]) -> Self {
        let names = Names::new(schema);
        Self { names, partition_columns, columns: Vec::new(), reasons: Vec::new(), is_ansi: false }
    }

    /// Binds `expression`, or its negation.
    pub(crate) fn bind(&mut self, expression: &Expression, negated: bool) -> Bound {
        self.try_bind(expression, negated).unwrap_or_else(|reason| {
            if !self.reasons.contains(&reason) && self.reasons.len() < 8 {
                self.reasons.push(reason);
            }
            Bound::Undecided
        })
    }

    fn try_bind(&mut self, expression: &Expression, negated: bool) -> Result<Bound, String> {
        match expression {
            Expression::And(children) | Expression::Or(children) => {
                let bound = children.iter().map(|child| self.bind(child, negated)).collect();
                let all = matches!(expression, Expression::And(_)) != negated;
                Ok(if all { Bound::And(bound) } else { Bound::Or(bound) })
            }
            Expression::Not(child) => Ok(self.bind(child, !negated)),
            Expression::Compare(comparison, left, right) => self.compare(*comparison, left, right, negated),
            Expression::IsNull(child) => self.is_null(child, negated),
            Expression::In(child, list) => self.is_in(child, list, negated),
            Expression::Like(child, pattern) => self.like(child, pattern, negated),
            Expression::Literal(Literal::Boolean(value)) => Ok(constant(*value != negated)),
            Expression::Literal(Literal::Null) => Ok(Bound::Never),
            Expression::Column(_) => match self.operand(expression)? {
                Operand::Column { index, .. } if self.columns[index].key_type == KeyType::Boolean => {
                    Ok(self.key_leaf(index, Comparison::Equal, Spread::exact(i128::from(!negated))))
                }
                _ => Err("a column that is not boolean stands alone".into()),
            },
            Expression::Literal(_) | Expression::Cast(..) => {
                Err("an operand stands where a condition belongs".into())
            }
            Expression::Undecidable(reason) => Err(reason.clone()),
        }
    }

    fn compare(
        &mut self,
        comparison: Comparison,
        left: &Expression,
        right: &Expression,
        negated: bool,
    ) -> Result<Bound, String> {
        let (index, coercion, literal, comparison) = match (self.operand(left)?, self.operand(right)?) {
            (Operand::Column { index, coercion, .. }, Operand::Literal(literal)) => {
                (index, coercion, literal, comparison)
            }
            (Operand::Literal(literal), Operand::Column { index, coercion, .. }) => {
                (index, coercion, literal, comparison.mirrored())
            }
            (Operand::Literal(left), Operand::Literal(right)) => {
                return constants(comparison, &left, &right, negated);
            }
            (Operand::Column { .. }, Operand::Column { .. }) => {
                return Err("two columns are compared with each other".into());
            }
        };
        let null_safe = comparison == Comparison::NullSafeEqual;
        if literal == Literal::Null {
            return Ok(if null_safe { self.null_leaf(index, negated) } else { Bound::Never });
        }
        let plain = match (comparison, negated) {
            (Comparison::NullSafeEqual, false) => Comparison::Equal,
            (Comparison::NullSafeEqual, true) => Comparison::NotEqual,
            (comparison, false) => comparison,
            (comparison, true) => opposite(comparison),
        };
        let mut bound = self.value_leaf(index, coercion, plain, &literal)?;
        if let Bound::Leaf(leaf) = &mut bound {
            leaf.nulls = null_safe && negated;
        }
        Ok(bound)
    }

    fn is_null(&mut self, child: &Expression, negated: bool) -> Result<Bound, String> {
        match self.operand(child)? {
            // A value that the other type cannot hold is null by `TRY_CAST`, whose name Spark's client leaves out.
            Operand::Column { is_converted: true, .. } => Err("a value may be null as another type".into()),
            Operand::Column { index, .. } => Ok(self.null_leaf(index, negated)),
            Operand::Literal(Literal::Null) => Ok(constant(!negated)),
            Operand::Literal(literal) if is_value(&literal) => Ok(constant(negated)),
            // Dialects other than Spark's put names in double quotes. A text that is no time is null as one.
            Operand::Literal(_) => Err("a text that may be a name, or null as a time or a number".into()),
        }
    }

    fn is_in(&mut self, child: &Expression, list: &[Expression], negated: bool) -> Result<Bound, String> {
        let Operand::Column { index, coercion, .. } = self.operand(child)? else {
            return Err("IN of a constant".into());
        };
        let mut literals = Vec::with_capacity(list.len());
        for item in list {
            match self.operand(item)? {
                // `x NOT IN (.., NULL)` is never true.
                Operand::Literal(Literal::Null) if negated => return Ok(Bound::Never),
                Operand::Literal(Literal::Null) => {}
                Operand::Literal(literal) => literals.push(literal),
                Operand::Column { .. } => return Err("a column in the list of IN".into()),
            }
        }
        let key_type = self.columns[index].key_type;
        let has_one_meaning = self.is_ansi || coercion.has_one_meaning(key_type, &literals);
        if negated && !has_one_meaning {
            return Err("NOT IN of a text that is compared as a text or as a value".into());
        }
        let coercion = coercion.with_list(key_type, &literals);
        let comparison = if negated { Comparison::NotEqual } else { Comparison::Equal };
        let mut leaves = Vec::with_capacity(literals.len());
        for literal in &literals {
            let mut bound = self.value_leaf(index, coercion, comparison, literal)?;
            if let Bound::Leaf(leaf) = &mut bound {
                leaf.exact &= has_one_meaning;
            }
            leaves.push(bound);
        }
        Ok(if negated { Bound::And(leaves) } else { Bound::Or(leaves) })
    }

    fn like(&mut self, child: &Expression, pattern: &Pattern, negated: bool) -> Result<Bound, String> {
        let Operand::Column { index, .. } = self.operand(child)? else {
            return Err("LIKE of a constant".into());
        };
        if self.columns[index].key_type != KeyType::Text {
            return Err("LIKE on a column that is no plain string".into());
        }
        let prefix = pattern.prefix.as_bytes();
        let from = Some(TextCut::before(prefix));
        let matching = match pattern.rest {
            PatternRest::Nothing => Ranges::between(from, Some(TextCut::after(prefix))),
            _ => Ranges::between(from, TextCut::after_prefix(prefix)),
        };
        let exact = pattern.rest != PatternRest::Something;
        let set = match (negated, exact) {
            (false, _) => matching,
            (true, true) => matching.complement(),
            (true, false) => Ranges::all(),
        };
        Ok(Bound::Leaf(Leaf { column: index, set: Set::Text(set), nulls: false, exact }))
    }

    fn operand(&mut self, expression: &Expression) -> Result<Operand, String> {
        match expression {
            Expression::Column(name) => self.column(name, None),
            Expression::Literal(literal) => Ok(Operand::Literal(literal.clone())),
            Expression::Cast(child, to) => match &**child {
                Expression::Column(name) => self.column(name, Some(*to)),
                Expression::Literal(literal) => cast(literal, *to)
                    .map(Operand::Literal)
                    .ok_or_else(|| format!("a constant cannot be cast to {to} without loss")),
                _ => Err("a cast of more than a column or a constant".into()),
            },
            Expression::Undecidable(reason) => Err(reason.clone()),
            _ => Err("a condition stands where an operand belongs".into()),
        }
    }

    fn column(&mut self, name: &ColumnName, cast_to: Option<PrimitiveType>) -> Result<Operand, String> {
        let (resolved, declared) = match name {
            ColumnName::Path(parts) => (self.resolve_path(parts), cast_to),
            ColumnName::Dotted(name, declared) => (self.names.resolve_dotted(name), cast_to.or(*declared)),
        };
        let column = resolved.map_err(|unresolved| {
            let word = if unresolved == Unresolved::Missing { "no" } else { "more than one" };
            format!("{word} column {}", shown(&name.to_string().replace('`', "")))
        })?;
        let key_type = KeyType::of(&column);
        if let (DataType::Primitive(from), Some(to)) = (&column.data_type, cast_to)
            && may_overflow(*from, to)
        {
            // Spark wraps the value, returns null or fails, by its settings.
            return Err(format!("a value of column {} may exceed {to}", shown(&column.logical.join("."))));
        }
        let wraps_above = match (&column.data_type, declared) {
            (DataType::Primitive(from), Some(to)) if may_overflow(*from, to) => greatest(to).map(i128::from),
            _ => None,
        };
        let mut coercion = match key_type {
            KeyType::Opaque if matches!(declared, None | Some(PrimitiveType::String)) => Coercion::NONE,
            _ => compare_as(key_type, declared).ok_or_else(|| {
                let declared = declared.map_or_else(String::new, |declared| declared.to_string());
                format!("column {} cannot be compared as {declared}", shown(&column.logical.join(".")))
            })?,
        };
        coercion.wraps_above = wraps_above;
        let is_converted =
            cast_to.is_none() && declared.is_some_and(|to| column.data_type != DataType::Primitive(to));
        Ok(Operand::Column { index: self.intern(column, key_type), coercion, is_converted })
    }

    /// Returns the column of a path. Leading names that are not columns are taken as the name of the table.
    fn resolve_path(&mut self, parts: &[String]) -> Result<Column, Unresolved> {
        let direct = self.names.resolve(parts);
        if parts.len() == 1 || direct.is_ok() || self.names.resolve(&parts[..1]).is_ok() {
            return direct;
        }
        let dotted = self.names.resolve(&[parts.join(".")]);
        if dotted.is_ok() {
            return dotted;
        }
        self.resolve_path(&parts[1..])
    }

    fn intern(&mut self, column: Column, key_type: KeyType) -> usize {
        if let Some(index) = self.columns.iter().position(|known| known.column.logical == column.logical) {
            return index;
        }
        let partition = match column.logical.as_slice() {
            [name] => self.partition_columns.iter().position(|other| other.eq_ignore_ascii_case(name)),
            _ => None,
        };
        self.columns.push(BoundColumn { column, key_type, partition, is_read_in_any_zone: false });
        self.columns.len() - 1
    }

    fn null_leaf(&self, index: usize, negated: bool) -> Bound {
        let set = match (self.columns[index].key_type, negated) {
            (KeyType::Text, true) => Set::Text(Ranges::all()),
            (KeyType::Text, false) => Set::Text(Ranges::none()),
            (_, true) => Set::Keys(Ranges::all()),
            (_, false) => Set::Keys(Ranges::none()),
        };
        Bound::Leaf(Leaf { column: index, set, nulls: !negated, exact: true })
    }

    fn value_leaf(
        &self,
        index: usize,
        coercion: Coercion,
        comparison: Comparison,
        literal: &Literal,
    ) -> Result<Bound, String> {
        let BoundColumn { column, key_type, .. } = &self.columns[index];
        let name = || shown(&column.logical.join("."));
        match key_type {
            KeyType::Opaque => Err(format!("values of column {} cannot be compared", name())),
            KeyType::Text => match literal {
                Literal::Text { text, other } => {
                    Ok(text_leaf(index, comparison, text, other.as_deref().unwrap_or(text)))
                }
                _ => Err(format!("column {} is a string, the constant is not", name())),
            },
            KeyType::Integer if !self.is_ansi && !is_number_in_every_mode(&column.data_type, literal) => {
                Err(format!("a text is no number of column {} in every mode of Spark", name()))
            }
            _ => {
                let spread = literal_spread(*key_type, literal, coercion)
                    .ok_or_else(|| format!("the constant cannot be compared with column {}", name()))?;
                let Some(most) = coercion.wraps_above else {
                    return Ok(self.key_leaf(index, comparison, spread));
                };
                // In JSON a cast of the column is its declared type. Without ANSI mode Spark wraps what that cannot hold.
                let beyond = Ranges::between(Some(-most - 1), Some(most + 1)).complement();
                let set = Set::Keys(accepted(comparison, spread).union(&beyond));
                Ok(Bound::Leaf(Leaf { column: index, set, nulls: false, exact: false }))
            }
        }
    }

    fn key_leaf(&self, index: usize, comparison: Comparison, spread: Spread) -> Bound {
        debug_assert!(index < self.columns.len());
        let set = Set::Keys(accepted(comparison, spread));
        Bound::Leaf(Leaf { column: index, set, nulls: false, exact: spread.is_exact() })
    }
}

/// Whether a text compared with a column of integers is the same number in every mode of Spark. Without ANSI mode, a text
/// with an exponent, or out of the column's range, is null.
fn is_number_in_every_mode(data_type: &DataType, literal: &Literal) -> bool {
    let Literal::Text { text, .. } = literal else { return true };
    let DataType::Primitive(primitive) = data_type else { return false };
    !has_exponent(text) && cast_number(text.trim(), NumberKind::Exact, *primitive).is_some()
}

fn has_exponent(text: &str) -> bool {
    text.contains(['e', 'E'])
}

fn constant(value: bool) -> Bound {
    if value { Bound::Always } else { Bound::Never }
}

fn opposite(comparison: Comparison) -> Comparison {
    match comparison {
        Comparison::Equal => Comparison::NotEqual,
        Comparison::NotEqual => Comparison::Equal,
        Comparison::Less => Comparison::GreaterOrEqual,
        Comparison::LessOrEqual => Comparison::Greater,
        Comparison::Greater => Comparison::LessOrEqual,
        Comparison::GreaterOrEqual => Comparison::Less,
        Comparison::NullSafeEqual => Comparison::NullSafeEqual,
    }
}

/// Returns the keys for which `comparison` to a constant in `spread` may be true.
fn accepted(comparison: Comparison, spread: Spread) -> Ranges<i128> {
    let Spread { low, high, open } = spread;
    // The range of values that the constant may equal.
    let (first, last) = if open { (low + 1, high - 1) } else { (low, high) };
    match comparison {
        Comparison::Equal | Comparison::NullSafeEqual => Ranges::between(Some(first), Some(last + 1)),
        Comparison::NotEqual if first == last => Ranges::between(Some(first), Some(first + 1)).complement(),
        Comparison::NotEqual => Ranges::all(),
        Comparison::Less => Ranges::between(None, Some(high)),
        Comparison::LessOrEqual => Ranges::between(None, Some(if open { high } else { high + 1 })),
        Comparison::Greater => Ranges::between(Some(low + 1), None),
        Comparison::GreaterOrEqual => Ranges::between(Some(if open { low + 1 } else { low }), None),
    }
}

/// Returns a leaf of the strings for which `comparison` to one of two readings of a constant may be true.
fn text_leaf(column: usize, comparison: Comparison, text: &str, other: &str) -> Bound {
    let (low, high) = (text.min(other).as_bytes(), text.max(other).as_bytes());
    let exact = low == high;
    let equal = Ranges::between(Some(TextCut::before(low)), Some(TextCut::after(high)));
    let set = match comparison {
        Comparison::Equal | Comparison::NullSafeEqual => equal,
        Comparison::NotEqual if exact => equal.complement(),
        Comparison::NotEqual => Ranges::all(),
        Comparison::Less => Ranges::between(None, Some(TextCut::before(high))),
        Comparison::LessOrEqual => Ranges::between(None, Some(TextCut::after(high))),
        Comparison::Greater => Ranges::between(Some(TextCut::after(low)), None),
        Comparison::GreaterOrEqual => Ranges::between(Some(TextCut::before(low)), None),
    };
    Bound::Leaf(Leaf { column, set: Set::Text(set), nulls: false, exact })
}

/// Evaluates a comparison of two constants. Tools add such as `1 = 1` to chains of conditions.
fn constants(
    comparison: Comparison,
    left: &Literal,
    right: &Literal,
    negated: bool,
) -> Result<Bound, String> {
    let integer = |literal: &Literal| match literal {
        Literal::Number(text, NumberKind::Exact) => text.parse::<i64>().ok(),
        _ => None,
    };
    match (integer(left), integer(right)) {
        (Some(left), Some(right)) => {
            let set = accepted(comparison, Spread::exact(i128::from(right)));
            Ok(constant(set.contains(&i128::from(left)) != negated))
        }
        _ => Err("two constants are compared with each other".into()),
    }
}

/// Returns whether a literal is certainly not null.
fn is_value(literal: &Literal) -> bool {
    match literal {
        Literal::Boolean(_) => true,
        Literal::Number(text, _) => text.parse::<f64>().is_ok(),
        // Only JSON hints have it, in which no text is a name.
        Literal::CutTimestamp(text) => civil_time::parse(text).is_some(),
        Literal::Null
        | Literal::Text { .. }
        | Literal::Date(_)
        | Literal::Timestamp(_)
        | Literal::TimestampNtz(_) => false,
    }
}

/// Returns whether a type of whole numbers or decimals may not hold a value of another one.
fn may_overflow(from: PrimitiveType, to: PrimitiveType) -> bool {
    // The digits before the point.
    let digits = |of| {
        Some(match of {
            PrimitiveType::Byte => 3,
            PrimitiveType::Short => 5,
            PrimitiveType::Integer => 10,
            PrimitiveType::Long => 19,
            PrimitiveType::Decimal { precision, scale } => precision - scale,
            _ => return None,
        })
    };
    digits(from).zip(digits(to)).is_some_and(|(from, to)| from > to)
}

/// The greatest value of a type of whole numbers.
pub(super) fn greatest(integers: PrimitiveType) -> Option<i64> {
    match integers {
        PrimitiveType::Byte => Some(i8::MAX.into()),
        PrimitiveType::Short => Some(i16::MAX.into()),
        PrimitiveType::Integer => Some(i32::MAX.into()),
        PrimitiveType::Long => Some(i64::MAX),
        _ => None,
    }
}

/// Returns the constant as another type, `None` if its value changes.
pub(super) fn cast(literal: &Literal, to: PrimitiveType) -> Option<Literal> {
    use PrimitiveType as P;
    Some(match (literal, to) {
        (Literal::Null, _) => Literal::Null,
        (Literal::Text { .. }, P::String) | (Literal::Boolean(_), P::Boolean) => literal.clone(),
        (Literal::Text { text, other: None }, P::Boolean) => {
            Literal::Boolean(text.trim().to_ascii_lowercase().parse().ok()?)
        }
        (Literal::Text { text, other: None } | Literal::Date(text), P::Date) => Literal::Date(text.clone()),
        (
            Literal::Text { text, other: None } | Literal::Timestamp(text) | Literal::Date(text),
            P::Timestamp,
        ) => Literal::Timestamp(text.clone()),
        (
            Literal::Text { text, other: None } | Literal::TimestampNtz(text) | Literal::Date(text),
            P::TimestampNtz,
        ) => Literal::TimestampNtz(text.clone()),
        (Literal::Number(text, kind), to) => cast_number(text, *kind, to)?,
        // Without ANSI mode such an integer is null.
        (Literal::Text { text, .. }, P::Byte | P::Short | P::Integer | P::Long) if has_exponent(text) => {
            return None;
        }
        (Literal::Text { text, other: None }, to) => cast_number(text.trim(), NumberKind::Exact, to)?,
        _ => return None,
    })
}

fn cast_number(text: &str, kind: NumberKind, to: PrimitiveType) -> Option<Literal> {
    use PrimitiveType as P;
    let within = |limit: i64| {
        let spread = Number::parse(text)?.scaled(0);
        let fits = !spread.open && (-i128::from(limit) - 1..=i128::from(limit)).contains(&spread.low);
        fits.then(|| Literal::Number(spread.low.to_string(), NumberKind::Exact))
    };
    match to {
        P::Byte | P::Short | P::Integer | P::Long => within(greatest(to)?),
        P::Float => Some(Literal::Number(text.to_owned(), NumberKind::Float)),
        P::Double if kind == NumberKind::Float => None,
        P::Double => Some(Literal::Number(text.to_owned(), NumberKind::Double)),
        P::Decimal { precision, scale } if kind == NumberKind::Exact => {
            let spread = Number::parse(text)?.scaled(i32::from(scale));
            let fits = !spread.open && spread.low.abs() < 10_i128.checked_pow(u32::from(precision))?;
            fits.then(|| Literal::Number(text.to_owned(), NumberKind::Exact))
        }
        _ => None,
    }
}
