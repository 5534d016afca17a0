//! What a tool wrote becomes blocks in the journal, if it can be a part of the output.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Seek};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use regex::bytes::Regex;

use super::{BUFFER_BYTES, SharedJournal, pattern, patterns};
use crate::candidates::Within;
use crate::join::layout::{Outline, measure};
use crate::join::{JoinError, fragment};
use crate::journal::{JournalError, Source, TaskHead, TaskRef};
use crate::slot::{Failure, Sink, Task};

/// What becomes of a task's outputs: how they are committed.
#[derive(Debug)]
pub struct Purpose {
    /// Which records, and of which kind.
    pub head: TaskHead,
    /// What is changed in the outputs before.
    pub patches: Vec<Patch>,
    /// They are committed only if their rows are those of this slice.
    pub within: Option<Within>,
}

/// A change of one output before it is committed; see [`crate::join::fragment`].
#[derive(Debug)]
pub struct Patch {
    /// The output.
    pub stream: u16,
    /// Name of the change.
    pub kind: String,
    /// The file that says what is put in.
    pub side: PathBuf,
}

/// One output of the tool, in all of its tasks.
#[derive(Debug)]
pub struct Stream {
    /// As the user calls it.
    pub name: String,
    /// How its blocks are joined; see [`crate::join`].
    pub join: String,
    /// Expressions of what differs between two runs.
    pub volatile: Vec<String>,
}

/// Commits the outputs of tasks to a journal.
#[derive(Debug)]
pub struct JournalSink {
    journal: Arc<SharedJournal>,
    purposes: Mutex<HashMap<u64, Purpose>>,
    streams: Vec<Stream>,
    /// Those of each stream.
    volatile: Vec<Vec<Regex>>,
    /// Group 1 of the last match on standard error: how many records the tool handled.
    records_said: Option<Regex>,
    /// Standard error that matches one of these means failure.
    failures_said: Vec<Regex>,
}

impl JournalSink {
    /// Commits to `journal`. Group 1 of the last match of `records_said` on standard error, if it is not empty, is how
    /// many records the tool handled; standard error that matches one of `failures_said` means failure.
    ///
    /// # Errors
    /// If one of these is no regular expression.
    pub fn new(
        journal: Arc<SharedJournal>,
        streams: Vec<Stream>,
        records_said: &str,
        failures_said: &[String],
    ) -> Result<Self, regex::Error> {
        let records_said = Some(records_said).filter(|text| !text.is_empty()).map(pattern).transpose()?;
        let volatile = streams.iter().map(|stream| patterns(&stream.volatile)).collect::<Result<_, _>>()?;
        let failures_said = patterns(failures_said)?;
        Ok(Self { journal, purposes: Mutex::default(), streams, volatile, records_said, failures_said })
    }

    /// Says, before the task with this id is queued, what becomes of its outputs.
    pub fn expect(&self, id: u64, purpose: Purpose) {
        self.purposes().insert(id, purpose);
    }

    /// Forgets a task that came to its end.
    pub fn forget(&self, id: u64) {
        self.purposes().remove(&id);
    }

    fn purposes(&self) -> MutexGuard<'_, HashMap<u64, Purpose>> {
        self.purposes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, purpose: &Purpose, outputs: Vec<(u16, Vec<u8>, File)>) -> Result<TaskRef, Failure> {
        let mut blocks = outputs
            .into_iter()
            .map(|(stream, name, file)| {
                let file = match purpose.patches.iter().find(|patch| patch.stream == stream) {
                    Some(patch) => patched(patch, file)?,
                    None => file,
                };
                Ok(Source { stream, name, file })
            })
            .collect::<io::Result<Vec<_>>>()
            .map_err(Failure::Io)?;
        // What the searches of fragments and the slices of a record write is no part of the output by itself.
        if purpose.head.fragment == 0 {
            blocks.iter_mut().try_for_each(|block| self.check(&purpose.head, block))?;
        }
        let committed = self.journal.append(&purpose.head, &mut blocks);
        committed.map_err(JournalError::into_io).map_err(Failure::Io)
    }

    /// Finds out now, while the tool can be run again, whether a block can be joined with the others. What these must know of it
    /// is its name in the journal.
    fn check(&self, head: &TaskHead, block: &mut Source) -> Result<(), Failure> {
        let Some(stream) = self.streams.get(usize::from(block.stream)) else {
            return Ok(());
        };
        block.file.rewind().map_err(Failure::Io)?;
        let mut reader = BufReader::with_capacity(BUFFER_BYTES, &mut block.file);
        match measure(&stream.join, head.first, head.last - head.first, &mut reader) {
            Ok(outline) => {
                if block.name.is_empty() {
                    block.name = outline.as_ref().map(Outline::encode).unwrap_or_default();
                }
                Ok(())
            }
            Err(JoinError::Shape { .. }) if block.file.metadata().map_err(Failure::Io)?.len() == 0 => {
                Err(Failure::Shapeless(format!("it wrote nothing to {}", stream.name)))
            }
            Err(JoinError::Shape { format, problem }) => {
                Err(Failure::Shapeless(format!("{} is not whole {format} output: {problem}", stream.name)))
            }
            Err(JoinError::Io(error)) => Err(Failure::Io(error)),
            Err(error @ JoinError::Unknown(_)) => Err(Failure::Io(io::Error::other(error))),
        }
    }
}

impl Sink for JournalSink {
    type Receipt = TaskRef;

    fn doubt(&self, task: &Task, stderr: &[u8]) -> Option<String> {
        if let Some(found) = self.failures_said.iter().find_map(|pattern| pattern.find(stderr)) {
            return Some(format!("it said: {}", String::from_utf8_lossy(found.as_bytes()).trim()));
        }
        let pattern = self.records_said.as_ref()?;
        let expected = match &self.purposes().get(&task.id)?.head {
            head if head.fragment == 0 => head.last - head.first,
            // The search of a fragment is no command of the user's: other options, other words.
            _ => return None,
        };
        let said = pattern.captures_iter(stderr).last().and_then(|found| found.get(1));
        let said = said.and_then(|text| std::str::from_utf8(text.as_bytes()).ok()?.parse::<u64>().ok());
        (said != Some(expected)).then(|| {
            let said = said.map_or_else(|| "nothing".to_owned(), |n| n.to_string());
            format!("it was given {expected} records and said that it handled {said}")
        })
    }

    fn steady(&self, stream: u16, bytes: Vec<u8>) -> Vec<u8> {
        let volatile = self.volatile.get(usize::from(stream)).map_or(&[][..], Vec::as_slice);
        volatile.iter().fold(bytes, |bytes, each| each.replace_all(&bytes, &b""[..]).into_owned())
    }

    fn commit(&self, task: &Task, mut outputs: Vec<(u16, Vec<u8>, File)>) -> Result<TaskRef, Failure> {
        let purpose = self.purposes().remove(&task.id);
        let purpose = purpose.ok_or_else(|| Failure::Io(io::Error::other("a task without a purpose")))?;
        if let Some(within) = &purpose.within
            && !are_within(within, &mut outputs).map_err(Failure::Io)?
        {
            return Err(Failure::Misplaced);
        }
        self.keep(&purpose, outputs)
    }
}

/// The output in `file` with `patch` done to it, in a new file beside what the patch needs.
fn patched(patch: &Patch, mut file: File) -> io::Result<File> {
    file.rewind()?;
    let side = fs_err::File::open(&patch.side)?.into_file();
    let mut path = patch.side.clone().into_os_string();
    path.push(".patched");
    let fresh = fs_err::OpenOptions::new().read(true).write(true).create_new(true).open(path)?.into_file();
    let mut out = BufWriter::with_capacity(BUFFER_BYTES, fresh);
    let (mut side, mut block) = (BufReader::new(side), BufReader::with_capacity(BUFFER_BYTES, file));
    match fragment::patch(&patch.kind, &mut side, &mut block, &mut out) {
        Ok(()) => out.into_inner().map_err(io::IntoInnerError::into_error),
        Err(JoinError::Io(error)) => Err(error),
        Err(error) => Err(io::Error::new(io::ErrorKind::InvalidData, error)),
    }
}

/// Whether the rows of the outputs are those of the slice.
fn are_within(within: &Within, outputs: &mut [(u16, Vec<u8>, File)]) -> io::Result<bool> {
    if outputs.is_empty() {
        return within.holds(&mut io::empty());
    }
    for (_, _, file) in outputs {
        file.rewind()?;
        if !within.holds(&mut BufReader::with_capacity(BUFFER_BYTES, file))? {
            return Ok(false);
        }
    }
    Ok(true)
}
