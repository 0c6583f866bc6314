//! `jsonPredicateHints`: a tree of operations as JSON (filtering.txt, section JSON Predicates).
//!
//! Operations and value types are case-insensitive. An unknown operation makes the hint malformed; a well-formed leaf
//! without a meaning is undecidable on its own.

use serde_json::{Map, Value};

use crate::predicate::expression::{
    ColumnName, Comparison, Expression, Literal, MAX_DEPTH, MAX_NODES, NumberKind,
};
use crate::schema::PrimitiveType;

/// The tree in the text, or why there is none.
pub(crate) fn parse(text: &str) -> Result<Expression, String> {
    let value: Value = serde_json::from_str(text).map_err(|error| match error.classify() {
        serde_json::error::Category::Syntax if error.to_string().starts_with("recursion limit") => {
            "the tree is nested too deep".to_owned()
        }
        _ => format!("not JSON at line {}, column {}", error.line(), error.column()),
    })?;
    if value.get("jsonPredicateHints").is_some() {
        return Err("the tree is wrapped in an object 'jsonPredicateHints'; send the tree itself".into());
    }
    Parser { nodes_left: MAX_NODES }.operation(&value, MAX_DEPTH)
}

struct Parser {
    nodes_left: usize,
}

impl Parser {
    fn operation(&mut self, value: &Value, depth_left: usize) -> Result<Expression, String> {
        self.nodes_left = self.nodes_left.checked_sub(1).ok_or("the tree has too many nodes")?;
        let depth_left = depth_left.checked_sub(1).ok_or("the tree is nested too deep")?;
        let object = value.as_object().ok_or("an operation is not a JSON object")?;
        let name = object.get("op").and_then(Value::as_str).ok_or("an operation has no 'op'")?;
        match name.to_ascii_lowercase().as_str() {
            "column" => column(object),
            "literal" => Ok(literal(object)),
            "isnull" => self.is_null(object, depth_left),
            "not" => Ok(Expression::Not(Box::new(self.only_child(object, depth_left)?))),
            "and" => Ok(Expression::And(self.children(object, depth_left)?)),
            "or" => Ok(Expression::Or(self.children(object, depth_left)?)),
            "equal" => self.comparison(Comparison::Equal, object, depth_left),
            "lessthan" => self.comparison(Comparison::Less, object, depth_left),
            "lessthanorequal" => self.comparison(Comparison::LessOrEqual, object, depth_left),
            "greaterthan" => self.comparison(Comparison::Greater, object, depth_left),
            "greaterthanorequal" => self.comparison(Comparison::GreaterOrEqual, object, depth_left),
            _ => Err(format!("unknown op {}", shown(name))),
        }
    }

    fn children(
        &mut self,
        object: &Map<String, Value>,
        depth_left: usize,
    ) -> Result<Vec<Expression>, String> {
        let children = object.get("children").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        if children.is_empty() {
            return Err("an operation has no children".into());
        }
        children.iter().map(|child| self.operation(child, depth_left)).collect()
    }

    fn only_child(&mut self, object: &Map<String, Value>, depth_left: usize) -> Result<Expression, String> {
        let children = self.children(object, depth_left)?;
        let [child] = <[Expression; 1]>::try_from(children)
            .map_err(|_| "'not' and 'isNull' have one child".to_owned())?;
        Ok(child)
    }

    fn is_null(&mut self, object: &Map<String, Value>, depth_left: usize) -> Result<Expression, String> {
        let child = self.only_child(object, depth_left)?;
        if matches!(child, Expression::Literal(_)) && may_stand_for_null(object) {
            return Ok(Expression::undecidable("a literal may be null"));
        }
        Ok(Expression::IsNull(Box::new(child)))
    }

    fn comparison(
        &mut self,
        comparison: Comparison,
        object: &Map<String, Value>,
        depth_left: usize,
    ) -> Result<Expression, String> {
        let children = self.children(object, depth_left)?;
        if let Some(reason) = other_order(object) {
            return Ok(Expression::undecidable(reason));
        }
        let [left, right] =
            <[Expression; 2]>::try_from(children).map_err(|_| "a comparison has two children".to_owned())?;
        Ok(Expression::Compare(comparison, Box::new(left), Box::new(right)))
    }
}

/// Returns why a comparison has another order than the column's own, if it has.
fn other_order(comparison: &Map<String, Value>) -> Option<&'static str> {
    let identifier = comparison.get("exprCtx").and_then(|context| context.get("collationIdentifier"));
    let is_binary =
        |name: &str| name.split('.').nth(1).is_some_and(|name| name.eq_ignore_ascii_case("UTF8_BINARY"));
    if identifier
        .is_some_and(|identifier| !identifier.is_null() && !identifier.as_str().is_some_and(is_binary))
    {
        return Some("a comparison by a collation");
    }
    let children = comparison.get("children").and_then(Value::as_array)?;
    let types: Vec<&str> =
        children.iter().filter_map(|child| child.get("valueType").and_then(Value::as_str)).collect();
    let [left, right] = types.as_slice() else { return None };
    // Spark compares values of one type, but of two casts of a column its client states the inner one. The outer one may
    // cut the value: `CAST(CAST(c AS DOUBLE) AS INT) = 5` matches 5.7.
    (!have_one_order(value_type(left)?, value_type(right)?)).then_some("two types are compared")
}

/// Returns whether a value of one type that has an equal of the other type is the same after a cast to it.
fn have_one_order(left: PrimitiveType, right: PrimitiveType) -> bool {
    use PrimitiveType as P;
    let is_whole = |one| matches!(one, P::Byte | P::Short | P::Integer | P::Long);
    left == right || (is_whole(left) && is_whole(right))
}

/// Whether the literal in an `isNull` may be null. Spark's client writes null as a text, and as the time zero.
fn may_stand_for_null(is_null: &Map<String, Value>) -> bool {
    let child = is_null.get("children").and_then(|children| children.get(0));
    let value = child.and_then(|child| child.get("value")).and_then(Value::as_str);
    value.is_some_and(|value| value.eq_ignore_ascii_case("null") || value == "1970-01-01T00:00:00Z")
}

fn column(object: &Map<String, Value>) -> Result<Expression, String> {
    let name = object.get("name").and_then(Value::as_str).ok_or("a column has no 'name'")?;
    let declared = match object.get("valueType") {
        None | Some(Value::Null) => None,
        Some(value) => match value.as_str().and_then(value_type) {
            Some(declared) => Some(declared),
            None => return Ok(Expression::undecidable("a column's valueType is unknown")),
        },
    };
    Ok(Expression::Column(ColumnName::Dotted(name.to_owned(), declared)))
}

fn value_type(name: &str) -> Option<PrimitiveType> {
    let name = name.to_ascii_lowercase();
    Some(match name.as_str() {
        "bool" => PrimitiveType::Boolean,
        "int" => PrimitiveType::Integer,
        "timestampntz" => PrimitiveType::TimestampNtz,
        other => PrimitiveType::parse(other)?,
    })
}

fn literal(object: &Map<String, Value>) -> Expression {
    let text = match object.get("value") {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) => number.to_string(),
        Some(Value::Bool(value)) => value.to_string(),
        _ => return Expression::undecidable("a literal has no value"),
    };
    let declared = match object.get("valueType") {
        None | Some(Value::Null) => return Expression::Literal(Literal::Text { text, other: None }),
        Some(value) => value.as_str().and_then(value_type),
    };
    // The parser has rounded a number with a fraction or with many digits.
    let is_rounded = matches!(object.get("value"), Some(Value::Number(number)) if number.is_f64());
    let declared = match declared {
        Some(PrimitiveType::Decimal { .. }) if is_rounded => Some(PrimitiveType::Double),
        declared => declared,
    };
    match declared.and_then(|declared| typed_literal(text, declared)) {
        Some(literal) => Expression::Literal(literal),
        None => Expression::undecidable("a literal cannot be read as its valueType"),
    }
}

fn typed_literal(text: String, declared: PrimitiveType) -> Option<Literal> {
    Some(match declared {
        PrimitiveType::Boolean if text.eq_ignore_ascii_case("true") => Literal::Boolean(true),
        PrimitiveType::Boolean if text.eq_ignore_ascii_case("false") => Literal::Boolean(false),
        PrimitiveType::Byte | PrimitiveType::Short | PrimitiveType::Integer | PrimitiveType::Long => {
            let integer: i64 = text.trim().parse().ok()?;
            Literal::Number(integer.to_string(), NumberKind::Exact)
        }
        PrimitiveType::Decimal { .. } => Literal::Number(text.trim().to_owned(), NumberKind::Exact),
        PrimitiveType::Float => Literal::Number(text.trim().to_owned(), NumberKind::Float),
        PrimitiveType::Double => Literal::Number(text.trim().to_owned(), NumberKind::Double),
        PrimitiveType::String => Literal::Text { text, other: None },
        PrimitiveType::Date => Literal::Date(text),
        // Spark's client cuts digits.
        PrimitiveType::Timestamp => Literal::CutTimestamp(text),
        PrimitiveType::TimestampNtz => Literal::TimestampNtz(text),
        _ => return None,
    })
}

/// Returns a client's word for a message, which becomes a header and a log line: short and printable.
pub(crate) fn shown(word: &str) -> String {
    let mut shown: String = word.chars().take(40).flat_map(char::escape_default).collect();
    if word.chars().nth(40).is_some() {
        shown.push_str("...");
    }
    format!("'{shown}'")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sql(json: &str) -> String {
        parse(json).map_or_else(|reason| format!("! {reason}"), |expression| expression.to_string())
    }

    #[test]
    fn every_operation_and_type_is_taken_in_any_case() {
        for (op, symbol) in [
            ("equal", "="),
            ("lessThan", "<"),
            ("LESSTHANOREQUAL", "<="),
            ("greaterthan", ">"),
            ("greaterThanOrEqual", ">="),
        ] {
            let json = format!(
                r#"{{"op":"{op}","children":[{{"op":"Column","name":"c","valueType":"INT"}},{{"op":"LITERAL","value":"25","valueType":"Int"}}]}}"#
            );
            assert_eq!(sql(&json), format!("`c` {symbol} 25"));
        }
        for (value_type, value, shown) in [
            ("Bool", "TRUE", "true"),
            ("long", "9223372036854775807", "9223372036854775807"),
            ("STRING", "a'b", "'a\\'b'"),
            ("date", "2021-04-29", "DATE '2021-04-29'"),
            ("float", "3.14", "3.14F"),
            ("Double", "-1e300", "-1e300D"),
            ("timestamp", "2022-01-01T00:00:00Z", "TIMESTAMP '2022-01-01T00:00:00Z'"),
        ] {
            let json = format!(r#"{{"op":"literal","value":"{value}","valueType":"{value_type}"}}"#);
            assert_eq!(sql(&json), shown);
        }
    }

    #[test]
    fn trees_nest() {
        let null = r#"{"op":"isNull","children":[{"op":"column","name":"a.b","valueType":"int"}]}"#;
        let not = format!(r#"{{"op":"not","children":[{null}]}}"#);
        assert_eq!(
            sql(&format!(r#"{{"op":"or","children":[{not},{null}]}}"#)),
            "(NOT (`a.b` IS NULL) OR `a.b` IS NULL)"
        );
    }

    #[test]
    fn a_malformed_hint_has_a_reason() {
        for (json, reason) in [
            ("", "not JSON at line 1, column 0"),
            ("[]", "an operation is not a JSON object"),
            ("{}", "an operation has no 'op'"),
            (r#"{"op":"="}"#, "unknown op '='"),
            (r#"{"op":"and","children":[]}"#, "an operation has no children"),
            (r#"{"op":"equal","children":[{"op":"column","name":"a"}]}"#, "a comparison has two children"),
            (r#"{"op":"column"}"#, "a column has no 'name'"),
            (
                r#"{"jsonPredicateHints":{"op":"not"}}"#,
                "the tree is wrapped in an object 'jsonPredicateHints'; send the tree itself",
            ),
        ] {
            assert_eq!(sql(json), format!("! {reason}"), "{json}");
        }
        let deep = r#"{"op":"not","children":["#.repeat(5_000);
        assert_eq!(sql(&deep), "! the tree is nested too deep");
        let wide = vec![r#"{"op":"column","name":"a"}"#; MAX_NODES + 1].join(",");
        assert_eq!(sql(&format!(r#"{{"op":"or","children":[{wide}]}}"#)), "! the tree has too many nodes");
    }

    #[test]
    fn a_leaf_without_sense_is_undecidable_alone() {
        assert_eq!(
            sql(r#"{"op":"literal","value":"x","valueType":"int"}"#),
            "<a literal cannot be read as its valueType>"
        );
        assert_eq!(sql(r#"{"op":"literal","value":null,"valueType":"int"}"#), "<a literal has no value>");
        assert_eq!(
            sql(r#"{"op":"column","name":"c","valueType":"cow"}"#),
            "<a column's valueType is unknown>"
        );
    }

    #[test]
    fn words_of_clients_are_shown_short_and_printable() {
        assert_eq!(shown("a\r\nb"), r"'a\r\nb'");
        assert!(shown(&"x".repeat(1000)).len() < 50);
    }
}
