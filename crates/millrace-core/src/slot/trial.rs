//! Whether a view can be had here: tried by having it.

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::mark::Mark;
use super::spawn::{Ending, FolderTrial, Start, spawn};
use super::view::View;

/// Works in a folder with the view, whose layers are in the new folder `root`, in these namespaces.
///
/// # Errors
/// If the view cannot be had, or does not do what a folder does: why.
pub fn try_view(view: &View, root: &Path, namespaces: &[OwnedFd]) -> io::Result<()> {
    let Some(folder) = view.overlays.last() else { return Ok(()) };
    let name = root.file_name().unwrap_or_default();
    let mask = root.parent().unwrap_or(root).join(format!("mask-{}", view.overlays.len() - 1));
    fs_err::create_dir(root)?;
    fs_err::create_dir(mask.join(name))?;
    let done = view.refresh(root).and_then(|()| run(view, root, namespaces, folder, Path::new(name)));
    fs_err::remove_dir(mask.join(name))?;
    super::rights::removing_all(root)?;
    done
}

fn run(view: &View, root: &Path, namespaces: &[OwnedFd], folder: &Path, name: &Path) -> io::Result<()> {
    let null = File::options().read(true).write(true).open("/dev/null")?;
    let process = spawn(&Start {
        exe: c"",
        argv: &[],
        environ: &[],
        trial: Some(&FolderTrial::new(&name.to_string_lossy())?),
        directory: &CString::new(folder.as_os_str().as_bytes())?,
        namespaces,
        view: Some(&view.calls(root)?),
        stdin: &null,
        stdout: &null,
        stderr: &null,
        nice: 0,
        mark: Mark::of_run(name.as_os_str().as_bytes()),
    })?;
    match (process.reap()?.0, fs::symlink_metadata(folder.join(name))) {
        (Ending::Exited(0), Err(_)) => Ok(()),
        (Ending::Exited(0), Ok(_)) => Err(io::Error::other("what is written there stays there")),
        (ending, _) => Err(io::Error::other(format!("a trial of it ended: {ending:?}"))),
    }
}
