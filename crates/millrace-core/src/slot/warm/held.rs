//! Files that a warm tool has open when it is forked, and what each fork gets in the place of them.
//!
//! Forked processes would share how far a file is read; so each gets the file opened anew, at the same place in it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// One open file of the tool.
#[derive(Debug)]
pub(super) struct Held {
    /// By which number the tool knows it.
    pub(super) number: i32,
    /// Whether it closes on exec.
    pub(super) closes: bool,
    pub(super) what: What,
}

#[derive(Debug)]
pub(super) enum What {
    /// What the tool writes for nobody in particular: standard output, standard error.
    Stdout,
    Stderr,
    /// A file that is read, opened as the tool has it; how far.
    Read {
        file: File,
        flags: i32,
        at: u64,
    },
    /// A file of the slot's that is written: its path in the slot, what was written, how far.
    Written {
        path: PathBuf,
        file: File,
        flags: i32,
        at: u64,
    },
}

/// A file in the place of one that the tool has open.
#[derive(Debug)]
pub(super) struct Fresh {
    pub(super) number: i32,
    pub(super) closes: bool,
    pub(super) file: File,
}

/// Flags of an open file that its second opening must not have.
const ONCE: i32 = libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC | libc::O_CLOEXEC | libc::O_NOFOLLOW | libc::O_ACCMODE;

impl Held {
    /// Where in the slot it is written.
    pub(super) fn path(&self) -> Option<&Path> {
        match &self.what {
            What::Written { path, .. } => Some(path),
            _ => None,
        }
    }

    /// What a fork gets in the place of it.
    pub(super) fn fresh(&self, root: &Path, stdout: &File, stderr: &File) -> io::Result<Fresh> {
        let file = match &self.what {
            What::Stdout => stdout.try_clone()?,
            What::Stderr => stderr.try_clone()?,
            What::Read { file, flags, at } => reopened(file, *flags, *at)?,
            What::Written { path, file, flags, at } => rewritten(&root.join(path), file, *flags, *at)?,
        };
        Ok(Fresh { number: self.number, closes: self.closes, file })
    }
}

fn reopened(file: &File, flags: i32, at: u64) -> io::Result<File> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let mut fresh = OpenOptions::new().read(true).custom_flags(flags & !ONCE).open(path)?;
    fresh.seek(SeekFrom::Start(at))?;
    Ok(fresh)
}

/// A new file at `path` with what was written to `file`.
fn rewritten(path: &Path, file: &File, flags: i32, at: u64) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    options.write(true).read(flags & libc::O_ACCMODE == libc::O_RDWR).create_new(true);
    let mut fresh = options.mode(0o600).custom_flags(flags & !ONCE).open(path)?;
    io::copy(&mut reopened(file, 0, 0)?, &mut fresh)?;
    fresh.set_permissions(fs::Permissions::from_mode(file.metadata()?.permissions().mode() & 0o7777))?;
    fresh.seek(SeekFrom::Start(at))?;
    Ok(fresh)
}
