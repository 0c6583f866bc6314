//! One Parquet file of a checkpoint: its footer, and its row groups as Arrow batches of selected leaf columns.
//!
//! Strings are views into the decompressed pages. A malformed file is an [`Error::CorruptLog`]; an error of the store
//! is returned unchanged.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{DataType, Field, FieldRef, Fields, TimeUnit};
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, RowGroups, RowSelection, RowSelector};
use parquet::arrow::{FieldLevels, ProjectionMask, parquet_to_arrow_field_levels, parquet_to_arrow_schema};
use parquet::basic::Type as PhysicalType;
use parquet::column::page::{PageIterator, PageReader};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};
use parquet::file::serialized_reader::SerializedPageReader;
use parquet::schema::types::{ColumnDescPtr, SchemaDescriptor};

use super::calendar::Calendar;
use super::column_bytes::{ColumnBytes, FirstError, Ranges, store_error};
use super::footer;
use super::page_meter::{BatchLimit, ColumnMeter, MeteredPages, PageMeter, StatsColumns};
use super::page_places::{KnownPlaces, PagePlaces, PlacedPages};
use super::prefix_coded::Levels;
use crate::checkpoint::{BATCH_BYTES, BATCH_ROWS};
use crate::log_memory::Admitted;
use crate::{Error, Result};

/// A Parquet file with its decoded footer.
#[derive(Clone)]
pub(crate) struct ParquetFile {
    name: Arc<str>,
    source: Arc<dyn Ranges>,
    footer: Footer,
}

/// A decoded footer, to open the same file again without reading it.
#[derive(Debug, Clone)]
pub(crate) struct Footer {
    metadata: Arc<ParquetMetaData>,
    /// The file's Arrow schema with strings as views.
    fields: Fields,
    places: Arc<KnownPlaces>,
    _memory: Arc<Admitted>,
}

impl Footer {
    fn read(source: &dyn Ranges) -> Result<Self, ParquetError> {
        let (metadata, mut memory) = footer::read(source)?;
        let schema = metadata.file_metadata().schema_descr();
        let inferred = parquet_to_arrow_schema(schema, None)?;
        let mut types = WantedTypes { leaves: schema.columns().iter() };
        let fields = types.fields(&inferred.fields, false);
        // Readers with a filter have the paths of the columns again.
        memory.keep(2 * (metadata.memory_size() + fields.size()) as u64);
        let places = Arc::default();
        Ok(Self { metadata: Arc::new(metadata), fields, places, _memory: Arc::new(memory) })
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.metadata.memory_size() + self.fields.size() + KnownPlaces::most_bytes(&self.metadata)
    }
}

/// The leaf columns to read, by their index in the file's schema.
pub(crate) struct Projection {
    levels: FieldLevels,
    leaves: usize,
    /// The texts of statistics.
    text_stats: Vec<usize>,
    /// The typed columns of statistics.
    typed_stats: Vec<usize>,
}

/// The size of the reads of all columns of a row group.
const WINDOWS_BYTES: usize = 16 << 20;

impl ParquetFile {
    /// `name`: the file's name for errors.
    pub(crate) fn open(source: impl Ranges, name: &str) -> Result<Self> {
        let footer = without_panic(|| Footer::read(&source)).map_err(|error| from_parquet(name, &error))?;
        check_rows(name, &footer.metadata)?;
        Ok(Self { name: name.into(), source: Arc::new(source), footer })
    }

    /// Opens a file whose footer is known. `source` must be the file of the footer.
    pub(crate) fn open_again(source: impl Ranges, name: &Arc<str>, footer: &Footer) -> Self {
        Self { name: Arc::clone(name), source: Arc::new(source), footer: footer.clone() }
    }

    pub(crate) fn footer(&self) -> Footer {
        self.footer.clone()
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    pub(crate) fn row_groups(&self) -> &[RowGroupMetaData] {
        self.footer.metadata.row_groups()
    }

    /// Returns the indices of the leaf columns whose paths `wanted` accepts.
    pub(crate) fn leaves(&self, wanted: impl Fn(&[String]) -> bool) -> Vec<usize> {
        let columns = self.schema().columns();
        let is_wanted = |position: &usize| wanted(columns[*position].path().parts());
        (0..columns.len()).filter(is_wanted).collect()
    }

    pub(crate) fn leaves_of_add(&self, fields: &[&str]) -> Vec<usize> {
        self.leaves(|path| match path {
            [add, field, ..] => add == "add" && fields.contains(&field.as_str()),
            _ => false,
        })
    }

    pub(crate) fn leaf_path(&self, leaf: usize) -> &[String] {
        self.schema().columns()[leaf].path().parts()
    }

    /// Whether a leaf has Spark's old timestamps.
    pub(crate) fn is_int96(&self, leaf: usize) -> bool {
        self.schema().columns()[leaf].physical_type() == PhysicalType::INT96
    }

    /// Returns the Arrow field of a leaf whose parents are all structs.
    pub(crate) fn struct_leaf(&self, leaf: usize) -> Option<&Field> {
        let (last, parents) = self.leaf_path(leaf).split_last()?;
        let mut fields = &self.footer.fields;
        for parent in parents {
            let DataType::Struct(children) = fields.find(parent)?.1.data_type() else { return None };
            fields = children;
        }
        fields.find(last).map(|(_, field)| &**field)
    }

    /// The name of the writer's library.
    pub(crate) fn created_by(&self) -> Option<&str> {
        self.footer.metadata.file_metadata().created_by()
    }

    pub(crate) fn schema(&self) -> &SchemaDescriptor {
        self.footer.metadata.file_metadata().schema_descr()
    }

    /// Returns the calendar of the file's dates and times.
    pub(crate) fn calendar(&self) -> Calendar {
        Calendar::of(self.footer.metadata.file_metadata().key_value_metadata())
    }

    pub(crate) fn project(&self, leaves: &[usize]) -> Result<Projection> {
        let schema = self.schema();
        let mask = ProjectionMask::leaves(schema, leaves.iter().copied());
        let levels = without_panic(|| parquet_to_arrow_field_levels(schema, mask, Some(&self.footer.fields)));
        let levels = levels.map_err(|error| from_parquet(&self.name, &error))?;
        let below_add = |name: &str| {
            let is_below = |leaf: &usize| self.leaf_path(*leaf).get(1).is_some_and(|field| field == name);
            leaves.iter().copied().filter(is_below).collect()
        };
        let (text_stats, typed_stats) = (below_add("stats"), below_add("stats_parsed"));
        Ok(Projection { levels, leaves: leaves.len(), text_stats, typed_stats })
    }

    /// Returns the rows of a batch of these columns with about [`BATCH_BYTES`] of pages, by the footer.
    pub(crate) fn batch_rows(&self, row_group: usize, leaves: &[usize]) -> usize {
        let row_group = self.footer.metadata.row_group(row_group);
        let columns = leaves.iter().map(|leaf| row_group.column(*leaf).uncompressed_size().max(0) as u64);
        let bytes = columns.fold(1, u64::saturating_add);
        let rows = (row_group.num_rows().max(0) as u64).saturating_mul(BATCH_BYTES as u64) / bytes;
        rows.clamp(1, BATCH_ROWS as u64) as usize
    }

    /// Reads the rows of a row group, or those in `selection`, as batches of at most `batch_rows`.
    pub(crate) fn read(
        &self,
        row_group: usize,
        projection: &Projection,
        batch_rows: usize,
        selection: Option<RowSelection>,
    ) -> Result<RowGroupReader> {
        self.read_within(row_group, projection, batch_rows, selection, None)
    }

    /// As [`Self::read`], but a batch of several rows that is far larger than [`BATCH_BYTES`] fails: see
    /// [`RowGroupReader::is_too_large`].
    pub(crate) fn read_bounded(
        &self,
        row_group: usize,
        projection: &Projection,
        batch_rows: usize,
        selection: Option<RowSelection>,
    ) -> Result<RowGroupReader> {
        let limit = BatchLimit { rows: batch_rows, bytes: 2 * BATCH_BYTES };
        self.read_within(row_group, projection, batch_rows, selection, Some(limit).filter(|_| batch_rows > 1))
    }

    fn meter(&self, row_group: usize, projection: &Projection) -> PageMeter {
        let columns = self.row_groups()[row_group].columns();
        let stored = |leaves: &[usize]| {
            let bytes = leaves.iter().map(|leaf| columns[*leaf].compressed_size().max(0) as u64);
            // The footer may state any size.
            bytes.fold(0, u64::saturating_add).min(self.source.size())
        };
        PageMeter::of(StatsColumns {
            typed: projection.typed_stats.len(),
            typed_stored: stored(&projection.typed_stats),
            text_stored: stored(&projection.text_stats),
        })
    }

    fn read_within(
        &self,
        row_group: usize,
        projection: &Projection,
        batch_rows: usize,
        selection: Option<RowSelection>,
        limit: Option<BatchLimit>,
    ) -> Result<RowGroupReader> {
        let pages = RowGroupPages {
            source: Arc::clone(&self.source),
            footer: self.footer.clone(),
            by_index: selection.is_some(),
            row_group,
            first_error: FirstError::default(),
            meter: Arc::new(self.meter(row_group, projection)),
            limit,
            window_bytes: WINDOWS_BYTES / projection.leaves.max(1),
        };
        let open = |selection| pages.open(&projection.levels, batch_rows, selection);
        let inner = open(selection.clone()).map_err(|error| from_parquet(&self.name, &error))?;
        let (first_error, meter) = (pages.first_error.clone(), Arc::clone(&pages.meter));
        let levels = projection.levels.clone();
        let by_headers = selection.map(|selection| -> ReadOn {
            Box::new(move |rows| {
                pages.footer.places.leave();
                let left = selection.row_count().saturating_sub(rows);
                let rest = RowSelection::from(vec![RowSelector::skip(rows), RowSelector::select(left)]);
                let pages = RowGroupPages { by_index: false, ..pages };
                pages.open(&levels, batch_rows, Some(selection.and_then(&rest)))
            })
        });
        let name = Arc::clone(&self.name);
        Ok(RowGroupReader { inner: Some(inner), name, first_error, meter, by_headers, rows: 0 })
    }
}

/// Continues behind a number of rows.
type ReadOn = Box<dyn FnOnce(usize) -> Result<ParquetRecordBatchReader, ParquetError> + Send>;

pub(crate) struct RowGroupReader {
    inner: Option<ParquetRecordBatchReader>,
    name: Arc<str>,
    first_error: FirstError,
    meter: Arc<PageMeter>,
    /// Reads the rest without the offset index, which may be wrong where the file is not.
    by_headers: Option<ReadOn>,
    /// The rows that were returned.
    rows: usize,
}

impl RowGroupReader {
    /// Whether the reader ended because a batch of this many rows is too large.
    pub(crate) fn is_too_large(&self) -> bool {
        self.meter.has_exceeded()
    }

    /// The bytes that the reader holds between two batches.
    pub(crate) fn held_bytes(&self) -> usize {
        self.meter.held_bytes()
    }
}

impl Iterator for RowGroupReader {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        let inner = self.inner.as_mut()?;
        self.meter.next_batch();
        let error = match without_panic(|| Ok(inner.next().transpose()?)) {
            Ok(batch) => {
                self.rows += batch.as_ref().map_or(0, RecordBatch::num_rows);
                return batch.map(Ok);
            }
            Err(error) => error,
        };
        // After its first error a reader's results are undefined.
        self.inner = None;
        let failure = self.first_error.take().or_else(|| store_error(&error));
        if failure.is_none()
            && !self.is_too_large()
            && let Some(read_on) = self.by_headers.take()
            && let Ok(reader) = read_on(self.rows)
        {
            self.inner = Some(reader);
            return self.next();
        }
        Some(Err(failure.unwrap_or_else(|| from_parquet(&self.name, &error))))
    }
}

/// Gives the column chunks of one row group to the Arrow reader.
struct RowGroupPages {
    source: Arc<dyn Ranges>,
    footer: Footer,
    /// Whether pages are found by the offset index.
    by_index: bool,
    row_group: usize,
    first_error: FirstError,
    meter: Arc<PageMeter>,
    limit: Option<BatchLimit>,
    /// The size of one read of a column.
    window_bytes: usize,
}

impl RowGroups for RowGroupPages {
    fn num_rows(&self) -> usize {
        self.metadata().row_group(self.row_group).num_rows() as usize
    }

    fn column_chunks(&self, leaf: usize) -> Result<Box<dyn PageIterator>, ParquetError> {
        let column = self.metadata().row_group(self.row_group).column(leaf);
        let (start, length) = column.byte_range();
        let chunk = start..start.saturating_add(length);
        let (source, first_error) = (Arc::clone(&self.source), self.first_error.clone());
        let meter = ColumnMeter::new(Arc::clone(&self.meter));
        let codec = column.compression();
        let bytes = Arc::new(ColumnBytes::new(source, first_error, chunk, codec, self.window_bytes, meter));
        let descriptor = column.column_descr();
        let levels = Levels {
            has_definitions: descriptor.max_def_level() > 0,
            has_repetitions: descriptor.max_rep_level() > 0,
        };
        let meter = Arc::clone(&self.meter);
        let places = if self.by_index { self.places(leaf)? } else { None };
        let pages: Box<dyn PageReader> = if let Some(places) = places {
            let pages = PlacedPages::new(bytes, column, places)?;
            Box::new(MeteredPages::new(pages, meter, levels, self.limit))
        } else {
            let pages = SerializedPageReader::new(bytes, column, self.num_rows(), None)?;
            Box::new(MeteredPages::new(pages, meter, levels, self.limit))
        };
        Ok(Box::new(OnePageReader(Some(pages))))
    }

    fn row_groups(&self) -> Box<dyn Iterator<Item = &RowGroupMetaData> + '_> {
        Box::new(std::iter::once(self.metadata().row_group(self.row_group)))
    }

    fn metadata(&self) -> &ParquetMetaData {
        &self.footer.metadata
    }
}

impl RowGroupPages {
    fn open(
        &self,
        levels: &FieldLevels,
        batch_rows: usize,
        selection: Option<RowSelection>,
    ) -> Result<ParquetRecordBatchReader, ParquetError> {
        without_panic(|| {
            ParquetRecordBatchReader::try_new_with_row_groups(levels, self, batch_rows, selection)
        })
    }

    fn places(&self, leaf: usize) -> Result<Option<Arc<PagePlaces>>, ParquetError> {
        let column = self.metadata().row_group(self.row_group).column(leaf);
        let places = self.footer.places.get(&*self.source, (self.row_group, leaf), column, self.num_rows());
        places.inspect_err(|error| self.first_error.record_error(error))
    }
}

struct OnePageReader(Option<Box<dyn PageReader>>);

impl Iterator for OnePageReader {
    type Item = Result<Box<dyn PageReader>, ParquetError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.take().map(Ok)
    }
}

impl PageIterator for OnePageReader {}

/// Runs a call of the Parquet reader, and returns an error if it panics. The reader asserts the rules of the format
/// (offsets are not negative, levels fit their bit width), so a damaged file can make it panic. It changes only its own
/// buffers, so no other state is left inconsistent.
pub(crate) fn without_panic<T>(read: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, ParquetError> {
    catch_unwind(AssertUnwindSafe(read))
        .unwrap_or_else(|_| Err(ParquetError::General("it breaks the Parquet format".to_owned())))
}

fn from_parquet(name: &str, error: &ParquetError) -> Error {
    store_error(error).unwrap_or_else(|| Error::corrupt(name, error.to_string()))
}

/// Refuses a file whose rows have no index in `u32`, or with row groups of fewer rows than the footer states elsewhere: the
/// others would be left out of the answer. The number of all rows may be lower, as fastparquet keeps it when it appends.
fn check_rows(name: &str, metadata: &ParquetMetaData) -> Result<()> {
    let rows = metadata
        .row_groups()
        .iter()
        .try_fold(0_u32, |rows, row_group| rows.checked_add(u32::try_from(row_group.num_rows()).ok()?));
    let Some(rows) = rows else {
        return Err(Error::corrupt(name, "it says that it has an impossible number of rows"));
    };
    let has_more_values = |row_group: &RowGroupMetaData| {
        let mut flat = row_group.columns().iter().filter(|column| column.column_descr().max_rep_level() == 0);
        flat.any(|column| column.num_values() > row_group.num_rows())
    };
    let has_more_rows = metadata.file_metadata().num_rows() > i64::from(rows);
    if has_more_rows || metadata.row_groups().iter().any(has_more_values) {
        return Err(Error::corrupt(name, "its row groups have fewer rows than its footer states"));
    }
    Ok(())
}

/// Returns the number of rows of a row group without an add, given the leaves of fields that each add has. Too high numbers
/// of nulls differ between columns.
pub(crate) fn rows_without_add(row_group: &RowGroupMetaData, required: &[usize]) -> Option<i64> {
    required.iter().filter_map(|leaf| null_count(row_group, *leaf)).min()
}

/// Returns whether the rows of a column chunk may differ from null, by its statistics. Those of a leaf in a list or a map
/// say nothing of it: an empty list has no value and is not null.
pub(crate) fn may_have_rows(row_group: &RowGroupMetaData, leaf: usize) -> bool {
    row_group.column(leaf).column_descr().max_rep_level() > 0 || has_values(row_group, leaf)
}

/// Returns whether a column chunk may contain a value, by its statistics.
pub(crate) fn has_values(row_group: &RowGroupMetaData, leaf: usize) -> bool {
    null_count(row_group, leaf).is_none_or(|nulls| nulls < row_group.column(leaf).num_values())
}

/// Returns the number of nulls in a column chunk, if its statistics have it and do not contradict it: a bound is a value.
/// Some releases of Polars multiply the number by that of the pages.
pub(crate) fn null_count(row_group: &RowGroupMetaData, leaf: usize) -> Option<i64> {
    let column = row_group.column(leaf);
    let statistics = column.statistics()?;
    let has_bound = statistics.min_bytes_opt().or(statistics.max_bytes_opt()).is_some();
    let nulls = i64::try_from(statistics.null_count_opt()?).ok()?;
    (nulls <= column.num_values() - i64::from(has_bound)).then_some(nulls)
}

/// The Arrow types of a file's columns.
struct WantedTypes<'a> {
    /// The leaves of the fields, in the same order.
    leaves: std::slice::Iter<'a, ColumnDescPtr>,
}

impl WantedTypes<'_> {
    fn fields(&mut self, fields: &Fields, typed: bool) -> Fields {
        fields.iter().map(|field| self.field(field, typed)).collect()
    }

    /// Returns strings as views. Old writers do not annotate a column of bytes as a string; outside of the typed
    /// columns each such column is one.
    fn field(&mut self, field: &FieldRef, typed: bool) -> FieldRef {
        let typed = typed || matches!(field.name().as_str(), "stats_parsed" | "partitionValues_parsed");
        let data_type = match field.data_type() {
            DataType::Struct(children) => DataType::Struct(self.fields(children, typed)),
            DataType::Map(entries, sorted) => DataType::Map(self.field(entries, typed), *sorted),
            DataType::List(item) => DataType::List(self.field(item, typed)),
            leaf => self.leaf(leaf, typed),
        };
        Arc::new(Field::clone(field).with_data_type(data_type))
    }

    fn leaf(&mut self, inferred: &DataType, typed: bool) -> DataType {
        let physical_type = self.leaves.next().map(|leaf| leaf.physical_type());
        match inferred {
            DataType::Utf8 | DataType::LargeUtf8 => DataType::Utf8View,
            DataType::Binary | DataType::LargeBinary if !typed => DataType::Utf8View,
            // Spark's timestamps are instants. As nanoseconds they would overflow in 2262.
            _ if physical_type == Some(PhysicalType::INT96) => {
                DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
            }
            other => other.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use parquet::file::metadata::ColumnChunkMetaData;
    use parquet::file::statistics::Statistics;
    use parquet::schema::parser::parse_message_type;

    use super::*;

    #[test]
    fn a_number_of_nulls_that_a_bound_or_the_number_of_values_contradicts_is_unknown() {
        let schema = parse_message_type("message m { optional int64 c; }").unwrap();
        let schema = Arc::new(SchemaDescriptor::new(Arc::new(schema)));
        for (bound, nulls, expected, may_have) in [
            (Some(1), Some(2), Some(2), true),
            (Some(1), Some(3), Some(3), true),
            (Some(1), Some(4), None, true),
            (Some(1), Some(8), None, true),
            (Some(1), None, None, true),
            (None, Some(3), Some(3), true),
            (None, Some(4), Some(4), false),
            (None, Some(8), None, true),
        ] {
            for (min, max) in [(bound, None), (None, bound), (bound, bound)] {
                let column = ColumnChunkMetaData::builder(schema.column(0))
                    .set_num_values(4)
                    .set_statistics(Statistics::int64(min, max, None, nulls, false));
                let columns = vec![column.build().unwrap()];
                let row_group = RowGroupMetaData::builder(Arc::clone(&schema)).set_column_metadata(columns);
                let row_group = row_group.set_num_rows(4).build().unwrap();
                assert_eq!(null_count(&row_group, 0), expected, "{min:?} {max:?} {nulls:?}");
                assert_eq!(has_values(&row_group, 0), may_have, "{min:?} {max:?} {nulls:?}");
            }
        }
    }
}
