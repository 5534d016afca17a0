//! What reading and cutting can fail with.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What reading and cutting can fail with. Cloned, so that a broken input says the same each time it is asked.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The operating system refused to open, read or write a file.
    #[error("{}: {error}", .path.display())]
    Io {
        /// The file, as it was named.
        path: PathBuf,
        /// Why.
        error: Arc<io::Error>,
    },
    /// The bytes are not what they should be: a FASTQ without its '+', compressed data that is cut off.
    #[error("{}: {problem}", place(.source_path, *.line))]
    Data {
        /// The source, as it was named.
        source_path: PathBuf,
        /// Ordinal of the record over all sources, from 1.
        record: u64,
        /// Line in the source, from 1, where lines are counted.
        line: Option<u64>,
        /// What was expected and what was found.
        problem: String,
    },
    /// A format name or a regular expression that cannot be used.
    #[error("{0}")]
    Usage(String),
    /// A signal handler asked to stop.
    #[error("interrupted")]
    Interrupted,
}

impl Error {
    /// An I/O error with the path it belongs to.
    pub(crate) fn io(path: &Path, error: io::Error) -> Self {
        Self::Io { path: path.to_owned(), error: Arc::new(error) }
    }
}

fn place(source: &Path, line: Option<u64>) -> String {
    let source = source.display();
    line.map_or_else(|| source.to_string(), |line| format!("{source}:{line}"))
}
