//! Whether a Parquet file of a checkpoint has the columns of the file actions by their own names, once.
//!
//! Files are found by the columns `add.path` and `sidecar.path`. Without these a file has no such action, so a column
//! that some readers would take for one of them, but this one does not, would make an answer short. Vectors are such a
//! column too.

use parquet::basic::LogicalType;
use parquet::schema::types::Type;

use super::parquet::file::ParquetFile;
use crate::{Error, Result};

/// Returns an error if a column has a name that differs in case only, is there twice, or is no struct of a file.
pub(super) fn check(file: &ParquetFile) -> Result<()> {
    let corrupt = |reason: String| Error::corrupt(&**file.name(), reason);
    for action in ["add", "sidecar"] {
        let Some(columns) = only_child(file.schema().root_schema(), action).map_err(corrupt)? else {
            continue;
        };
        if is_of_nulls(columns) {
            continue;
        }
        if only_child(columns, "path").map_err(corrupt)?.is_none() {
            return Err(corrupt(format!("its column {action} has no path")));
        }
        only_child(columns, "deletionVector").map_err(corrupt)?;
    }
    Ok(())
}

/// Some writers give a column without values the type of nulls.
fn is_of_nulls(column: &Type) -> bool {
    column.is_primitive() && column.get_basic_info().logical_type_ref() == Some(&LogicalType::Unknown)
}

fn only_child<'a>(parent: &'a Type, name: &str) -> Result<Option<&'a Type>, String> {
    let children = if parent.is_group() { parent.get_fields() } else { &[] };
    let mut alike = children.iter().filter(|child| child.name().eq_ignore_ascii_case(name));
    match (alike.next(), alike.next()) {
        (Some(child), None) if child.name() == name => Ok(Some(child)),
        (None, _) => Ok(None),
        _ => Err(format!("it has no single column of the name {name}")),
    }
}
