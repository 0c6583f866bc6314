//! Maps errors of deltalog to Python exceptions with their values as attributes.

use std::cell::Cell;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};

use deltalog::Error;
use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;

/// Declares the exception classes, each with its base, and a function that puts all of them into a module.
macro_rules! exceptions {
    ($($name:ident($base:ident),)*) => {
        $(create_exception!(gateway._native, $name, $base);)*

        fn add_classes(module: &Bound<'_, PyModule>) -> PyResult<()> {
            $(module.add(stringify!($name), module.py().get_type::<$name>())?;)*
            Ok(())
        }
    };
}

exceptions! {
    LogError(PyException),
    TableNotFound(LogError),
    VersionNotFound(LogError),
    TimestampOutOfRange(LogError),
    CorruptLog(LogError),
    Contradiction(CorruptLog),
    UnsupportedFeature(LogError),
    ChangeDataFeedDisabled(LogError),
    IncompleteRemove(LogError),
    RuleRefused(LogError),
    ForbiddenPath(LogError),
    InvalidCursor(LogError),
    FileReplaced(LogError),
    StorageDenied(LogError),
    StorageRefused(StorageDenied),
    StorageUnavailable(LogError),
    Busy(LogError),
    TooManySignatures(LogError),
    Cancelled(LogError),
    DeadlineExceeded(LogError),
    InvalidArgument(LogError),
    NativePanic(LogError),
}

thread_local! {
    /// The file and line of this thread's last panic.
    static PANICKED_AT: Cell<Option<String>> = const { Cell::new(None) };
}

/// Puts the exception classes into the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    hide_payloads();
    // Instances set it only if there are details.
    module.py().get_type::<LogError>().setattr("detail", module.py().None())?;
    add_classes(module)
}

pub(crate) fn to_python(py: Python<'_>, error: &Error) -> PyErr {
    let message = error.to_string();
    let mapped = match error {
        Error::TableNotFound { .. } => TableNotFound::new_err(message),
        Error::VersionNotFound { requested, earliest, latest } => {
            let values = [("requested", requested), ("earliest", earliest), ("latest", latest)];
            with_values(py, VersionNotFound::new_err(message), &values)
        }
        Error::TimestampOutOfRange { requested_ms, earliest_ms, latest_ms } => {
            let values =
                [("requested_ms", requested_ms), ("earliest_ms", earliest_ms), ("latest_ms", latest_ms)];
            with_values(py, TimestampOutOfRange::new_err(message), &values)
        }
        // A listed log file that was deleted, or a missing sidecar.
        Error::CorruptLog { file, .. } | Error::FileNotFound { file } => {
            with_text(py, CorruptLog::new_err(message), "file", file)
        }
        Error::Contradiction { .. } => with_text(py, Contradiction::new_err(message), "file", "_delta_log"),
        Error::InvalidPath(_) => with_text(py, CorruptLog::new_err(message), "file", "path"),
        Error::MissingSchema => with_text(py, CorruptLog::new_err(message), "file", "metaData"),
        Error::UnsupportedFeature(feature) => {
            with_text(py, UnsupportedFeature::new_err(message), "feature", feature)
        }
        Error::CatalogNotConfigured => {
            with_text(py, UnsupportedFeature::new_err(message), "feature", "catalogManaged")
        }
        Error::ChangeDataFeedDisabled(version) => {
            with_values(py, ChangeDataFeedDisabled::new_err(message), &[("version", version)])
        }
        Error::IncompleteRemove(version) => {
            with_values(py, IncompleteRemove::new_err(message), &[("version", version)])
        }
        Error::RuleRefused { .. } => RuleRefused::new_err(message),
        Error::ForbiddenPath => ForbiddenPath::new_err(message),
        Error::InvalidCursor => InvalidCursor::new_err(message),
        Error::FileReplaced { file } => with_text(py, FileReplaced::new_err(message), "file", file),
        Error::StorageDenied { .. } => StorageDenied::new_err(message),
        Error::StorageRefused { .. } => StorageRefused::new_err(message),
        Error::StorageUnavailable { .. } => StorageUnavailable::new_err(message),
        Error::Busy { .. } => Busy::new_err(message),
        Error::TooManySignatures { .. } => TooManySignatures::new_err(message),
        Error::Cancelled => Cancelled::new_err(message),
        Error::DeadlineExceeded => DeadlineExceeded::new_err(message),
        Error::InvalidArgument(_) => InvalidArgument::new_err(message),
        _ => LogError::new_err(message),
    };
    match error.detail() {
        Some(detail) => with_text(py, mapped, "detail", detail),
        None => mapped,
    }
}

fn with_values(py: Python<'_>, error: PyErr, values: &[(&str, &i64)]) -> PyErr {
    let set = values.iter().try_for_each(|(name, value)| error.value(py).setattr(*name, **value));
    set.err().unwrap_or(error)
}

fn with_text(py: Python<'_>, error: PyErr, name: &str, value: &str) -> PyErr {
    let set = error.value(py).setattr(name, value);
    set.err().unwrap_or(error)
}

/// Runs native work without the GIL and maps its error: the one way from Python into deltalog.
pub(crate) fn run<T: Send>(py: Python<'_>, work: impl FnOnce() -> deltalog::Result<T> + Send) -> PyResult<T> {
    match py.detach(|| catch_unwind(AssertUnwindSafe(work))) {
        Ok(result) => result.map_err(|error| to_python(py, &error)),
        Err(_) => Err(panicked(py)),
    }
}

/// Makes panics write their place and nothing else: their text may quote keys and paths.
fn hide_payloads() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map_or_else(|| "an unknown place".to_owned(), ToString::to_string);
        drop(writeln!(std::io::stderr(), "native code panicked at {place}"));
        PANICKED_AT.set(Some(place));
    }));
}

fn panicked(py: Python<'_>) -> PyErr {
    let error = NativePanic::new_err("a defect of the native code ended this call; report it to the project");
    match PANICKED_AT.take() {
        Some(place) => with_text(py, error, "detail", &place),
        None => error,
    }
}
