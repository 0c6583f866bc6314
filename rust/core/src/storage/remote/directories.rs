//! The directories below a prefix, also beside objects whose keys the client cannot parse.
//!
//! Keys with an empty or a relative part, or with a control character, exist: every writer into a bucket can make them.
//! The client refuses the whole page of such a key, so smaller pages lead up to it, and the listing continues after it.

use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::path::{Error as PathError, Path};
use object_store::{Error, Result};

use super::super::{Directories, MAX_DIRECTORY_ENTRIES};

/// The maximum number of keys that a listing passes over: each costs some twenty requests.
const MAX_ODD_KEYS: usize = 16;
/// The number of keys in the first page that is smaller than that of the store, half of the usual one.
const SMALLER_PAGE: usize = 500;
/// Sorts after the characters of keys.
const LAST: char = '\u{10FFFF}';

/// Lists the directories directly below a prefix, with a bounded number of entries read.
pub(super) async fn list(pages: &dyn PaginatedListStore, prefix: Option<&str>) -> Result<Directories> {
    let mut found = Directories { names: Vec::new(), is_truncated: false };
    let first = PaginatedListOptions { delimiter: Some("/".into()), ..PaginatedListOptions::default() };
    let mut options = first.clone();
    let mut entries = 0;
    let mut passed_over: Vec<String> = Vec::new();
    loop {
        let page = match pages.list_paginated(prefix, options.clone()).await {
            Ok(page) => page,
            Err(error) => {
                let key = odd_key(&error).map(str::to_owned);
                let Some(key) = key else { return Err(error) };
                match options.max_keys {
                    // The store does not continue after a key.
                    Some(..=1) if passed_over.contains(&key) || passed_over.len() == MAX_ODD_KEYS => {
                        found.is_truncated = true;
                        return Ok(found);
                    }
                    Some(..=1) => {
                        options = PaginatedListOptions { offset: Some(end_of(&key)), ..first.clone() };
                        passed_over.push(key);
                    }
                    size => options.max_keys = Some(size.map_or(SMALLER_PAGE, |size| size / 2)),
                }
                continue;
            }
        };
        entries += page.result.objects.len() + page.result.common_prefixes.len();
        let names = page.result.common_prefixes.iter().filter_map(Path::filename);
        found.names.extend(names.map(str::to_owned));
        found.is_truncated = page.page_token.is_some();
        if !found.is_truncated || entries >= MAX_DIRECTORY_ENTRIES {
            return Ok(found);
        }
        options.page_token = page.page_token;
    }
}

/// Returns the key that makes the client refuse an answer.
pub(super) fn odd_key(error: &Error) -> Option<&str> {
    match error {
        Error::InvalidPath {
            source: PathError::EmptySegment { path } | PathError::BadSegment { path, .. },
        } => Some(path),
        _ => None,
    }
}

/// Returns a text that sorts after a key; after all keys below one that is a directory.
fn end_of(key: &str) -> String {
    if key.ends_with('/') { format!("{key}{LAST}") } else { key.to_owned() }
}
