//! Opening what a tool wrote: a file of this task's own, or a reason why it is not one.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::outcome::Failure;

/// Opens the file `path`, relative to the slot's directory `root`; None if it is not there.
///
/// Nothing that a tool may leave there makes it wait. A link counts as what it names, if that lies in the slot: what lies
/// elsewhere may be shared with other tasks.
///
/// `shown` is its name for the user; `in_slot` says where in the slot an absolute path is that a link leads to.
pub(super) fn open(
    root: &Path,
    path: &Path,
    shown: &Path,
    in_slot: impl Fn(&Path) -> Option<PathBuf>,
) -> Result<Option<File>, Failure> {
    let whole = root.join(path);
    let file = match open_without_waiting(&whole, libc::O_NOFOLLOW) {
        Err(error) if error.raw_os_error() == Some(libc::ELOOP) => open_linked(root, path, shown, in_slot),
        found => found.map_err(|error| unusable(shown, error)),
    };
    let file = match file {
        Ok(Some(file)) => file,
        other => return other,
    };
    let kind = file.metadata().map_err(Failure::Io)?.file_type();
    if kind.is_file() {
        return Ok(Some(file));
    }
    let what = match () {
        () if kind.is_dir() => "a folder",
        () if kind.is_fifo() => "a named pipe",
        () => "a device",
    };
    Err(no_file(shown, what))
}

fn open_linked(
    root: &Path,
    path: &Path,
    shown: &Path,
    in_slot: impl Fn(&Path) -> Option<PathBuf>,
) -> Result<Option<File>, Failure> {
    let named = std::fs::read_link(root.join(path)).map_err(Failure::Io)?;
    let whole = root.join(in_slot(&named).as_deref().unwrap_or(path));
    let target = match std::fs::canonicalize(&whole) {
        Ok(target) => target,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Failure::Io(error)),
    };
    let root = std::fs::canonicalize(root).map_err(Failure::Io)?;
    if !target.starts_with(&root) {
        return Err(no_file(shown, &format!("a link to {}, where other tasks may write", target.display())));
    }
    open_without_waiting(&target, 0).map_err(|error| unusable(shown, error))
}

fn open_without_waiting(path: &Path, flags: i32) -> io::Result<Option<File>> {
    // Not by way of `fs_err`, which hides the number of an error.
    let opened = File::options().read(true).custom_flags(libc::O_NONBLOCK | flags).open(path);
    match opened {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn unusable(path: &Path, error: io::Error) -> Failure {
    // A socket has nothing to open.
    if error.raw_os_error() == Some(libc::ENXIO) {
        return no_file(path, "a socket");
    }
    Failure::Io(io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}

fn no_file(path: &Path, what: &str) -> Failure {
    Failure::Said(format!("it left {} as {what}, not as a file", path.display()))
}
