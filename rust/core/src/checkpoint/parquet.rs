//! One Parquet file of a checkpoint: its footer, its pages with bounded sizes, its typed columns.

pub(super) mod calendar;
mod column_bytes;
pub(super) mod decoded_bytes;
pub(super) mod file;
mod footer;
mod page_guard;
mod page_meter;
mod page_places;
mod prefix_coded;
pub(super) mod row_group_bounds;
mod thrift;
pub(super) mod typed_column;
pub(super) mod typed_stats;
