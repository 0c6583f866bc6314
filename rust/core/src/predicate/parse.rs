//! From the text of a hint to an [`Expression`](super::expression::Expression): SQL and JSON.

pub(super) mod json;
mod lexer;
pub(super) mod sql;
