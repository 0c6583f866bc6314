//! Whole numbers of a checkpoint in the types that writers give their columns.
//!
//! PROTOCOL has `long` and `integer` only. Writers that take the types from their data frames or databases write other
//! ones. A value that does not fit is refused, never cut.

use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{Array, ArrayRef, Int32Array, Int64Array, downcast_integer_array};

/// Returns integers of any type as 64 bits; `None` if the column has another type or a value that does not fit.
pub(super) fn longs(column: &ArrayRef) -> Option<Int64Array> {
    if let Some(longs) = column.as_any().downcast_ref::<Int64Array>() {
        return Some(longs.clone());
    }
    downcast_integer_array!(
        column => column.try_unary::<_, Int64Type, _>(i64::try_from).ok(),
        _ => None
    )
}

/// As [`longs`], as 32 bits.
pub(super) fn ints(column: &ArrayRef) -> Option<Int32Array> {
    if let Some(ints) = column.as_any().downcast_ref::<Int32Array>() {
        return Some(ints.clone());
    }
    longs(column)?.try_unary::<_, Int32Type, _>(i32::try_from).ok()
}
