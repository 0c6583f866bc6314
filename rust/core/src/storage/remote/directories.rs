//! The directories below a prefix, also beside objects whose keys the client cannot parse.
//!
//! Keys with an empty or a relative part, or with a control character, exist: every writer into a bucket can make them.
//! The client refuses the whole page of such a key, so smaller pages lead up to it, and the listing continues after it.

use object_store::Error as StoreError;
use object_store::list::PaginatedListOptions;
use object_store::path::{Error as PathError, Path};

use super::super::{Directories, MAX_DIRECTORY_ENTRIES};
use super::pages::Pages;
use super::{LAST, Remote};
use crate::error::Result;

/// The maximum number of keys that a listing passes over: each costs some twenty requests.
const MAX_ODD_KEYS: usize = 16;
/// The number of keys in the first page that is smaller than the store's pages: half of the usual number.
const SMALLER_PAGE: usize = 500;

/// Lists the directories directly below a prefix, with a bounded number of entries read.
pub(super) async fn list(remote: &Remote, root: &str, prefix: Option<String>) -> Result<Directories> {
    let mut directories = Directories { names: Vec::new(), is_truncated: false };
    let options = PaginatedListOptions { delimiter: Some("/".into()), ..PaginatedListOptions::default() };
    let mut pages = Pages::new(&*remote.pages, root, prefix, options, remote.ordered_listings);
    let mut entries = 0;
    let mut passed_over: Vec<String> = Vec::new();
    while let Some(page) = pages.next().await? {
        let page = match page {
            Ok(page) => page,
            Err(error) => {
                let key = odd_key(&error).ok_or_else(|| pages.refusal(&error))?.to_owned();
                match pages.options.max_keys {
                    // The store does not continue after a key.
                    Some(..=1) if passed_over.contains(&key) || passed_over.len() == MAX_ODD_KEYS => {
                        directories.is_truncated = true;
                        return Ok(directories);
                    }
                    Some(..=1) => {
                        pages.begin_again_after(end_of(&key));
                        passed_over.push(key);
                    }
                    size => pages.options.max_keys = Some(size.map_or(SMALLER_PAGE, |size| size / 2)),
                }
                continue;
            }
        };
        entries += page.objects.len() + page.common_prefixes.len();
        let names = page.common_prefixes.iter().filter_map(Path::filename);
        directories.names.extend(names.map(str::to_owned));
        if entries >= MAX_DIRECTORY_ENTRIES {
            break;
        }
    }
    directories.is_truncated = !pages.is_ended();
    Ok(directories)
}

/// Returns the key that makes the client refuse an answer.
pub(super) fn odd_key(error: &StoreError) -> Option<&str> {
    match error {
        StoreError::InvalidPath {
            source: PathError::EmptySegment { path } | PathError::BadSegment { path, .. },
        } => Some(path),
        _ => None,
    }
}

/// Returns a text that sorts after a key; after all keys below one that is a directory.
fn end_of(key: &str) -> String {
    if key.ends_with('/') { format!("{key}{LAST}") } else { key.to_owned() }
}
