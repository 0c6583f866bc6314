//! The reader features of a table's protocol (PROTOCOL, sections Protocol Evolution and Table Features).
//!
//! One table lists every reader feature that this crate knows. It decides whether the log can be read, which features a
//! client must announce, whether the answer requires the delta format, and which features remain in the protocol line of
//! an answer. A listed feature counts whether or not a property enables it: files of older versions may still use it,
//! and the parquet format has no field for it. Writer features are ignored.

use crate::actions::{Metadata, Protocol};
use crate::error::{Error, Result};

/// The party that must support a reader feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Concern {
    /// The feature changes how data files are read, so clients must announce it.
    Client,
    /// The feature changes how the log is read. Clients do not need it, so both lists of the protocol line omit it.
    Log,
    /// A writer feature that some protocols list for readers too. The protocol line lists it as a writer feature only.
    Writer,
}

/// Every reader feature that this crate can read.
const KNOWN: [(&str, Concern); 17] = [
    (COLUMN_MAPPING, Concern::Client),
    ("deletionVectors", Concern::Client),
    ("timestampNtz", Concern::Client),
    ("typeWidening", Concern::Client),
    ("typeWidening-preview", Concern::Client),
    ("variantType", Concern::Client),
    ("variantType-preview", Concern::Client),
    ("variantShredding", Concern::Client),
    ("variantShredding-preview", Concern::Client),
    (CATALOG_MANAGED[0], Concern::Log),
    (CATALOG_MANAGED[1], Concern::Log),
    ("v2Checkpoint", Concern::Log),
    ("vacuumProtocolCheck", Concern::Log),
    ("clustering", Concern::Writer),
    ("domainMetadata", Concern::Writer),
    (IN_COMMIT_TIMESTAMP, Concern::Writer),
    ("rowTracking", Concern::Writer),
];

/// The names of the feature of tables whose commits a catalog ratifies.
const CATALOG_MANAGED: [&str; 2] = ["catalogManaged", "catalogOwned-preview"];
const COLUMN_MAPPING: &str = "columnMapping";
const IN_COMMIT_TIMESTAMP: &str = "inCommitTimestamp";

/// Table properties about checkpoints and commits, which an answer does not have. Clients rebuild a log from it: Delta
/// Spark refuses the policy without `v2Checkpoint` in the protocol, and Delta Kernel changes without the timestamps.
const PROPERTIES_OF_THE_LOG: [&str; 4] = [
    "delta.checkpointPolicy",
    "delta.enableInCommitTimestamps",
    "delta.inCommitTimestampEnablementVersion",
    "delta.inCommitTimestampEnablementTimestamp",
];

/// The first writer version with `writerFeatures`.
const WRITER_FEATURES_VERSION: i32 = 7;

fn concern(feature: &str) -> Option<Concern> {
    KNOWN.iter().find(|(name, _)| *name == feature).map(|(_, concern)| *concern)
}

impl Protocol {
    /// Returns an error for a protocol that this crate cannot read. `file` is the log file to name if the protocol is
    /// invalid.
    ///
    /// Some writers write an empty list for an absent one. In a version without lists it is removed, because clients
    /// reject the empty list.
    ///
    /// Without a catalog the log does not tell the latest version of a table that one manages.
    pub(crate) fn checked(mut self, file: &str, has_catalog: bool) -> Result<Self> {
        let has_no_list = |features: &Option<Vec<String>>| features.as_ref().is_some_and(Vec::is_empty);
        if self.min_reader_version < 3 && has_no_list(&self.reader_features) {
            self.reader_features = None;
        }
        if self.min_writer_version < 7 && has_no_list(&self.writer_features) {
            self.writer_features = None;
        }
        self.check(file)?;
        if self.is_catalog_managed() && !has_catalog { Err(Error::CatalogNotConfigured) } else { Ok(self) }
    }

    fn check(&self, file: &str) -> Result<()> {
        let features = self.reader_features.as_deref().unwrap_or_default();
        if let Some(unknown) = features.iter().find(|feature| concern(feature).is_none()) {
            return Err(Error::UnsupportedFeature(unknown.clone()));
        }
        match (self.min_reader_version, &self.reader_features) {
            (4.., _) => Err(Error::UnsupportedFeature(format!("reader version {}", self.min_reader_version))),
            (3, Some(_)) | (1 | 2, None) => Ok(()),
            (3, None) => Err(Error::corrupt(file, "reader version 3 without readerFeatures")),
            (1 | 2, Some(_)) => Err(Error::corrupt(file, "readerFeatures without reader version 3")),
            _ => Err(Error::corrupt(file, "the reader version is not positive")),
        }
    }

    /// Returns the reader features that a client must announce, in the protocol's order. A listed feature is required
    /// whether or not a file uses it.
    #[must_use]
    pub fn client_reader_features(&self, metadata: &Metadata) -> Vec<String> {
        if self.min_reader_version == 2 && is_column_mapping_on(metadata) {
            return vec![COLUMN_MAPPING.to_owned()];
        }
        self.answered_reader_features().into_iter().flatten().cloned().collect()
    }

    /// Returns the reader features of an answer's protocol line, which are those that clients must announce. `None` if
    /// the protocol has no list.
    pub(crate) fn answered_reader_features(&self) -> Option<Vec<&String>> {
        let is_answered = |feature: &&String| concern(feature) == Some(Concern::Client);
        Some(self.reader_features.as_ref()?.iter().filter(is_answered).collect())
    }

    /// Returns the writer features of an answer's protocol line, `None` if the protocol has no list.
    pub(crate) fn answered_writer_features(&self) -> Option<Vec<&String>> {
        let is_answered = |feature: &&String| concern(feature) != Some(Concern::Log);
        Some(self.writer_features.as_ref()?.iter().filter(is_answered).collect())
    }

    /// Returns whether the table's catalog decides which commits count.
    #[must_use]
    pub fn is_catalog_managed(&self) -> bool {
        self.reader_features.iter().flatten().any(|name| CATALOG_MANAGED.contains(&name.as_str()))
    }

    pub(crate) fn supports_in_commit_timestamps(&self) -> bool {
        let mut features = self.writer_features.iter().flatten();
        self.min_writer_version >= WRITER_FEATURES_VERSION && features.any(|name| name == IN_COMMIT_TIMESTAMP)
    }

    /// Returns whether the parquet response format cannot represent the files.
    #[must_use]
    pub fn needs_delta_format(&self, metadata: &Metadata) -> bool {
        !self.client_reader_features(metadata).is_empty()
    }
}

impl Metadata {
    /// Returns whether the table's change data feed is enabled.
    #[must_use]
    pub fn is_change_data_feed_on(&self) -> bool {
        let property = self.property("delta.enableChangeDataFeed");
        property.is_some_and(|value| value.eq_ignore_ascii_case("true"))
    }

    /// Returns the table properties of an answer's metaData line.
    pub(crate) fn answered_configuration(&self) -> impl Iterator<Item = &(String, String)> {
        self.configuration.iter().filter(|(name, _)| !PROPERTIES_OF_THE_LOG.contains(&name.as_str()))
    }
}

/// Returns whether a property of the table maps its columns.
pub(crate) fn is_column_mapping_on(metadata: &Metadata) -> bool {
    metadata.property("delta.columnMapping.mode").is_some_and(|mode| !mode.eq_ignore_ascii_case("none"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn protocol(version: i32, features: Option<&[&str]>) -> Protocol {
        Protocol {
            min_reader_version: version,
            min_writer_version: 7,
            reader_features: features.map(|names| names.iter().map(|name| (*name).to_owned()).collect()),
            writer_features: Some(vec!["somethingOfTomorrow".into()]),
        }
    }

    fn mapped(mode: &str) -> Metadata {
        Metadata {
            configuration: vec![("delta.columnMapping.mode".into(), mode.into())],
            ..Metadata::default()
        }
    }

    #[test]
    fn known_protocols_are_read_and_unknown_features_refused_by_name() {
        let all = KNOWN.map(|(name, _)| name);
        for good in [protocol(1, None), protocol(2, None), protocol(3, Some(&[])), protocol(3, Some(&all))] {
            assert!(good.check("f").is_ok(), "{good:?}");
        }
        for unknown in ["geospatial", "collations-preview", "blahabl"] {
            for version in [1, 3] {
                let error = protocol(version, Some(&["deletionVectors", unknown])).check("f").unwrap_err();
                assert!(matches!(&error, Error::UnsupportedFeature(name) if name == unknown), "{error:?}");
            }
        }
        assert!(matches!(protocol(4, Some(&[])).check("f"), Err(Error::UnsupportedFeature(_))));
    }

    #[test]
    fn a_table_that_a_catalog_manages_needs_the_catalog_and_clients_do_not_see_the_feature() {
        for feature in CATALOG_MANAGED {
            let table = protocol(3, Some(&[feature, "deletionVectors"]));
            assert!(matches!(table.clone().checked("f", false), Err(Error::CatalogNotConfigured)));
            let read = table.checked("f", true).unwrap();
            assert_eq!(read.client_reader_features(&Metadata::default()), ["deletionVectors"]);
        }
    }

    #[test]
    fn feature_lists_and_versions_that_do_not_fit_are_invalid() {
        for wrong in [protocol(2, Some(&["columnMapping"])), protocol(3, None), protocol(0, None)] {
            assert!(matches!(wrong.check("f"), Err(Error::CorruptLog { .. })), "{wrong:?}");
        }
    }

    #[test]
    fn an_empty_list_where_there_may_be_none_is_none() {
        let spelled =
            Protocol { min_writer_version: 2, writer_features: Some(vec![]), ..protocol(1, Some(&[])) };
        let read = spelled.checked("f", false).unwrap();
        assert_eq!((read.reader_features, read.writer_features), (None, None));
        assert_eq!(protocol(3, Some(&[])).checked("f", false).unwrap().reader_features, Some(vec![]));
    }

    #[test]
    fn clients_need_only_the_features_of_the_files() {
        let none = Metadata::default();
        let table =
            protocol(3, Some(&["v2Checkpoint", "deletionVectors", "vacuumProtocolCheck", "timestampNtz"]));
        assert_eq!(table.client_reader_features(&none), ["deletionVectors", "timestampNtz"]);
        assert!(table.needs_delta_format(&none));
        assert!(!protocol(3, Some(&["v2Checkpoint"])).needs_delta_format(&none));
        assert!(!protocol(2, None).needs_delta_format(&none));
        assert!(!protocol(2, None).needs_delta_format(&mapped("none")));
        assert!(!protocol(1, None).needs_delta_format(&mapped("name")));
        for mode in ["name", "id"] {
            assert_eq!(protocol(2, None).client_reader_features(&mapped(mode)), ["columnMapping"]);
        }
    }
    #[test]
    fn a_listed_feature_counts_though_its_property_is_off() {
        let off = Metadata {
            configuration: vec![("delta.enableDeletionVectors".into(), "false".into())],
            ..mapped("none")
        };
        for feature in ["deletionVectors", "columnMapping"] {
            let table = protocol(3, Some(&[feature]));
            assert_eq!(table.client_reader_features(&off), [feature]);
            assert!(table.needs_delta_format(&off));
        }
    }

    #[test]
    fn features_of_writers_that_a_protocol_lists_for_readers_are_accepted_and_not_handed_on_to_them() {
        let listed = ["rowTracking", "domainMetadata", "clustering", "inCommitTimestamp", "v2Checkpoint"];
        let mut table = protocol(3, Some(&listed));
        table.writer_features.clone_from(&table.reader_features);
        assert!(table.check("f").is_ok());
        assert!(!table.needs_delta_format(&Metadata::default()));
        assert_eq!(table.answered_reader_features(), Some(vec![]));
        let writers = table.answered_writer_features().unwrap();
        assert!(writers.into_iter().eq(&listed[..4]));
    }
}
