//! The properties of one file by a request of its own, instead of a listing.

use super::LogFileEntry;

/// The properties of a file without its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileProperties {
    /// The size in bytes.
    pub size: u64,
    /// The modification time in seconds since the epoch, as HTTP has no fractions.
    pub modified_s: i64,
    /// As [`LogFileEntry::entity_tag`].
    pub entity_tag: Option<Box<str>>,
    /// As [`LogFileEntry::identity`].
    pub identity: u64,
}

impl FileProperties {
    /// Returns whether these may be the properties of a listed file, and if so, whether the tags are equal. Some
    /// stores list another entity tag than they send with the object, or none.
    #[must_use]
    pub fn matches(&self, listed: &LogFileEntry) -> Option<bool> {
        if listed.is_staged() {
            return (self.size == listed.size).then_some(true);
        }
        let is_same = self.size == listed.size
            && self.modified_s == listed.modified_ms.div_euclid(1000)
            && self.identity == listed.identity;
        is_same.then(|| self.entity_tag.is_some() && self.entity_tag == listed.entity_tag)
    }

    /// Returns the file with these properties, as a listing shows it.
    pub(crate) fn into_entry(self, name: String) -> LogFileEntry {
        let Self { size, modified_s, entity_tag, identity } = self;
        LogFileEntry { name, size, modified_ms: modified_s.saturating_mul(1000), entity_tag, identity }
    }
}

/// Returns an entity tag without quotes, which listings and answers write differently. Some stores send none or an
/// empty one.
pub(super) fn plain_tag(tag: &str) -> Option<&str> {
    Some(tag.trim_start_matches("W/").trim_matches('"')).filter(|tag| !tag.is_empty())
}
