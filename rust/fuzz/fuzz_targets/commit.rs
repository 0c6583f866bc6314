//! Any bytes as a JSON file of the log: actions or a corrupt log, and all of what is read can be asked for.

#![no_main]

use std::hint::black_box;

use bytes::Bytes;
use deltalog::Error;
use deltalog::actions::SourceId;
use deltalog::commit::{Columns, CommitFile};
use deltalog::partition::PartitionInterner;
use libfuzzer_sys::fuzz_target;

const NAME: &str = "00000000000000000001.json";

fuzz_target!(|data: &[u8]| {
    match CommitFile::parse(NAME, &Bytes::copy_from_slice(data)) {
        Ok(file) => [&file.adds, &file.removes, &file.cdc].into_iter().for_each(visit),
        Err(Error::CorruptLog { .. }) => {}
        Err(error) => panic!("{error:?}"),
    }
});

fn visit(columns: &Columns) {
    for index in 0..columns.len() {
        black_box(columns.path(index));
        black_box(columns.is_data_change(index));
        black_box(columns.is_complete(index));
        if let Some(vector) = columns.deletion_vector(index) {
            black_box(vector.unique_id());
        }
    }
    match columns.batch(SourceId(0), NAME, &mut PartitionInterner::new(&["day", "city"])) {
        Ok(batch) => assert_eq!(batch.len(), columns.len()),
        Err(Error::CorruptLog { .. }) => {}
        Err(error) => panic!("{error:?}"),
    }
}
