//! Files of the user's that slots reach through links: which of them are written while tasks run.
//!
//! All slots share them, so a tool that writes one (a log or a scratch file of an earlier run by hand) works on what
//! other tasks write at the same time. The kernel tells what is written, not by whom. See [`super::private`].

use std::collections::{HashMap, HashSet};
use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::mark::Mark;

/// Most files of a folder that are watched one by one: users have a limited number of watches.
pub(super) const MOST_FILES: usize = 1000;

/// What the kernel tells of a file: written, or closed by somebody who might have written by way of mapped memory, of
/// which it tells nothing.
const WRITES: u32 = libc::IN_MODIFY | libc::IN_CLOSE_WRITE;

/// What all slots show of the user's folders.
#[derive(Debug, Clone, Default)]
pub struct Links {
    /// (path relative to a slot's directory, real path).
    pub links: Vec<(PathBuf, PathBuf)>,
    /// Real files and folders that this program writes.
    pub ignored: Vec<PathBuf>,
}

/// A file behind a link that was written while tasks ran.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Written {
    /// Where it lies in a slot.
    pub(super) path: PathBuf,
    /// Its real path.
    pub(super) real: PathBuf,
    /// Whether it was: else somebody has closed it who might have.
    pub(super) is_certain: bool,
}

/// Notes which files behind links are written.
pub(super) struct Watch {
    /// None where the system gives no more of them: then nothing is noticed.
    events: Option<File>,
    /// By the kernel's number: the folder, and where it lies in a slot if a link shows all of it.
    folders: HashMap<i32, (PathBuf, Option<PathBuf>)>,
    /// By the kernel's number: the names of a file, and where they lie in a slot.
    files: HashMap<i32, Vec<(PathBuf, PathBuf)>>,
    /// Where a real path lies in a slot.
    shown: HashMap<PathBuf, PathBuf>,
    ignored: Vec<PathBuf>,
    mark: Mark,
    log: Mutex<Log>,
}

#[derive(Default)]
struct Log {
    turn: u64,
    /// Path in a slot: real path, the turn in which it was last seen written, and whether the kernel has told of a write.
    written: HashMap<PathBuf, (PathBuf, u64, bool)>,
    /// Real paths of files that were not there when the run began.
    fresh: HashSet<PathBuf>,
}

impl Watch {
    pub(super) fn of(links: &Links, mark: Mark) -> Self {
        let mut watch = Self {
            events: None,
            folders: HashMap::new(),
            files: HashMap::new(),
            shown: links.links.iter().map(|(path, real)| (real.clone(), path.clone())).collect(),
            ignored: links.ignored.clone(),
            mark,
            log: Mutex::default(),
        };
        if links.links.is_empty() {
            return watch;
        }
        // SAFETY: a fresh descriptor that nobody else owns.
        watch.events = unsafe {
            let fd = libc::inotify_init1(libc::IN_CLOEXEC | libc::IN_NONBLOCK);
            (fd >= 0).then(|| File::from_raw_fd(fd))
        };
        let parents: HashSet<_> = links.links.iter().filter_map(|(_, real)| real.parent()).collect();
        for parent in parents {
            watch.add(parent, None);
            for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
                let Some(shown) = watch.shown.get(&entry.path()).cloned() else { continue };
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    watch.add(&entry.path(), Some(shown));
                }
            }
        }
        watch
    }

    /// Watches a folder: each file of its own, as every read of a file in a folder that is watched for writes costs a
    /// little more (5 % of `hmmscan`), else the folder.
    fn add(&mut self, folder: &Path, shown: Option<PathBuf>) {
        let mut mask = libc::IN_CREATE | libc::IN_MOVED_TO | libc::IN_ONLYDIR;
        if !self.add_files(folder, shown.as_deref()) {
            mask |= WRITES;
        }
        if let Some(number) = self.number(folder, mask) {
            self.folders.insert(number, (folder.to_owned(), shown));
        }
    }

    /// Whether all files that slots show of a folder are watched: there may be too many.
    fn add_files(&mut self, folder: &Path, shown: Option<&Path>) -> bool {
        let Ok(entries) = fs::read_dir(folder) else { return false };
        for (n_before, entry) in
            entries.flatten().filter(|entry| entry.file_type().is_ok_and(|it| it.is_file())).enumerate()
        {
            let real = entry.path();
            let in_slot = shown.map(|shown| shown.join(entry.file_name())).or_else(|| self.shown.get(&real).cloned());
            let Some(in_slot) = in_slot else { continue };
            if n_before >= MOST_FILES {
                return false;
            }
            let Some(number) = self.number(&real, WRITES | libc::IN_DONT_FOLLOW) else { return false };
            self.files.entry(number).or_default().push((real, in_slot));
        }
        true
    }

    /// The kernel's number for what it tells of a path.
    fn number(&self, path: &Path, mask: u32) -> Option<i32> {
        let (events, path) = (self.events.as_ref()?, CString::new(path.as_os_str().as_bytes()).ok()?);
        // SAFETY: a live descriptor and a path that ends with NUL.
        let number = unsafe { libc::inotify_add_watch(events.as_raw_fd(), path.as_ptr(), mask) };
        (number >= 0).then_some(number)
    }

    /// The present turn: what is written from now on is seen in a later one.
    pub(super) fn turn(&self) -> u64 {
        self.take().turn
    }

    /// Files that were written since `turn`, and that nobody but a tool may have written.
    pub(super) fn written_since(&self, turn: u64, is_shared: impl Fn(&Path) -> bool) -> Vec<Written> {
        let log = self.take();
        if log.turn == turn {
            return vec![];
        }
        let written = log.written.iter().filter(|(path, (_, at, _))| *at > turn && is_shared(path));
        let mut found: Vec<_> = written
            .map(|(path, (real, _, is_certain))| Written {
                path: path.clone(),
                real: real.clone(),
                is_certain: *is_certain,
            })
            .collect();
        drop(log);
        found.retain(|written| !self.is_held_by_others(&written.real));
        found.sort();
        found
    }

    /// Takes what the kernel has seen, before it is too much for it.
    pub(super) fn drain(&self) {
        drop(self.take());
    }

    fn take(&self) -> MutexGuard<'_, Log> {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(events) = self.events.as_ref() else { return log };
        read_waiting(events, |bytes| {
            log.turn += 1;
            self.note(bytes, &mut log);
        });
        log
    }

    fn note(&self, mut bytes: &[u8], log: &mut Log) {
        const HEAD: usize = size_of::<libc::inotify_event>();
        while bytes.len() >= HEAD {
            // SAFETY: the kernel writes whole events; they need not be aligned here.
            let event = unsafe { bytes.as_ptr().cast::<libc::inotify_event>().read_unaligned() };
            let end = (HEAD + event.len as usize).min(bytes.len());
            let name: Vec<u8> = bytes[HEAD..end].iter().copied().take_while(|byte| *byte != 0).collect();
            bytes = &bytes[end..];
            let is_certain = event.mask & libc::IN_MODIFY != 0;
            if event.mask & WRITES != 0 {
                for (real, in_slot) in self.files.get(&event.wd).into_iter().flatten() {
                    self.note_written(real, Some(in_slot.clone()), is_certain, log);
                }
            }
            let Some((folder, shown)) = self.folders.get(&event.wd) else { continue };
            if name.is_empty() {
                continue;
            }
            let name = std::ffi::OsString::from_vec(name);
            let real = folder.join(&name);
            if event.mask & WRITES != 0 {
                let below = shown.as_ref().map(|shown| shown.join(name));
                self.note_written(&real, below.or_else(|| self.shown.get(&real).cloned()), is_certain, log);
            } else if !self.is_ours(&real) {
                log.fresh.insert(real);
            }
        }
    }

    fn note_written(&self, real: &Path, in_slot: Option<PathBuf>, is_certain: bool, log: &mut Log) {
        if let Some(in_slot) = in_slot.filter(|_| !self.is_ours(real) && !log.fresh.contains(real)) {
            let seen = log.written.entry(in_slot).or_insert_with(|| (real.to_owned(), 0, false));
            *seen = (real.to_owned(), log.turn, seen.2 || is_certain);
        }
    }

    /// Whether this program writes a file.
    fn is_ours(&self, real: &Path) -> bool {
        let name = real.file_name().unwrap_or_default().as_bytes();
        memchr::memmem::find(name, b".millrace").is_some() || self.ignored.iter().any(|path| real.starts_with(path))
    }

    /// Whether a process that is no tool of ours has the file open for writing: the log of a batch system, the output of
    /// another program, or of this one.
    fn is_held_by_others(&self, real: &Path) -> bool {
        let Ok(about) = fs::metadata(real) else { return true };
        let Ok(processes) = fs::read_dir("/proc") else { return false };
        processes.flatten().any(|process| {
            let pid = process.file_name().to_str().and_then(|name| name.parse().ok());
            pid.is_some_and(|pid| self.mark.of_process(pid).is_none()) && holds(&process.path(), &about).is_some()
        })
    }
}

/// A descriptor of the process with the folder `process` in `/proc` that may write the file.
fn holds(process: &Path, about: &fs::Metadata) -> Option<()> {
    for descriptor in fs::read_dir(process.join("fd")).ok()?.flatten() {
        let Ok(opened) = fs::metadata(descriptor.path()) else { continue };
        if (opened.dev(), opened.ino()) != (about.dev(), about.ino()) {
            continue;
        }
        let info = fs::read_to_string(process.join("fdinfo").join(descriptor.file_name())).unwrap_or_default();
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
        let flags = flags.and_then(|text| i32::from_str_radix(text.trim(), 8).ok());
        if flags.is_some_and(|flags| flags & libc::O_ACCMODE != libc::O_RDONLY) {
            return Some(());
        }
    }
    None
}

/// Reads a file of at most `most` bytes; None if it is longer.
pub(super) fn read_short(path: &Path, most: u64) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(most + 1).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= most).then_some(bytes))
}

/// Reads what waits in `events` now. What comes meanwhile is for the next time: somebody may write without an end.
fn read_waiting(mut events: &File, mut take: impl FnMut(&[u8])) {
    let mut n_bytes: libc::c_int = 0;
    // SAFETY: writes a number where it is told to.
    if unsafe { libc::ioctl(events.as_raw_fd(), libc::FIONREAD, &raw mut n_bytes) } < 0 {
        return;
    }
    let mut left = usize::try_from(n_bytes).unwrap_or(0);
    let mut bytes = [0; 8192];
    while left > 0 {
        let Ok(n @ 1..) = events.read(&mut bytes) else { break };
        take(&bytes[..n]);
        left = left.saturating_sub(n);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::OwnedFd;

    use super::*;

    #[test]
    fn who_writes_without_an_end_holds_nobody_up() {
        let (events, mut writer) = io::pipe().unwrap();
        writer.write_all(&[0; 10_000]).unwrap();
        let mut n_bytes = 0;
        read_waiting(&File::from(OwnedFd::from(events)), |bytes| {
            n_bytes += bytes.len();
            assert!(n_bytes < 60_000, "it goes on as long as somebody writes");
            writer.write_all(&[0; 8192]).unwrap();
        });
        assert!(n_bytes >= 10_000, "all that waited was read");
    }
}
