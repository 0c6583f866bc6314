//! Any text as a `schemaString`: a schema whose columns are found by their names, or an error.

#![no_main]

use deltalog::schema::{ColumnMapping, StructType, Unresolved};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    for mapping in [ColumnMapping::None, ColumnMapping::Id, ColumnMapping::Name] {
        let Ok(schema) = StructType::parse(text, mapping) else { continue };
        for field in &schema.fields {
            let column = schema.resolve(&[&field.name]).expect("a field is found by its exact name");
            assert_eq!(column.logical, [field.name.as_str()]);
            let dotted = schema.resolve_dotted(&field.name);
            // A name with a dot may also be a path to another field.
            assert_ne!(dotted, Err(Unresolved::Missing));
        }
    }
});
