//! From selected files to the bytes of an answer: header lines, a line a file, coded chunks.

pub mod chunk;
pub mod coding;
