//! The protocols and metadata of a range, read before the answer begins.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use foldhash::fast::RandomState;

use super::{Changes, InForce};
use crate::actions::Metadata;
use crate::commit::CommitHeads;
use crate::error::Result;
use crate::stop::Stop;

/// Maximum bytes of commits that a survey keeps, so that small ranges are read once.
const KEPT_BYTES: usize = 4 << 20;
/// Maximum bytes of metadata that a survey keeps.
const METADATA_BYTES: usize = 4 << 20;
/// Memory of one entry of [`Survey::changed`], with its share of the tree.
pub(super) const ENTRY_BYTES: usize = 2 * size_of::<(i64, InForce)>();

/// The protocols and metadata in force in a range, in bounded memory.
#[derive(Debug)]
pub(super) struct Survey {
    /// By the version that changed the protocol or the metadata. Equal metadata is shared.
    pub(super) changed: Arc<BTreeMap<i64, InForce>>,
    /// The first version whose metadata exceeded the memory. Later versions are unknown.
    end: Option<i64>,
}

impl Survey {
    /// Returns the protocol and metadata in force at a version of the range, if the survey kept them.
    pub(super) fn in_force_at(&self, version: i64) -> Option<InForce> {
        if self.end.is_some_and(|end| version >= end) {
            return None;
        }
        self.changed.range(..=version).next_back().map(|(_, in_force)| in_force.clone())
    }

    pub(super) fn metadata(&self) -> impl Iterator<Item = &Arc<Metadata>> {
        self.changed.values().map(|in_force| &in_force.metadata)
    }
}

/// Collects a [`Survey`] version by version.
#[derive(Debug)]
struct Collected {
    changed: BTreeMap<i64, InForce>,
    distinct: HashSet<Arc<Metadata>, RandomState>,
    bytes: usize,
    end: Option<i64>,
}

impl Collected {
    fn new(version: i64, head: InForce) -> Self {
        let mut collected =
            Self { changed: BTreeMap::new(), distinct: HashSet::default(), bytes: 0, end: None };
        // The snapshot of the first version holds it anyway.
        collected.distinct.insert(Arc::clone(&head.metadata));
        collected.changed.insert(version, head);
        collected
    }

    /// Adds a protocol and metadata in force from a version on. Shares metadata that is equal to an earlier one.
    fn take(&mut self, version: i64, in_force: &mut InForce) {
        if self.end.is_some() {
            return;
        }
        if let Some(known) = self.distinct.get(&in_force.metadata) {
            in_force.metadata = Arc::clone(known);
        } else {
            self.bytes += in_force.metadata.memory_bytes();
        }
        self.bytes += ENTRY_BYTES;
        if self.bytes > METADATA_BYTES {
            self.end = Some(version);
            return;
        }
        self.distinct.insert(Arc::clone(&in_force.metadata));
        self.changed.insert(version, in_force.clone());
    }
}

impl Changes {
    /// Reads the protocols and metadata of all versions of the range, so that the requirements for clients are known
    /// before the first byte. Rejects a range with an unsupported feature or, for the change data feed, with a
    /// version at which it was disabled ([`Error::ChangeDataFeedDisabled`](crate::Error::ChangeDataFeedDisabled)). A
    /// later page of an answer needs no second survey. Ends with an error at `stop`.
    pub fn survey(&mut self, stop: &Stop) -> Result<()> {
        self.check_feed(self.starting_version(), self.head.metadata())?;
        let mut in_force = InForce::at(&self.head);
        let mut collected = Collected::new(self.starting_version(), in_force.clone());
        let has_catalog = self.storage.catalog().is_some();
        let mut kept_bytes = 0;
        let commits = Arc::clone(&self.commits);
        let mut reads = self.groups(0);
        while let Some((group, contents)) = reads.next() {
            for (commit, bytes) in commits[group].iter().zip(contents) {
                stop.check()?;
                let bytes = bytes.map_err(|error| reads.explain_missing(error, self.starting_version()))?;
                let heads = CommitHeads::parse(&commit.file.name, &bytes)?;
                kept_bytes += bytes.len();
                if kept_bytes <= KEPT_BYTES {
                    self.kept.insert(commit.version, bytes);
                }
                if commit.version == self.starting_version() {
                    continue;
                }
                let protocol =
                    heads.protocol.map(|found| found.checked(&commit.file.name, has_catalog)).transpose()?;
                let protocol = protocol.filter(|found| *found != *in_force.protocol);
                let metadata = heads.metadata.filter(|found| *found != *in_force.metadata);
                if protocol.is_none() && metadata.is_none() {
                    continue;
                }
                in_force.protocol = protocol.map_or(in_force.protocol, Arc::new);
                in_force.metadata = metadata.map_or(in_force.metadata, Arc::new);
                collected.take(commit.version, &mut in_force);
                self.check_feed(commit.version, &in_force.metadata)?;
                self.require(in_force.protocol.client_reader_features(&in_force.metadata));
            }
        }
        self.survey = Some(Survey { changed: Arc::new(collected.changed), end: collected.end });
        Ok(())
    }
}
