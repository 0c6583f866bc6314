//! Writes `stats` from `stats_parsed`, for checkpoints that have only the latter.
//!
//! Null leaves are omitted, and days and times that the file's calendar does not tell; so is a struct without any other
//! leaf.

use arrow_array::builder::StringViewBuilder;
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, StringViewArray, StructArray};
use arrow_buffer::NullBuffer;

use super::calendar::Calendar;
use super::typed_column::TypedColumn;
use crate::escape::push_string;

/// The statistics of every row: their text if there is one, else the values of their typed columns.
///
/// `None` if the typed columns are not a struct.
pub(crate) fn stats(
    text: Option<&StringViewArray>,
    typed: &ArrayRef,
    calendar: Calendar,
) -> Option<StringViewArray> {
    let columns = Node::of_struct(typed.as_struct_opt()?, calendar);
    let mut stats = StringViewBuilder::with_capacity(typed.len());
    let mut json = String::new();
    for row in 0..typed.len() {
        if let Some(text) = text.filter(|text| text.is_valid(row)) {
            stats.append_value(text.value(row));
            continue;
        }
        json.clear();
        if typed.is_valid(row) && columns.push(&mut json, row) {
            stats.append_value(&json);
        } else {
            stats.append_null();
        }
    }
    Some(stats.finish())
}

/// A value in the JSON.
enum Node<'a> {
    Struct(Vec<Member<'a>>),
    Leaf(TypedColumn<'a>),
}

struct Member<'a> {
    /// `"name":`
    key: String,
    nulls: Option<&'a NullBuffer>,
    node: Node<'a>,
}

impl<'a> Node<'a> {
    fn of_struct(columns: &'a StructArray, calendar: Calendar) -> Self {
        let members = columns.fields().iter().zip(columns.columns()).filter_map(|(field, column)| {
            let mut key = String::new();
            push_string(field.name(), &mut key);
            key.push(':');
            // Statistics have no lists, maps or other types; readers ignore such a column.
            let node = match column.as_struct_opt() {
                Some(columns) => Self::of_struct(columns, calendar),
                None => Self::Leaf(TypedColumn::of(column, calendar)?),
            };
            Some(Member { key, nulls: column.nulls(), node })
        });
        Self::Struct(members.collect())
    }

    /// Appends the value of a row, and returns whether there is one.
    fn push(&self, json: &mut String, row: usize) -> bool {
        let members = match self {
            Self::Leaf(column) => return column.push_json(json, row),
            Self::Struct(members) => members,
        };
        let begin = json.len();
        for member in members {
            if member.nulls.is_some_and(|nulls| nulls.is_null(row)) {
                continue;
            }
            let end = json.len();
            json.push(if end == begin { '{' } else { ',' });
            json.push_str(&member.key);
            if !member.node.push(json, row) {
                json.truncate(end);
            }
        }
        if json.len() > begin {
            json.push('}');
        }
        json.len() > begin
    }
}
