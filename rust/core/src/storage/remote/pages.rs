//! The pages of a listing, for logs and for directories: all of them, or an error.
//!
//! A page that names the next one twice, or that does not advance, is an error: such a listing would never end. Pages,
//! bytes and time are bounded.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::path::Path;
use object_store::{Error as StoreError, ListResult, ObjectMeta};

use super::super::transport::{Listing, PageEnd};
use super::{LAST, listing_error};
use crate::error::{Error, Result};

/// Maximum number of pages; each may be empty and not the last one.
const MAX_PAGES: usize = 20_000;

/// Maximum size of all names and tags of a listing.
const MAX_LISTING_BYTES: usize = 512 << 20;

/// The size of an entry in memory without its name and its tag.
const ENTRY_BYTES: usize = 96;

/// Reads the pages of one listing.
pub(super) struct Pages<'a> {
    store: &'a dyn PaginatedListStore,
    /// For messages.
    directory: &'a str,
    prefix: Option<String>,
    /// The request for the next page.
    pub(super) options: PaginatedListOptions,
    /// Whether the store lists by name.
    is_ordered: bool,
    is_ended: bool,
    /// The names of a page that says that it is the last one and names a next one.
    last_page: Option<HashSet<(bool, Path)>>,
    tokens: HashSet<u64>,
    /// The last name of the last page that has any.
    last_name: Option<String>,
    /// Whether all names so far ascend.
    is_ascending: bool,
    bytes: usize,
}

/// A page of a listing; `Err` is the client's refusal of a page, which can be requested in another way.
pub(super) type Page = std::result::Result<ListResult, StoreError>;

impl<'a> Pages<'a> {
    /// The pages below a prefix, which ends with a slash, or of the whole bucket.
    pub(super) fn new(
        store: &'a dyn PaginatedListStore,
        directory: &'a str,
        prefix: Option<String>,
        mut options: PaginatedListOptions,
        is_ordered: bool,
    ) -> Self {
        options.extensions.insert(Listing);
        Self {
            store,
            directory,
            prefix,
            options,
            is_ordered,
            is_ended: false,
            last_page: None,
            tokens: HashSet::new(),
            last_name: None,
            is_ascending: true,
            bytes: 0,
        }
    }

    /// Returns the next page; `None` after the last one.
    pub(super) async fn next(&mut self) -> Result<Option<Page>> {
        if self.is_ended {
            return Ok(None);
        }
        let page = match self.store.list_paginated(self.prefix.as_deref(), self.options.clone()).await {
            Ok(page) => page,
            Err(error) => return Ok(Some(Err(error))),
        };
        let token = page.page_token.filter(|token| !token.is_empty());
        let end = page.result.extensions.get::<PageEnd>().copied().unwrap_or_default();
        let names = Names::of(&page.result);
        // Some stores name a next page behind the last one, which is that page again or an empty one. A page with other
        // names is read, in whatever order they are.
        if self.last_page.as_ref().is_some_and(|last| names_of(&page.result).is_subset(last)) {
            self.is_ended = true;
            return Ok(None);
        }
        self.last_page = (end.is_last && token.is_some()).then(|| names_of(&page.result));
        self.take(&page.result, &names)?;
        match token {
            Some(token) => {
                if self.tokens.len() >= MAX_PAGES {
                    return Err(self.wrong(format!("has more than {MAX_PAGES} pages")));
                }
                let mut hasher = DefaultHasher::new();
                token.hash(&mut hasher);
                let is_known = !self.tokens.insert(hasher.finish());
                if is_known && !end.is_last {
                    return Err(self.wrong("names a page twice as the next one"));
                }
                self.is_ended = is_known;
                self.options.page_token = Some(token);
            }
            None if end.is_truncated => match names.last.filter(|_| self.is_in_order()) {
                Some(last) => {
                    self.options.page_token = None;
                    self.options.offset = Some(last);
                }
                None => return Err(self.wrong("is truncated and names no next page")),
            },
            None => self.is_ended = true,
        }
        Ok(Some(Ok(page.result)))
    }

    /// Begins again after a name, with pages of the store's own size.
    pub(super) fn begin_again_after(&mut self, name: String) {
        self.options.page_token = None;
        self.options.max_keys = None;
        self.options.offset = Some(name);
        self.last_page = None;
        self.tokens.clear();
        self.last_name = None;
    }

    /// Returns whether the names of later pages all follow the names of earlier pages.
    pub(super) fn is_in_order(&self) -> bool {
        self.is_ordered && self.is_ascending
    }

    /// Returns whether the last page was read.
    pub(super) fn is_ended(&self) -> bool {
        self.is_ended
    }

    fn take(&mut self, page: &ListResult, names: &Names) -> Result<()> {
        if !self.has_all_names_of(page) {
            return Err(self.wrong("has names outside of the listed directory"));
        }
        // A store that does not know of directories would seem to have none.
        if self.options.delimiter.is_some() && page.objects.iter().any(|object| self.is_deeper(object)) {
            return Err(self.wrong("has names below the directories that it was to end at"));
        }
        let tags = page.objects.iter().map(|object| object.e_tag.as_ref().map_or(0, String::len));
        self.bytes += names.bytes + tags.sum::<usize>() + names.count * ENTRY_BYTES;
        if self.bytes > MAX_LISTING_BYTES {
            return Err(self.wrong(format!("has more than {MAX_LISTING_BYTES} bytes")));
        }
        let (Some(first), Some(last)) = (&names.first, &names.last) else { return Ok(()) };
        if self.last_name.as_ref() == Some(last) {
            return Err(self.wrong("does not advance"));
        }
        let follows = self.last_name.as_ref().is_none_or(|before| before < first);
        self.is_ascending = self.is_ascending && names.is_ascending && follows;
        self.last_name = Some(last.clone());
        Ok(())
    }

    fn has_all_names_of(&self, page: &ListResult) -> bool {
        let prefix = self.prefix.as_deref().unwrap_or_default();
        let mut names = page.objects.iter().map(|object| &object.location).chain(&page.common_prefixes);
        names.all(|name| name.as_ref().starts_with(prefix))
    }

    /// Returns whether an object is in a directory below the listed one.
    fn is_deeper(&self, object: &ObjectMeta) -> bool {
        let start = self.prefix.as_deref().map_or(0, str::len);
        object.location.as_ref().get(start..).is_some_and(|name| name.contains('/'))
    }

    fn wrong(&self, problem: impl std::fmt::Display) -> Error {
        Error::StorageUnavailable { detail: format!("the store's listing of {} {problem}", self.directory) }
    }

    /// Converts the client's refusal of a page.
    pub(super) fn refusal(&self, error: &StoreError) -> Error {
        listing_error(self.directory, error)
    }
}

/// Returns the names of a page, each with whether it is a directory's.
fn names_of(page: &ListResult) -> HashSet<(bool, Path)> {
    let objects = page.objects.iter().map(|object| (false, object.location.clone()));
    objects.chain(page.common_prefixes.iter().map(|name| (true, name.clone()))).collect()
}

/// The names of one page: those of objects, and those of directories with a character that sorts after all below them.
struct Names {
    first: Option<String>,
    last: Option<String>,
    is_ascending: bool,
    bytes: usize,
    count: usize,
}

impl Names {
    fn of(page: &ListResult) -> Self {
        let objects: Vec<&str> = page.objects.iter().map(|object| object.location.as_ref()).collect();
        let directories: Vec<String> = page.common_prefixes.iter().map(|name| format!("{name}/")).collect();
        // A store lists both in one order, and the client splits them.
        let first = objects.first().map(|name| (*name).to_owned());
        let first = first.into_iter().chain(directories.first().cloned()).min();
        let last = objects.last().map(|name| (*name).to_owned());
        let last = last.into_iter().chain(directories.last().map(|name| format!("{name}{LAST}"))).max();
        Self {
            first,
            last,
            is_ascending: objects.is_sorted_by(|left, right| left < right)
                && directories.is_sorted_by(|left, right| left < right),
            bytes: objects.iter().map(|name| name.len()).sum::<usize>()
                + directories.iter().map(String::len).sum::<usize>(),
            count: objects.len() + directories.len(),
        }
    }
}
