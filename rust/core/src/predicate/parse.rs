//! Parsers of hints: SQL and JSON to an [`Expression`](super::expression::Expression).

pub(super) mod json;
mod lexer;
pub(super) mod sql;
