//! Lines of the delta response format: Delta's own actions, with URLs instead of paths.
//!
//! Deletion vectors are inline or an absolute path (`p`), which clients can open.

use arrow_array::{Array, Int64Array};

use super::row::{FileAction, FileNames, FileRow, append_member};
use crate::actions::DeletionVectorDescriptor;
use crate::deletion_vector::append_relative_path;
use crate::escape::{append_json, append_string};
use crate::file_id::FileId;
use crate::{Error, Result};

/// Appends a file without the stamp and the expiration at the end of its line; returns the first expiration of its
/// URLs.
pub(super) fn write_file(
    file: &FileRow<'_>,
    id: FileId<'_>,
    names: &mut FileNames,
    out: &mut Vec<u8>,
) -> Result<i64> {
    let vector = file.batch.deletion_vector_at(file.row).filter(|_| file.action != FileAction::Cdc);
    out.extend_from_slice(b"{\"file\":{\"id\":\"");
    id.append(out);
    if let Some(vector) = vector.filter(|vector| vector.storage_type != b'i') {
        out.extend_from_slice(b"\",\"deletionVectorFileId\":\"");
        set_vector_file(vector, &mut names.name);
        names.append_name_id(out);
    }
    out.extend_from_slice(match file.action {
        FileAction::Live | FileAction::Add => b"\",\"deltaSingleAction\":{\"add\":{\"path\":\"".as_slice(),
        FileAction::Remove => b"\",\"deltaSingleAction\":{\"remove\":{\"path\":\"",
        FileAction::Cdc => b"\",\"deltaSingleAction\":{\"cdc\":{\"path\":\"",
    });
    let expiration_ms = names.urls.append(file.path(), out)?;
    out.push(b'"');
    match file.action {
        FileAction::Live | FileAction::Add => write_add_members(file, out)?,
        FileAction::Remove => write_remove_members(file, out)?,
        FileAction::Cdc => write_cdc_members(file, out)?,
    }
    let vector_expiration_ms = match vector {
        Some(vector) => write_deletion_vector(vector, names, out)?,
        None => None,
    };
    if file.action != FileAction::Cdc {
        write_row_tracking(file, out);
    }
    if let Some(tags) = file.batch.tags.as_ref().filter(|column| column.is_valid(file.row)) {
        out.extend_from_slice(b",\"tags\":");
        append_json(tags.value(file.row), out);
    }
    out.extend_from_slice(b"}}");
    Ok(vector_expiration_ms.map_or(expiration_ms, |vector_ms| vector_ms.min(expiration_ms)))
}

fn write_add_members(file: &FileRow<'_>, out: &mut Vec<u8>) -> Result<()> {
    write_partition_values_and_size(file, out)?;
    append_member(b",\"modificationTime\":", file.batch.modification_time_ms[file.row], out);
    write_data_change(file, out);
    write_stats(file, out);
    Ok(())
}

fn write_remove_members(file: &FileRow<'_>, out: &mut Vec<u8>) -> Result<()> {
    let fields = file.remove_fields();
    if fields.deletion_timestamp {
        append_member(b",\"deletionTimestamp\":", file.batch.modification_time_ms[file.row], out);
    }
    write_data_change(file, out);
    match fields.extended_file_metadata {
        Some(true) => out.extend_from_slice(b",\"extendedFileMetadata\":true"),
        Some(false) => out.extend_from_slice(b",\"extendedFileMetadata\":false"),
        None => {}
    }
    if fields.partition_values {
        write_partition_values(file, out)?;
    }
    if fields.size {
        append_member(b",\"size\":", file.size(), out);
    }
    write_stats(file, out);
    Ok(())
}

fn write_cdc_members(file: &FileRow<'_>, out: &mut Vec<u8>) -> Result<()> {
    write_partition_values_and_size(file, out)?;
    // PROTOCOL, section Add CDC File: it is always false, because it changes nothing in the table itself.
    out.extend_from_slice(b",\"dataChange\":false");
    Ok(())
}

fn write_partition_values_and_size(file: &FileRow<'_>, out: &mut Vec<u8>) -> Result<()> {
    write_partition_values(file, out)?;
    append_member(b",\"size\":", file.size(), out);
    Ok(())
}

fn write_partition_values(file: &FileRow<'_>, out: &mut Vec<u8>) -> Result<()> {
    out.extend_from_slice(b",\"partitionValues\":");
    out.extend_from_slice(file.logged_partition_values()?);
    Ok(())
}

fn write_stats(file: &FileRow<'_>, out: &mut Vec<u8>) {
    if let Some(stats) = file.stats() {
        out.extend_from_slice(b",\"stats\":\"");
        stats.append_escaped(out);
        out.push(b'"');
    }
}

fn write_data_change(file: &FileRow<'_>, out: &mut Vec<u8>) {
    let data_change = file.batch.data_change.as_ref().is_none_or(|values| values[file.row]);
    out.extend_from_slice(if data_change {
        b",\"dataChange\":true".as_slice()
    } else {
        b",\"dataChange\":false"
    });
}

/// Returns the expiration of the vector's URL, if any.
fn write_deletion_vector(
    vector: &DeletionVectorDescriptor,
    names: &mut FileNames,
    out: &mut Vec<u8>,
) -> Result<Option<i64>> {
    out.extend_from_slice(b",\"deletionVector\":{\"storageType\":\"");
    let expiration_ms = if vector.storage_type == b'i' {
        out.extend_from_slice(b"i\",\"pathOrInlineDv\":");
        append_string(&vector.path_or_inline, out);
        None
    } else {
        out.extend_from_slice(b"p\",\"pathOrInlineDv\":\"");
        let expiration_ms = append_vector_url(vector, names, out)?;
        out.push(b'"');
        Some(expiration_ms)
    };
    if let Some(offset) = vector.offset {
        append_member(b",\"offset\":", i64::from(offset), out);
    }
    append_member(b",\"sizeInBytes\":", i64::from(vector.size_in_bytes), out);
    append_member(b",\"cardinality\":", vector.cardinality, out);
    out.push(b'}');
    Ok(expiration_ms)
}

fn append_vector_url(
    vector: &DeletionVectorDescriptor,
    names: &mut FileNames,
    out: &mut Vec<u8>,
) -> Result<i64> {
    match vector.storage_type {
        b'p' => names.urls.append(&vector.path_or_inline, out),
        b'u' => {
            names.name.clear();
            append_relative_path(&vector.path_or_inline, &mut names.name)?;
            names.urls.append_unencoded(&names.name, out)
        }
        _ => Err(Error::corrupt("a deletion vector", "its storage type is none of u, p and i")),
    }
}

/// The id of a vector's file: the unique id without the offset, because one file holds many vectors and clients
/// cache files by this id.
fn set_vector_file(vector: &DeletionVectorDescriptor, name: &mut String) {
    name.clear();
    name.push(char::from(vector.storage_type));
    name.push_str(&vector.path_or_inline);
}

fn write_row_tracking(file: &FileRow<'_>, out: &mut Vec<u8>) {
    let value = |column: &Option<Int64Array>| {
        column.as_ref().filter(|column| column.is_valid(file.row)).map(|column| column.value(file.row))
    };
    if let Some(base_row_id) = value(&file.batch.base_row_id) {
        append_member(b",\"baseRowId\":", base_row_id, out);
    }
    if let Some(version) = value(&file.batch.default_row_commit_version) {
        append_member(b",\"defaultRowCommitVersion\":", version, out);
    }
    if let Some(providers) =
        file.batch.clustering_provider.as_ref().filter(|column| column.is_valid(file.row))
    {
        out.extend_from_slice(b",\"clusteringProvider\":");
        append_string(providers.value(file.row), out);
    }
}
