//! What a slot is to do: one execution of the tool, with what goes where before and is collected after.

use std::ffi::CString;
use std::fmt;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Compresses batches.
pub trait Pack: fmt::Debug + Send + Sync {
    /// Compresses all of `from`, which are `size` bytes, into `to`.
    ///
    /// # Errors
    /// If reading or writing fails.
    fn pack(&self, from: &mut dyn Read, size: u64, to: &mut dyn Write) -> io::Result<()>;
}

/// How an input gets to its place in the working directory.
#[derive(Debug, Clone)]
pub enum Placement {
    /// The batch's bytes, on the same filesystem as the slots.
    Batch {
        /// Where the bytes are.
        from: PathBuf,
        /// Where the tool looks for them, relative to the slot.
        to: PathBuf,
    },
    /// The batch's bytes on standard input.
    Stdin(PathBuf),
    /// What an output's file held before, or its first bytes.
    Before {
        /// Where it is.
        from: PathBuf,
        /// Where the tool is going to write, relative to the slot.
        to: PathBuf,
        /// Whether all of it is there, and not its first bytes alone.
        whole: bool,
    },
    /// A pipe on standard input, which has ended.
    Ended,
    /// The batch's bytes, compressed.
    Packed {
        /// Where the bytes are.
        from: PathBuf,
        /// Where the tool looks for them, relative to the slot; None: on its standard input.
        to: Option<PathBuf>,
        /// How they are compressed.
        packing: Arc<dyn Pack>,
    },
    /// A folder that must exist and be empty.
    Folder(PathBuf),
    /// A symbolic link, for what belongs to one task but lies elsewhere.
    Link {
        /// What it names, absolute.
        target: PathBuf,
        /// Where it is, relative to the slot.
        to: PathBuf,
    },
}

/// How an output is found after the tool has ended.
#[derive(Debug, Clone)]
pub enum Collect {
    /// The tool's standard output.
    Stdout,
    /// A file, relative to the slot.
    File(PathBuf),
    /// Every file below a folder, relative to the slot; each is a named block.
    Folder(PathBuf),
}

/// One output stream of a task.
#[derive(Debug, Clone)]
pub struct Output {
    /// Number of the stream.
    pub stream: u16,
    /// Where it is.
    pub collect: Collect,
    /// Name of the block; empty unless the stream is one file a record.
    pub name: Vec<u8>,
    /// Whether the tool may leave it unwritten.
    pub optional: bool,
}

/// The user's own folder, for a task that works there and not in its slot.
#[derive(Debug, Clone)]
pub struct OwnFolder {
    /// Where it starts.
    pub directory: CString,
    /// What it finds in `PWD`; None: nothing.
    pub pwd: Option<CString>,
}

/// One execution of the tool.
#[derive(Debug, Clone)]
pub struct Task {
    /// The caller's number for it.
    pub id: u64,
    /// The program, absolute, if it is not [`super::Settings::exe`].
    pub exe: Option<CString>,
    /// Arguments; [`super::Settings::slot_mark`] in them stands for the slot's directory.
    pub argv: Vec<Vec<u8>>,
    /// What goes where before the start.
    pub placements: Vec<Placement>,
    /// What is collected after the end.
    pub outputs: Vec<Output>,
    /// (private text, the user's text) of this task, besides [`super::Settings::substitutions`].
    pub substitutions: Vec<(Vec<u8>, Vec<u8>)>,
    /// Time after which it is killed.
    pub timeout: Option<Duration>,
    /// CPU time of its processes after which they are killed as well; None: any.
    pub cpu_limit: Option<Duration>,
    /// No other task is to run beside it.
    pub alone: bool,
    /// It may run in a fork of a tool that waits for its input.
    pub warm: bool,
    /// Where it works; None: in its slot, see [`super::Settings::directory`].
    pub own_folder: Option<OwnFolder>,
}
