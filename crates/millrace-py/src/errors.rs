use std::io;

use millrace_core::join::JoinError;
use millrace_core::journal::JournalError;
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyOSError, PyValueError};
use pyo3::prelude::*;

create_exception!(_core, CorruptJournal, PyException, "A journal does not hold what was committed.");
create_exception!(_core, Misfit, CorruptJournal, "Results do not fit together.");
create_exception!(_core, DiskFull, PyOSError, "No space left, or a quota is exhausted.");

pub(crate) fn is_disk_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge)
}

pub(crate) fn io_error(error: io::Error) -> PyErr {
    if is_disk_full(&error) {
        DiskFull::new_err(error.to_string())
    } else if error.kind() == io::ErrorKind::InvalidData {
        CorruptJournal::new_err(error.to_string())
    } else {
        error.into()
    }
}

pub(crate) fn journal_error(error: JournalError) -> PyErr {
    match error {
        JournalError::Io(error) => io_error(error),
        other => CorruptJournal::new_err(other.to_string()),
    }
}

pub(crate) fn join_error(error: JoinError) -> PyErr {
    match error {
        JoinError::Io(error) => io_error(error),
        JoinError::Shape { .. } => Misfit::new_err(error.to_string()),
        JoinError::Unknown(_) => PyValueError::new_err(error.to_string()),
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("CorruptJournal", module.py().get_type::<CorruptJournal>())?;
    module.add("Misfit", module.py().get_type::<Misfit>())?;
    module.add("DiskFull", module.py().get_type::<DiskFull>())
}
