//! The part of a slot that does not change from task to task: its directory, and what belongs there.

use std::borrow::Cow;
use std::collections::HashSet;
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::area::Area;
use super::family::Family;
use super::file_profile::CallTable;
use super::lengths::Lengths;
use super::links::Watch;
use super::live::Live;
use super::mark::Mark;
use super::memory::Kills;
use super::outcome::Failure;
use super::private::Private;
use super::task::{OwnFolder, Placement, Task};
use super::text;
use super::view::{OldNamespaces, View, ViewCalls, is_whiteout};
use super::warm::{Server, Warmth};

/// What was put in its place for one task.
#[derive(Default)]
pub(super) struct Placed<'a> {
    /// The standard input, if there is one.
    pub(super) stdin: Option<File>,
    /// The inputs: where they are in the slot, and what they are.
    batches: Vec<(&'a Path, State)>,
}

/// Most bytes of an output from before that a task finds where it writes.
const BEFORE_BYTES: u64 = 1 << 20;

/// Which file it is, and when it was written last: device, number, bytes, and time in seconds and nanoseconds.
type State = (u64, u64, u64, i64, i64);

fn state(path: &Path) -> io::Result<State> {
    let found = fs_err::symlink_metadata(path)?;
    Ok((found.dev(), found.ino(), found.size(), found.mtime(), found.mtime_nsec()))
}

impl Placed<'_> {
    /// An input that the tool has written, or put another file in the place of: what it makes of its part would be lost.
    pub(super) fn look_at_inputs(&self, root: &Path) -> Result<(), Failure> {
        for (to, before) in &self.batches {
            let path = root.join(to);
            // One that is gone is no result of the tool's.
            let is_gone = fs_err::symlink_metadata(&path).map_or(true, |about| is_whiteout(&about));
            if !is_gone && state(&path).is_ok_and(|now| now != *before) {
                return Err(Failure::Changed(to.to_path_buf()));
            }
        }
        Ok(())
    }
}

/// The part of a slot that does not change from task to task.
pub(super) struct Place {
    /// The slot's directory, absolute.
    pub(super) root: PathBuf,
    /// The tool's working directory.
    pub(super) directory: CString,
    /// What belongs in the slot's directory when no task runs.
    pub(super) skeleton: HashSet<PathBuf>,
    pub(super) exe: CString,
    pub(super) environ: Vec<CString>,
    /// Where its calls are counted; None: nowhere.
    pub(super) table: Option<CallTable>,
    pub(super) namespaces: Arc<Vec<OwnedFd>>,
    pub(super) nice: i32,
    pub(super) ok_statuses: Vec<i32>,
    pub(super) kills: Arc<Kills>,
    /// `/dev/null`, the standard input of most tools.
    pub(super) null: File,
    /// Text in arguments that stands for `root`.
    pub(super) slot_mark: Vec<u8>,
    /// Random text in `root` by which a printed private path is found.
    pub(super) secret: Vec<u8>,
    pub(super) mark: Mark,
    pub(super) family: Family,
    pub(super) area: Arc<Area>,
    pub(super) watch: Arc<Watch>,
    pub(super) private: Mutex<Private>,
    /// What tasks see of the user's folders, if these are not shown by links.
    pub(super) view: Option<Arc<View>>,
    pub(super) calls: Option<ViewCalls>,
    /// That of the task that runs.
    pub(super) namespace: Mutex<Option<File>>,
    pub(super) old_namespaces: Arc<OldNamespaces>,
    pub(super) patience: Duration,
    pub(super) still_limit: Option<Duration>,
    pub(super) substitutions: Vec<(Vec<u8>, Vec<u8>)>,
    pub(super) records: Option<Arc<dyn Lengths>>,
    /// The program that stays alive; None: there is none now.
    pub(super) live: Mutex<Option<Live>>,
    /// The number of the slot.
    pub(super) number: usize,
    pub(super) warmth: Arc<Warmth>,
    /// The tool that waits for its input; None: there is none now.
    pub(super) server: Mutex<Option<Server>>,
}

impl Place {
    /// Puts the inputs in their places.
    pub(super) fn place<'a>(&self, task: &'a Task) -> io::Result<Placed<'a>> {
        let mut placed = Placed::default();
        for placement in &task.placements {
            match placement {
                Placement::Batch { from, to } => {
                    let path = self.root.join(to);
                    fs_err::hard_link(from, &path)?;
                    placed.batches.push((to, state(&path)?));
                }
                Placement::Stdin(from) => placed.stdin = Some(fs_err::File::open(from)?.into_file()),
                Placement::Before { from, to, whole } => {
                    let most = if *whole { u64::MAX } else { BEFORE_BYTES };
                    io::copy(
                        &mut fs_err::File::open(from)?.take(most),
                        &mut fs_err::File::create_new(self.root.join(to))?,
                    )?;
                }
                Placement::Ended => placed.stdin = Some(super::talk::pipe()?.0.into()),
                Placement::Packed { from, to, packing } => {
                    let mut from = fs_err::File::open(from)?;
                    let size = from.metadata()?.len();
                    match to {
                        Some(to) => {
                            let path = self.root.join(to);
                            packing.pack(&mut from, size, &mut fs_err::File::create_new(&path)?)?;
                            placed.batches.push((to, state(&path)?));
                        }
                        None => {
                            let mut packed = self.scratch()?;
                            packing.pack(&mut from, size, &mut packed)?;
                            packed.rewind()?;
                            placed.stdin = Some(packed);
                        }
                    }
                }
                Placement::Folder(path) => fs_err::create_dir_all(self.root.join(path))?,
                Placement::Link { target, to } => fs_err::os::unix::fs::symlink(target, self.root.join(to))?,
            }
        }
        if let Some(view) = &self.view {
            view.settle(&self.root)?;
        }
        Ok(placed)
    }

    /// The environment of a task that works in the user's own folder.
    pub(super) fn environ_in(&self, own: &OwnFolder) -> Vec<CString> {
        let others = self.environ.iter().filter(|entry| !entry.to_bytes().starts_with(b"PWD="));
        others.chain(own.pwd.as_ref()).cloned().collect()
    }

    /// A path relative to the slot as the user knows it, relative to the working directory if it is there.
    pub(super) fn users(&self, path: &Path) -> PathBuf {
        let Some(real) = self.view.as_ref().and_then(|view| view.users(path)) else { return path.to_owned() };
        let directory = Path::new(OsStr::from_bytes(self.directory.to_bytes()));
        real.strip_prefix(directory).map_or_else(|_| real.clone(), Path::to_owned)
    }

    pub(super) fn argument(&self, argument: &[u8]) -> io::Result<CString> {
        CString::new(text::in_slot(argument, &self.slot_mark, &self.root)).map_err(io::Error::from)
    }

    /// All substitutions for the outputs of `task`, longest private text first.
    pub(super) fn substitutions_of(&self, task: &Task) -> Cow<'_, text::Substitutions> {
        if task.substitutions.is_empty() {
            return Cow::Borrowed(&self.substitutions);
        }
        let own = task.substitutions.iter();
        let own = own.map(|(private, user)| (text::in_slot(private, &self.slot_mark, &self.root), user.clone()));
        let mut all: Vec<_> = own.chain(self.substitutions.iter().cloned()).collect();
        all.sort_by_key(|(private, _)| std::cmp::Reverse(private.len()));
        Cow::Owned(all)
    }

    pub(super) fn namespace(&self) -> MutexGuard<'_, Option<File>> {
        self.namespace.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn private(&self) -> MutexGuard<'_, Private> {
        self.private.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new file without a name, where the slots are: it goes when nobody has it open any more.
    pub(super) fn scratch(&self) -> io::Result<File> {
        let folder = self.root.parent().unwrap_or(&self.root);
        // Not by way of `fs_err`, which hides the number of an error.
        match File::options().read(true).write(true).custom_flags(libc::O_TMPFILE).open(folder) {
            Ok(file) => return Ok(file),
            // Not every filesystem can; an old kernel takes it for a folder opened to write.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EISDIR | libc::ENOENT)) => {}
            Err(error) => return Err(io::Error::new(error.kind(), format!("{}: {error}", folder.display()))),
        }
        let mut path = self.root.clone().into_os_string();
        path.push(".scratch");
        let mut options = fs_err::OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(true).open(&path)?;
        fs_err::remove_file(path)?;
        Ok(file.into_file())
    }
}
