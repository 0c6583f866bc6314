//! The directory of columns files: names, permissions, the lock, the bound in bytes.
//!
//! Files under their final names are complete: they are renamed after their content is on disk, replaced and removed as
//! a whole, and never changed. A file that is being written is locked, so another process recognises an orphan of a
//! killed process by its lock. The lock file is held while files are counted and evicted.

use std::ffi::CStr;
use std::fs::File;
use std::io::Result as IoResult;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, FlockOperation, Mode, OFlags, Timespec, Timestamps, UTIME_NOW, flock, fstat,
    openat, renameat, statat, unlinkat, utimensat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

const FINISHED: &str = ".columns";
const PARTIAL: &str = ".partial";
const LOCK: &str = "lock";
const OTHERS_CAN_WRITE: Mode = Mode::WGRP.union(Mode::WOTH);
const OTHERS_CAN_READ_OR_WRITE: Mode = Mode::RWXG.union(Mode::RWXO);

/// An open directory. All files are opened relative to it, so a rename of its parents has no effect.
#[derive(Debug)]
pub(super) struct Directory {
    descriptor: OwnedFd,
}

/// Why a directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unusable {
    #[error("it is no directory, or a symbolic link")]
    NoDirectory,
    #[error("it belongs to another user")]
    OtherOwner,
    #[error("other users can write to it")]
    OthersCanWrite,
    #[error("{0}")]
    Failed(std::io::Error),
}

struct Listed {
    name: String,
    bytes: u64,
    used_at: (i64, i64),
}

impl Listed {
    fn is_finished(&self) -> bool {
        self.name.ends_with(FINISHED)
    }
}

fn bytes_of<'a>(files: impl IntoIterator<Item = &'a Listed>) -> u64 {
    files.into_iter().map(|file| file.bytes).sum()
}

impl Directory {
    /// Opens a directory of this user, or makes it.
    pub(super) fn open(path: &Path) -> Result<Self, Unusable> {
        let failed = |errno: Errno| Unusable::Failed(errno.into());
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(Unusable::Failed)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let descriptor = openat(CWD, path, flags, Mode::empty()).map_err(|errno| match errno {
            Errno::NOTDIR | Errno::LOOP => Unusable::NoDirectory,
            errno => failed(errno),
        })?;
        let status = fstat(&descriptor).map_err(failed)?;
        if status.st_uid != geteuid().as_raw() {
            return Err(Unusable::OtherOwner);
        }
        if Mode::from_raw_mode(status.st_mode).intersects(OTHERS_CAN_WRITE) {
            return Err(Unusable::OthersCanWrite);
        }
        let directory = Self { descriptor };
        directory.lock().map_err(Unusable::Failed)?;
        Ok(directory)
    }

    /// Opens the finished file of a key. Anything that this service has not written is an error.
    pub(super) fn open_finished(&self, key: &str) -> IoResult<File> {
        // Without waiting for the other end of a named pipe.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = openat(&self.descriptor, finished(key), flags, Mode::empty())?;
        let status = fstat(&file)?;
        let is_private = status.st_uid == geteuid().as_raw()
            && !Mode::from_raw_mode(status.st_mode).intersects(OTHERS_CAN_READ_OR_WRITE)
            && FileType::from_raw_mode(status.st_mode) == FileType::RegularFile;
        if is_private { Ok(file.into()) } else { Err(Errno::ACCESS.into()) }
    }

    /// Creates the partial file of a key; `None` while another writer has it.
    pub(super) fn create_partial(&self, key: &str) -> IoResult<Option<File>> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&self.descriptor, partial(key), flags, Mode::RUSR | Mode::WUSR)?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err()
            || !self.is_named(&file, &partial(key))
        {
            return Ok(None);
        }
        let file = File::from(file);
        // A rest of a killed process.
        file.set_len(0)?;
        Ok(Some(file))
    }

    /// Gives a partial file its final name, in place of an earlier one.
    pub(super) fn finish(&self, key: &str) -> IoResult<()> {
        Ok(renameat(&self.descriptor, partial(key), &self.descriptor, finished(key))?)
    }

    pub(super) fn remove_partial(&self, key: &str) {
        let _ = unlinkat(&self.descriptor, partial(key), AtFlags::empty());
    }

    pub(super) fn remove_finished(&self, key: &str) {
        let _ = unlinkat(&self.descriptor, finished(key), AtFlags::empty());
    }

    /// Marks a finished file as used; returns false if it is gone.
    pub(super) fn touch(&self, key: &str) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        let times = Timestamps { last_access: now, last_modification: now };
        let touched = utimensat(&self.descriptor, finished(key), &times, AtFlags::SYMLINK_NOFOLLOW);
        touched != Err(Errno::NOENT)
    }

    /// Extends a partial file to `bytes` if all files together then have at most `most_bytes`, and evicts the least
    /// recently used files for it. Returns the number of evicted files, `None` if the file does not fit.
    pub(super) fn reserve(&self, file: &File, bytes: u64, most_bytes: u64) -> IoResult<Option<u64>> {
        let _locked = self.lock()?;
        let listed = self.by_last_use()?;
        let used_bytes = bytes_of(&listed).saturating_sub(file.metadata()?.len());
        let excess = used_bytes.saturating_add(bytes).saturating_sub(most_bytes);
        if bytes_of(listed.iter().filter(|file| file.is_finished())) < excess {
            return Ok(None);
        }
        let evicted = self.evict(&listed, excess)?;
        // The length of the file reserves the bytes against other writers.
        file.set_len(bytes)?;
        Ok(Some(evicted))
    }

    /// Evicts the least recently used files until all have at most `most_bytes`; returns how many.
    pub(super) fn shrink(&self, most_bytes: u64) -> IoResult<u64> {
        let _locked = self.lock()?;
        let listed = self.by_last_use()?;
        self.evict(&listed, bytes_of(&listed).saturating_sub(most_bytes))
    }

    /// Evicts finished files, in their order, until they had `excess` bytes; returns how many.
    fn evict(&self, listed: &[Listed], mut excess: u64) -> IoResult<u64> {
        let mut evicted = 0;
        for file in listed.iter().filter(|file| file.is_finished()) {
            if excess == 0 {
                break;
            }
            unlinkat(&self.descriptor, &*file.name, AtFlags::empty())?;
            excess = excess.saturating_sub(file.bytes);
            evicted += 1;
        }
        Ok(evicted)
    }

    pub(super) fn used_bytes(&self) -> IoResult<u64> {
        Ok(bytes_of(&self.list()?))
    }

    /// The files of living writers and the finished ones, the least recently used first.
    fn by_last_use(&self) -> IoResult<Vec<Listed>> {
        self.remove_orphans()?;
        let mut listed = self.list()?;
        listed.sort_unstable_by_key(|file| file.used_at);
        Ok(listed)
    }

    /// Removes partial files whose writer has died.
    fn remove_orphans(&self) -> IoResult<()> {
        for file in self.list()?.iter().filter(|file| file.name.ends_with(PARTIAL)) {
            let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
            let Ok(opened) = openat(&self.descriptor, &*file.name, flags, Mode::empty()) else { continue };
            let is_free = flock(&opened, FlockOperation::NonBlockingLockExclusive).is_ok();
            if is_free && self.is_named(&opened, &file.name) {
                let _ = unlinkat(&self.descriptor, &*file.name, AtFlags::empty());
            }
        }
        Ok(())
    }

    /// Whether the name still refers to the open file: it may have been renamed or removed before it was locked.
    fn is_named(&self, file: &OwnedFd, name: &str) -> bool {
        let named = statat(&self.descriptor, name, AtFlags::SYMLINK_NOFOLLOW);
        match (named, fstat(file)) {
            (Ok(named), Ok(opened)) => (named.st_dev, named.st_ino) == (opened.st_dev, opened.st_ino),
            _ => false,
        }
    }

    fn list(&self) -> IoResult<Vec<Listed>> {
        let mut listed = Vec::new();
        for entry in Dir::read_from(&self.descriptor)? {
            let entry = entry?;
            let Some(name) = own_name(entry.file_name()) else { continue };
            // A file may be removed since the listing.
            let Ok(status) = statat(&self.descriptor, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
                continue;
            }
            listed.push(Listed {
                name: name.to_owned(),
                bytes: u64::try_from(status.st_size).unwrap_or(0),
                used_at: (status.st_mtime, status.st_mtime_nsec as i64),
            });
        }
        Ok(listed)
    }

    /// Waits for the lock of the directory, which lasts until the file is closed.
    fn lock(&self) -> IoResult<OwnedFd> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&self.descriptor, LOCK, flags, Mode::RUSR | Mode::WUSR)?;
        flock(&file, FlockOperation::LockExclusive)?;
        Ok(file)
    }
}

/// Whether an error of [`Directory::open_finished`] is about the file: it is a link, or not private.
pub(super) fn is_foreign(error: &std::io::Error) -> bool {
    let code = error.raw_os_error();
    [Errno::ACCESS, Errno::LOOP].iter().any(|errno| Some(errno.raw_os_error()) == code)
}

fn own_name(name: &CStr) -> Option<&str> {
    name.to_str().ok().filter(|name| name.ends_with(FINISHED) || name.ends_with(PARTIAL))
}

fn finished(key: &str) -> String {
    format!("{key}{FINISHED}")
}

fn partial(key: &str) -> String {
    format!("{key}{PARTIAL}")
}
