//! Whether a view can be had here: tried by having it.

use std::ffi::{CStr, CString};
use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::mark::Mark;
use super::spawn::{Ending, Start, spawn};
use super::view::View;

/// Makes a folder where one was removed, which takes attributes, and renames a file; each process costs a start of Millrace a
/// millisecond, twice.
const SCRIPT: &CStr =
    c"cd \"$1\" && rmdir \"$2\" && mkdir \"$2\" && : >\"$2/a\" && mv \"$2/a\" \"$2/b\" && exec rm -r \"$2\"";

/// Starts a program with the view, whose layers are in the new folder `root`, in these namespaces.
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
    let said = root.join("said");
    let mut stderr = File::options().read(true).write(true).create_new(true).open(&said)?;
    let null = File::open("/dev/null")?;
    let mut argv: Vec<CString> = [c"sh", c"-c", SCRIPT, c"sh"].map(CString::from).into();
    argv.extend([CString::new(folder.as_os_str().as_bytes())?, CString::new(name.as_os_str().as_bytes())?]);
    let process = spawn(&Start {
        exe: c"/bin/sh",
        argv: &argv,
        environ: &[c"PATH=/usr/bin:/bin".into()],
        directory: c"/",
        namespaces,
        view: Some(&view.calls(root)?),
        stdin: &null,
        stdout: &stderr,
        stderr: &stderr,
        nice: 0,
        mark: Mark::of_run(name.as_os_str().as_bytes()),
    })?;
    let (ending, _) = process.reap()?;
    if ending == Ending::Exited(0) && fs::symlink_metadata(folder.join(name)).is_err() {
        return Ok(());
    }
    let mut words = String::new();
    stderr.rewind()?;
    stderr.read_to_string(&mut words)?;
    Err(io::Error::other(words.lines().next_back().unwrap_or("nothing can be written there").to_owned()))
}
