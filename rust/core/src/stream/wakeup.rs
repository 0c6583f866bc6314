//! A pipe that wakes the consumer of a stream, usable with any event loop.

use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsRawFd, RawFd};

/// The consumer's end, which never blocks.
#[derive(Debug)]
pub(super) struct Wakeups(PipeReader);

/// The producer's end.
pub(super) struct Signal(PipeWriter);

/// Both ends of a new pipe.
pub(super) fn pipe() -> std::io::Result<(Wakeups, Signal)> {
    let (reader, writer) = std::io::pipe()?;
    rustix::io::ioctl_fionbio(&reader, true)?;
    Ok((Wakeups(reader), Signal(writer)))
}

impl Wakeups {
    /// The descriptor, readable while a byte is in the pipe.
    pub(super) fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Reads a byte; returns false if none is there yet.
    pub(super) fn take(&self) -> bool {
        (&self.0).read(&mut [0]).is_ok()
    }
}

impl Signal {
    /// Wakes the consumer. At most one byte is ever in the pipe, so the write cannot block; the error of a closed
    /// pipe is ignored.
    pub(super) fn wake(&self) {
        let _ = (&self.0).write(&[1]);
    }
}
