//! Files with the columns of a checkpoint: their layout, and their columns as parts of a mapping.

pub(super) mod layout;
mod mapped;

pub(super) use layout::Invalid;
pub(super) use mapped::{MappedFile, OpenError};
