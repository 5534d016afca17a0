//! A look at a tool that waits at its first touch of the input: what it has open, and why it cannot be forked.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::held::{Held, What};

/// Devices that are the same for everybody: null, zero, full, random, urandom.
const HARMLESS: [u32; 5] = [3, 5, 7, 8, 9];

/// Against a tool that has others at work.
pub(super) const STARTED: &str = "a program that it has started is still there when it reads its input";

/// What the tool wrote to before it was looked at.
pub(super) struct Said<'a> {
    pub(super) stdout: &'a File,
    pub(super) stderr: &'a File,
}

/// What process `pid` has open besides its `link` to us; or why it cannot be forked, in words.
///
/// `root` is the folder of the slot, `directory` where the tool was started.
pub(super) fn look(
    pid: libc::pid_t,
    link: i32,
    root: &Path,
    directory: &Path,
    said: &Said<'_>,
) -> Result<Vec<Held>, String> {
    let unseen = |error: io::Error| format!("it cannot be looked at: {error}");
    let place = PathBuf::from(format!("/proc/{pid}"));
    processes(&place).map_err(unseen)?.map_or(Ok(()), Err)?;
    memory(&place).map_err(unseen)?.map_or(Ok(()), Err)?;
    let root = fs::canonicalize(root).map_err(unseen)?;
    if fs::read_link(place.join("cwd")).map_err(unseen)? != fs::canonicalize(directory).map_err(unseen)? {
        return Err("it goes to another folder before it reads its input".to_owned());
    }
    let mut found: Vec<(Held, Metadata)> = vec![];
    for entry in fs::read_dir(place.join("fd")).map_err(unseen)? {
        let entry = entry.map_err(unseen)?;
        let Some(number) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        let about = fs::metadata(entry.path()).map_err(unseen)?;
        if number == link || is_inherited(number, &about) {
            continue;
        }
        let (flags, at) = information(&place, number).map_err(unseen)?;
        let Some(what) = what(&entry.path(), &about, flags, at, &root, said)? else { continue };
        let is_said = matches!(what, What::Stdout | What::Stderr);
        let is_same = |other: &Metadata| (other.dev(), other.ino()) == (about.dev(), about.ino());
        if !is_said && found.iter().any(|(_, other)| is_same(other)) {
            return Err("it has one file open twice".to_owned());
        }
        found.push((Held { number, closes: flags & libc::O_CLOEXEC != 0, what }, about));
    }
    if found.len() > super::order::MOST {
        return Err(format!("it has {} files open", found.len()));
    }
    Ok(found.into_iter().map(|(held, _)| held).collect())
}

/// Whether every tool has it from us, who have it from whoever started us.
fn is_inherited(number: i32, about: &Metadata) -> bool {
    let ours = Path::new("/proc/self");
    number > 2
        && information(ours, number).is_ok_and(|(flags, _)| flags & libc::O_CLOEXEC == 0)
        && fs::metadata(ours.join(format!("fd/{number}")))
            .is_ok_and(|other| (other.dev(), other.ino()) == (about.dev(), about.ino()))
}

/// Threads and other processes, which a fork would not have. Those that have ended told it nothing of the input, which was
/// not there.
fn processes(place: &Path) -> io::Result<Option<String>> {
    let status = fs::read_to_string(place.join("status"))?;
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map_or("", str::trim);
    if field("Threads:") != "1" {
        return Ok(Some(format!("it has {} threads before it reads its input", field("Threads:"))));
    }
    let pid = place.file_name().unwrap_or_default();
    let children = fs::read(place.join("task").join(pid).join("children"))?;
    Ok((!children.is_empty()).then(|| STARTED.to_owned()))
}

/// Memory that forked processes would share.
fn memory(place: &Path) -> io::Result<Option<String>> {
    let maps = fs::read_to_string(place.join("maps"))?;
    let shared = maps.lines().find(|line| {
        let rights = line.split_ascii_whitespace().nth(1).unwrap_or("").as_bytes();
        rights.contains(&b'w') && rights.contains(&b's')
    });
    Ok(shared.map(|line| {
        let name = line.split_ascii_whitespace().nth(5).unwrap_or("without a name");
        format!("it writes to memory that it shares with others ({name})")
    }))
}

/// Flags of an open file, and how far it is read or written.
fn information(place: &Path, number: i32) -> io::Result<(i32, u64)> {
    let text = fs::read_to_string(place.join(format!("fdinfo/{number}")))?;
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map_or("", str::trim);
    Ok((i32::from_str_radix(field("flags:"), 8).unwrap_or(0), field("pos:").parse().unwrap_or(0)))
}

/// What an open file is to a fork; None: it may share it.
fn what(
    path: &Path,
    about: &Metadata,
    flags: i32,
    at: u64,
    root: &Path,
    said: &Said<'_>,
) -> Result<Option<What>, String> {
    let unseen = |error: io::Error| format!("a file that it has open cannot be looked at: {error}");
    let is_at = |file: &File| file.metadata().map(|other| (other.dev(), other.ino()) == (about.dev(), about.ino()));
    if is_at(said.stdout).map_err(unseen)? {
        return Ok(Some(What::Stdout));
    }
    if is_at(said.stderr).map_err(unseen)? {
        return Ok(Some(What::Stderr));
    }
    let kind = about.file_type();
    let name = fs::read_link(path).map_err(unseen)?;
    if kind.is_char_device() && libc::major(about.rdev()) == 1 && HARMLESS.contains(&libc::minor(about.rdev())) {
        return Ok(None);
    }
    if !kind.is_file() && !kind.is_dir() {
        let what = if kind.is_socket() {
            "a socket"
        } else if kind.is_fifo() {
            "a pipe"
        } else {
            "something special"
        };
        return Err(format!("it has {what} open before it reads its input ({})", name.display()));
    }
    let open = |flags: i32| OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(unseen);
    if flags & libc::O_ACCMODE == libc::O_RDONLY {
        return Ok(Some(What::Read { file: open(flags & libc::O_DIRECTORY)?, flags, at }));
    }
    match name.strip_prefix(root) {
        Ok(inside) if about.nlink() == 1 => {
            Ok(Some(What::Written { path: inside.to_owned(), file: open(0)?, flags, at }))
        }
        _ => Err(format!("it writes {} before it reads its input", name.display())),
    }
}
