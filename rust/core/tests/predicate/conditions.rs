//! Random conditions: their truth on a row as Spark has it, and their renderings as SQL and as JSON.

use serde_json::{Value as Json, json};

use crate::choices::Choices;
use crate::files::{Column, Table, plain_text, type_name};
use crate::values::{Type, Value, clock, date, decimal, draw, float};

#[derive(Debug, Clone)]
pub(crate) enum Condition {
    And(Vec<Condition>),
    Or(Vec<Condition>),
    Not(Box<Condition>),
    /// Column, operator, constant.
    Compare(usize, &'static str, Value),
    IsNull(usize),
    In(usize, Vec<Value>),
    Between(usize, Value, Value),
}

const OPERATORS: [&str; 7] = ["=", "<", "<=", ">", ">=", "<>", "<=>"];

pub(crate) fn draw_condition(choices: &mut Choices<'_>, table: &Table, depth: usize) -> Condition {
    let column = choices.below(table.columns.len());
    match choices.below(if depth == 0 { 8 } else { 12 }) {
        0..=4 => Condition::Compare(
            column,
            OPERATORS[choices.below(OPERATORS.len())],
            draw_constant(choices, table, column),
        ),
        5 => Condition::IsNull(column),
        6 => {
            let values = (0..=choices.below(3)).map(|_| draw_constant(choices, table, column)).collect();
            Condition::In(column, values)
        }
        7 => Condition::Between(
            column,
            draw_constant(choices, table, column),
            draw_constant(choices, table, column),
        ),
        8 | 9 => Condition::And(draw_children(choices, table, depth)),
        10 => Condition::Or(draw_children(choices, table, depth)),
        _ => Condition::Not(Box::new(draw_condition(choices, table, depth - 1))),
    }
}

/// A value that some row has, or any of the type.
fn draw_constant(choices: &mut Choices<'_>, table: &Table, column: usize) -> Value {
    let file = choices.of(&table.files);
    let value = choices.of(&file.rows)[column].clone();
    let any = draw(choices, table.columns[column].data_type);
    value.filter(|_| choices.one_in(2)).unwrap_or(any)
}

fn draw_children(choices: &mut Choices<'_>, table: &Table, depth: usize) -> Vec<Condition> {
    (0..2 + choices.below(2)).map(|_| draw_condition(choices, table, depth - 1)).collect()
}

impl Condition {
    /// `None` is SQL's null.
    pub(crate) fn truth(&self, row: &[Option<Value>]) -> Option<bool> {
        match self {
            Self::And(children) => all(children.iter().map(|child| child.truth(row))),
            Self::Or(children) => {
                let negated = children.iter().map(|child| child.truth(row).map(|truth| !truth));
                all(negated).map(|truth| !truth)
            }
            Self::Not(child) => child.truth(row).map(|truth| !truth),
            Self::Compare(column, "<=>", constant) => {
                Some(row[*column].as_ref().is_some_and(|value| value.order(constant).is_eq()))
            }
            Self::Compare(column, operator, constant) => {
                let order = row[*column].as_ref()?.order(constant);
                Some(match *operator {
                    "=" => order.is_eq(),
                    "<" => order.is_lt(),
                    "<=" => order.is_le(),
                    ">" => order.is_gt(),
                    ">=" => order.is_ge(),
                    _ => order.is_ne(),
                })
            }
            Self::IsNull(column) => Some(row[*column].is_none()),
            Self::In(column, list) => {
                let value = row[*column].as_ref()?;
                Some(list.iter().any(|constant| value.order(constant).is_eq()))
            }
            Self::Between(column, low, high) => {
                let value = row[*column].as_ref()?;
                Some(value.order(low).is_ge() && value.order(high).is_le())
            }
        }
    }

    /// The columns of the condition.
    pub(crate) fn columns(&self) -> Vec<usize> {
        match self {
            Self::And(children) | Self::Or(children) => children.iter().flat_map(Self::columns).collect(),
            Self::Not(child) => child.columns(),
            Self::Compare(column, ..)
            | Self::IsNull(column)
            | Self::In(column, _)
            | Self::Between(column, ..) => {
                vec![*column]
            }
        }
    }

    pub(crate) fn sql(&self, choices: &mut Choices<'_>, columns: &[Column]) -> String {
        let mut joined = |children: &[Condition], word: &str| {
            let parts: Vec<String> = children.iter().map(|child| child.sql(choices, columns)).collect();
            format!("({})", parts.join(word))
        };
        match self {
            Self::And(children) => joined(children, " AND "),
            Self::Or(children) => joined(children, " or "),
            Self::Not(child) => format!("NOT ({})", child.sql(choices, columns)),
            Self::Compare(column, operator, constant) => {
                let Column { name, data_type, .. } = &columns[*column];
                let constant = sql_constant(choices, *data_type, constant);
                match (*operator, choices.one_in(3)) {
                    ("<", true) => format!("{constant} > {name}"),
                    (">=", true) => format!("{constant} <= {name}"),
                    ("<>", true) => format!("{name} != {constant}"),
                    _ => format!("{name} {operator} {constant}"),
                }
            }
            Self::IsNull(column) => format!("{} IS NULL", columns[*column].name),
            Self::In(column, list) => {
                let Column { name, data_type, .. } = &columns[*column];
                let list: Vec<String> =
                    list.iter().map(|constant| sql_constant(choices, *data_type, constant)).collect();
                format!("{name} IN ({})", list.join(", "))
            }
            Self::Between(column, low, high) => {
                let Column { name, data_type, .. } = &columns[*column];
                let low = sql_constant(choices, *data_type, low);
                format!("{name} BETWEEN {low} AND {}", sql_constant(choices, *data_type, high))
            }
        }
    }

    pub(crate) fn json(&self, columns: &[Column]) -> Json {
        let children = |op: &str, children: Vec<Json>| json!({"op": op, "children": children});
        let all = |conditions: &[Condition]| conditions.iter().map(|child| child.json(columns)).collect();
        let not = |child: Json| json!({"op": "not", "children": [child]});
        match self {
            Self::And(conditions) => children("and", all(conditions)),
            Self::Or(conditions) => children("or", all(conditions)),
            Self::Not(child) => not(child.json(columns)),
            Self::Compare(column, operator, constant) => {
                let compared = |op: &str| json_compare(op, &columns[*column], constant);
                match *operator {
                    "=" => compared("equal"),
                    "<" => compared("lessThan"),
                    "<=" => compared("lessThanOrEqual"),
                    ">" => compared("greaterThan"),
                    ">=" => compared("greaterThanOrEqual"),
                    "<>" => not(compared("equal")),
                    _ => children("and", vec![not(json_null(&columns[*column])), compared("equal")]),
                }
            }
            Self::IsNull(column) => json_null(&columns[*column]),
            Self::In(column, list) => {
                let equal = |constant| json_compare("equal", &columns[*column], constant);
                children("or", list.iter().map(equal).collect())
            }
            Self::Between(column, low, high) => children(
                "and",
                vec![
                    json_compare("greaterThanOrEqual", &columns[*column], low),
                    json_compare("lessThanOrEqual", &columns[*column], high),
                ],
            ),
        }
    }
}

/// Kleene's conjunction.
fn all(truths: impl Iterator<Item = Option<bool>>) -> Option<bool> {
    let truths: Vec<_> = truths.collect();
    if truths.contains(&Some(false)) {
        return Some(false);
    }
    (!truths.contains(&None)).then_some(true)
}

fn sql_text(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}

fn sql_constant(choices: &mut Choices<'_>, data_type: Type, constant: &Value) -> String {
    let either = choices.one_in(2);
    match (data_type, constant) {
        (Type::Boolean, Value::Number(value)) => (*value == 1).to_string(),
        (Type::Date, Value::Number(days)) if either => format!("DATE '{}'", date(*days)),
        (Type::Date, Value::Number(days)) => format!("'{}'", date(*days)),
        (Type::Timestamp, Value::Number(micros)) if either => {
            format!("TIMESTAMP '{}Z'", clock(*micros, 'T', 6))
        }
        (Type::Timestamp, Value::Number(micros)) => format!("'{}Z'", clock(*micros, ' ', 6)),
        (Type::TimestampNtz, Value::Number(micros)) => {
            format!("TIMESTAMP_NTZ '{}'", clock(*micros, ' ', 6))
        }
        (Type::Decimal(_, scale), Value::Number(unscaled)) => decimal(*unscaled, scale),
        (_, Value::Number(number)) if either => format!("CAST('{number}' AS BIGINT)"),
        (_, Value::Number(number)) => number.to_string(),
        (_, Value::Float(value)) if value.is_finite() => format!("{value:?}F"),
        (_, Value::Float(value)) => {
            format!("CAST('{}' AS FLOAT)", float(f64::from(*value), String::new()))
        }
        (_, Value::Double(value)) if value.is_finite() => format!("{value:?}D"),
        (_, Value::Double(value)) => format!("CAST('{}' AS DOUBLE)", float(*value, String::new())),
        (_, Value::Text(text)) => sql_text(text),
    }
}

fn json_null(column: &Column) -> Json {
    json!({"op": "isNull", "children": [json_column(column)]})
}

fn json_column(column: &Column) -> Json {
    json!({"op": "column", "name": column.name, "valueType": json_type(column.data_type)})
}

fn json_compare(op: &str, column: &Column, constant: &Value) -> Json {
    let value = match (column.data_type, constant) {
        // As Spark's client cuts it: towards 1970.
        (Type::Timestamp, Value::Number(micros)) => clock(micros / 1000 * 1000, 'T', 3) + "Z",
        (Type::TimestampNtz, Value::Number(micros)) => clock(*micros, 'T', 6),
        (data_type, constant) => plain_text(data_type, constant),
    };
    let literal = json!({"op": "literal", "value": value, "valueType": json_type(column.data_type)});
    json!({"op": op, "children": [json_column(column), literal]})
}

fn json_type(data_type: Type) -> String {
    match data_type {
        Type::Boolean => "bool".into(),
        Type::Integer => "int".into(),
        other => type_name(other),
    }
}
