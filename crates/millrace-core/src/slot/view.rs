//! The user's own folders as a task sees them: overlays, mounted at the folders' own paths in a mount namespace of the
//! task's own.
//!
//! What a task writes there lies in an upper layer of its slot. The namespace, and with it every mount, is gone when the
//! last process of the task has ended, whoever ended it; nobody else ever sees it.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString, c_int};
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Mutex, PoisonError};

use super::rights;

/// What tasks see of the user's folders. In a slot, `upper-N` holds what they write in the overlay of this number.
#[derive(Debug, Clone, Default)]
pub struct View {
    /// Folders over which an overlay is mounted, real and absolute; outer ones before inner ones.
    pub overlays: Vec<PathBuf>,
    /// Other mounts below these, which an overlay does not show: they are bound to their places again.
    pub mounts: Vec<PathBuf>,
    /// (path relative to a slot, real folder) of folders in which a task's files are placed; outer ones before inner ones.
    pub folders: Vec<(PathBuf, PathBuf)>,
    /// Whether the overlays keep their marks in attributes that every user may set.
    pub user_attributes: bool,
    /// Whether mounts have to be kept from coming to be outside: the tasks stay in the user namespace of this process.
    pub has_peers: bool,
}

/// Namespaces of tasks that have ended. To unmount what they have may take the kernel milliseconds where many programs are
/// at work, for which the end of a task is not to wait.
#[derive(Debug, Default)]
pub(super) struct OldNamespaces(Mutex<Vec<File>>);

impl OldNamespaces {
    /// The namespace of a process, which lives as long as what is returned.
    pub(super) fn of_process(pid: libc::pid_t) -> Option<File> {
        File::open(format!("/proc/{pid}/ns/mnt")).ok() // without it, the end of the process waits
    }

    /// Keeps the namespace of a task that has ended until the next `release`.
    pub(super) fn keep(&self, namespace: Option<File>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(namespace);
    }

    /// Lets go what is kept.
    pub(super) fn release(&self) {
        let kept = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        drop(kept);
    }
}

/// What a task did to an entry of a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// It made it.
    Made,
    /// It was there, and is another now.
    Changed,
}

impl View {
    /// Name of the layer, in a slot, into which tasks write.
    fn upper(number: usize) -> String {
        format!("upper-{number}")
    }

    /// Name of the folder, in a slot, that the kernel needs beside it.
    fn work(number: usize) -> String {
        format!("work-{number}")
    }

    /// Name of the layer, beside the slots, that hides entries of the folder, or shows others.
    fn mask(number: usize) -> String {
        format!("mask-{number}")
    }

    /// Whether a path relative to a slot is that of a layer.
    pub(super) fn is_layer(&self, path: &Path) -> bool {
        (0..self.overlays.len())
            .any(|number| path == Path::new(&Self::upper(number)) || path == Path::new(&Self::work(number)))
    }

    /// The user's path of a path relative to a slot; None: it is none of the user's.
    pub(super) fn users(&self, path: &Path) -> Option<PathBuf> {
        self.overlays
            .iter()
            .enumerate()
            .find_map(|(number, folder)| Some(folder.join(path.strip_prefix(Self::upper(number)).ok()?)))
    }

    /// Where, relative to a slot, a task writes the absolute `path`; None: in no overlay.
    pub(super) fn in_slot(&self, path: &Path) -> Option<PathBuf> {
        let number = self.overlays.iter().rposition(|folder| path.starts_with(folder))?;
        Some(Path::new(&Self::upper(number)).join(path.strip_prefix(&self.overlays[number]).ok()?))
    }

    /// Makes the layers of the slot `root` anew, empty.
    pub(super) fn refresh(&self, root: &Path) -> io::Result<()> {
        for (number, folder) in self.overlays.iter().enumerate() {
            let upper = root.join(Self::upper(number));
            rights::removing_all(&upper)?;
            make_like(&upper, folder)?;
            // An overlay of the last task may still have the other one.
            let work = root.join(Self::work(number));
            rights::removing_all(&work)?;
            fs::DirBuilder::new().mode(0o700).create(work)?;
        }
        self.folders.iter().try_for_each(|(path, real)| make_like(&root.join(path), real))
    }

    /// Gives the folders in which files were placed the times of the user's own.
    pub(super) fn settle(&self, root: &Path) -> io::Result<()> {
        for (number, folder) in self.overlays.iter().enumerate() {
            take_times(&root.join(Self::upper(number)), folder)?;
        }
        self.folders.iter().try_for_each(|(path, real)| take_times(&root.join(path), real))
    }

    /// What a task has made or changed, besides `wanted`: paths relative to the slot `root`.
    pub(super) fn changes(
        &self,
        root: &Path,
        wanted: &BTreeSet<&Path>,
    ) -> io::Result<Vec<(PathBuf, Change, fs::FileType)>> {
        let mut found = vec![];
        for number in 0..self.overlays.len() {
            self.changes_below(root, number, Path::new(""), wanted, &mut found)?;
        }
        Ok(found)
    }

    fn changes_below(
        &self,
        root: &Path,
        number: usize,
        below: &Path,
        wanted: &BTreeSet<&Path>,
        found: &mut Vec<(PathBuf, Change, fs::FileType)>,
    ) -> io::Result<()> {
        let upper = Path::new(&Self::upper(number)).join(below);
        for entry in fs::read_dir(root.join(&upper))? {
            let entry = entry?;
            let (path, inner) = (upper.join(entry.file_name()), below.join(entry.file_name()));
            let about = entry.metadata()?;
            if is_whiteout(&about) || wanted.contains(path.as_path()) {
                continue;
            }
            let real = self.overlays[number].join(&inner);
            match self.lower(root, number, &inner)? {
                Some(was) if was.is_dir() && about.is_dir() => {
                    self.changes_below(root, number, &inner, wanted, found)?
                }
                Some(was) => {
                    let at = root.join(&path);
                    if !self.is_copy(&at)? {
                        found.push((path, Change::Made, about.file_type()));
                    } else if !is_same((&real, &was), (&at, &about))? {
                        found.push((path, Change::Changed, about.file_type()));
                    }
                }
                // A folder that the view made for an output; what the task wrote in it is looked at.
                None if about.is_dir() && self.folders.iter().any(|(made, _)| *made == path) => {
                    self.changes_below(root, number, &inner, wanted, found)?
                }
                None => found.push((path, Change::Made, about.file_type())),
            }
        }
        Ok(())
    }

    /// Whether what lies in an upper layer was written in place, and not put in the place of what was there: the kernel
    /// marks what it copies there.
    fn is_copy(&self, path: &Path) -> io::Result<bool> {
        let name = if self.user_attributes { c"user.overlay.origin" } else { c"trusted.overlay.origin" };
        let path = text(path)?;
        // SAFETY: two texts that end with NUL, and no room for a value.
        Ok(unsafe { libc::lgetxattr(path.as_ptr(), name.as_ptr(), ptr::null_mut(), 0) } >= 0)
    }

    /// What was there before the task.
    fn lower(&self, root: &Path, number: usize, inner: &Path) -> io::Result<Option<Metadata>> {
        let mask = root.parent().unwrap_or(root).join(Self::mask(number)).join(inner);
        match metadata(&mask)? {
            Some(about) if is_whiteout(&about) => Ok(None),
            Some(about) if !about.is_dir() => Ok(Some(about)),
            _ => metadata(&self.overlays[number].join(inner)),
        }
    }

    /// What a process of the slot `root` has to do in order to have the view.
    pub(super) fn calls(&self, root: &Path) -> io::Result<ViewCalls> {
        let overlays = self.overlays.iter().enumerate().map(|(number, folder)| {
            let attributes = if self.user_attributes { ",userxattr" } else { "" };
            let (upper, work) = (Self::upper(number), Self::work(number));
            // Of a folder that was renamed, the layer would have the name alone.
            let after =
                format!(",upperdir={upper},workdir={work},redirect_dir=nofollow,metacopy=off,index=off{attributes}");
            let path = text(folder)?;
            let overlay = Options {
                // No path of the user's, which may have commas and colons.
                before: format!("lowerdir=../{}:/proc/self/fd/", Self::mask(number)).into_bytes(),
                after: CString::new(after)?,
                flags: mount_flags(&path)?,
            };
            Ok(MountCall { path, opened: AtomicI32::new(-1), overlay: Some(overlay) })
        });
        let bound = self
            .mounts
            .iter()
            .map(|path| Ok(MountCall { path: text(path)?, opened: AtomicI32::new(-1), overlay: None }));
        let mut mounts = overlays.chain(bound).collect::<io::Result<Vec<_>>>()?;
        // An outer one would cover an inner one.
        mounts.sort_by_key(|mount| mount.path.as_bytes().len());
        Ok(ViewCalls { root: text(root)?, mounts, has_peers: self.has_peers })
    }
}

fn text(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(io::Error::from)
}

/// A new folder with the rights of `real`, if that is there, and its owner as far as that is allowed.
fn make_like(folder: &Path, real: &Path) -> io::Result<()> {
    fs_err::create_dir(folder)?;
    let Some(about) = metadata(real)? else { return Ok(()) };
    if about.uid() != user() || about.gid() != fs_err::metadata(folder)?.gid() {
        let _ = chown(folder, Some(about.uid()), Some(about.gid())).or_else(|_| chown(folder, None, Some(about.gid())));
    }
    fs_err::set_permissions(folder, fs::Permissions::from_mode(about.mode() & 0o7777))
}

fn user() -> libc::uid_t {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::geteuid() }
}

fn take_times(folder: &Path, real: &Path) -> io::Result<()> {
    let Some(about) = metadata(real)? else { return Ok(()) };
    let path = text(folder)?;
    let times = [
        libc::timespec { tv_sec: about.atime(), tv_nsec: about.atime_nsec() },
        libc::timespec { tv_sec: about.mtime(), tv_nsec: about.mtime_nsec() },
    ];
    // SAFETY: a path that ends with NUL, and two times. What cannot be set stays as it is.
    unsafe { libc::utimensat(libc::AT_FDCWD, path.as_ptr(), times.as_ptr(), 0) };
    Ok(())
}

/// Whether this says that what lies below is not there.
pub(super) fn is_whiteout(about: &Metadata) -> bool {
    about.file_type().is_char_device() && about.rdev() == 0
}

fn metadata(path: &Path) -> io::Result<Option<Metadata>> {
    match fs::symlink_metadata(path) {
        Ok(about) => Ok(Some(about)),
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether a file that was opened to be written holds what it held.
fn is_same((was_at, was): (&Path, &Metadata), (is_at, is_now): (&Path, &Metadata)) -> io::Result<bool> {
    let kind = was.file_type();
    if kind != is_now.file_type() {
        return Ok(false);
    }
    if kind.is_symlink() {
        return Ok(fs::read_link(was_at)? == fs::read_link(is_at)?);
    }
    if !kind.is_file() {
        return Ok(true);
    }
    if was.len() != is_now.len() {
        return Ok(false);
    }
    super::bytes::is_same(&mut fs_err::File::open(was_at)?.into_file(), &mut fs_err::File::open(is_at)?.into_file())
}

/// The flags of the mount that holds a folder, of those that say what may be done with its files.
fn mount_flags(folder: &CStr) -> io::Result<libc::c_ulong> {
    // SAFETY: plain data, filled by statvfs.
    let about = unsafe {
        let mut about: libc::statvfs = std::mem::zeroed();
        if libc::statvfs(folder.as_ptr(), &mut about) < 0 {
            return Err(io::Error::last_os_error());
        }
        about
    };
    // Both have the same numbers.
    Ok(about.f_flag & (libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC))
}

/// What is done before a program starts, prepared beforehand: nothing may be allocated then.
#[derive(Debug)]
pub(super) struct ViewCalls {
    root: CString,
    /// In their order.
    mounts: Vec<MountCall>,
    has_peers: bool,
}

#[derive(Debug)]
struct MountCall {
    path: CString,
    /// A descriptor of what is there before anything is mounted.
    opened: AtomicI32,
    /// Mounted over it; None: what is there is bound to its place again.
    overlay: Option<Options>,
}

#[derive(Debug)]
struct Options {
    /// What comes before and after the number of the descriptor by which the folder is named.
    before: Vec<u8>,
    after: CString,
    flags: libc::c_ulong,
}

/// Bytes of a text that the child writes.
const TEXT: usize = 4096;

impl ViewCalls {
    /// Has the calling process, which has one thread, see the view; the error number, if it cannot be.
    ///
    /// Async-signal-safe. The process is in the folder of the slot afterwards.
    pub(super) unsafe fn enter(&self) -> Result<(), c_int> {
        // SAFETY: system calls on texts that live as long as `self`.
        unsafe {
            check(libc::unshare(libc::CLONE_NEWNS))?;
            if self.has_peers {
                // What the system mounts from now on is seen here too, and nothing of ours outside.
                let flags = libc::MS_REC | libc::MS_SLAVE;
                check(libc::mount(c"none".as_ptr(), c"/".as_ptr(), ptr::null(), flags, ptr::null()))?;
            }
            check(libc::chdir(self.root.as_ptr()))?;
            // All are opened before the first mount covers one of them.
            self.mounts.iter().try_for_each(|mount| mount.open())?;
            self.mounts.iter().try_for_each(|mount| mount.mount())
        }
    }
}

impl MountCall {
    unsafe fn open(&self) -> Result<(), c_int> {
        // SAFETY: a text that ends with NUL. The descriptor closes when the program starts.
        let number = unsafe { libc::open(self.path.as_ptr(), libc::O_PATH | libc::O_CLOEXEC) };
        check(number)?;
        self.opened.store(number, Ordering::Relaxed);
        Ok(())
    }

    unsafe fn mount(&self) -> Result<(), c_int> {
        let (mut text, number) = ([0_u8; TEXT], self.opened.load(Ordering::Relaxed));
        let place = self.path.as_ptr();
        // SAFETY: texts that end with NUL.
        check(unsafe {
            match &self.overlay {
                Some(overlay) => {
                    write_around(&mut text, &overlay.before, number, overlay.after.to_bytes_with_nul())?;
                    let kind = c"overlay".as_ptr();
                    libc::mount(kind, place, kind, overlay.flags, text.as_ptr().cast())
                }
                None => {
                    write_around(&mut text, b"/proc/self/fd/", number, b"\0")?;
                    let flags = libc::MS_BIND | libc::MS_REC;
                    libc::mount(text.as_ptr().cast(), place, ptr::null(), flags, ptr::null())
                }
            }
        })
    }
}

/// Writes a number between two texts. Async-signal-safe.
fn write_around(to: &mut [u8; TEXT], before: &[u8], number: i32, after: &[u8]) -> Result<(), c_int> {
    let (mut digits, mut at, mut rest) = ([0_u8; 10], 10, number.unsigned_abs());
    while at == 10 || rest > 0 {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    let mut end = 0;
    for part in [before, &digits[at..], after] {
        to.get_mut(end..end + part.len()).ok_or(libc::ENAMETOOLONG)?.copy_from_slice(part);
        end += part.len();
    }
    Ok(())
}

fn check(result: c_int) -> Result<(), c_int> {
    if result < 0 { Err(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_stands_between_its_texts() {
        let mut text = [0; TEXT];
        write_around(&mut text, b"fd/", 1207, b",x\0").unwrap();
        assert_eq!(CStr::from_bytes_until_nul(&text).unwrap(), c"fd/1207,x");
        write_around(&mut text, b"", 0, b"\0").unwrap();
        assert_eq!(CStr::from_bytes_until_nul(&text).unwrap(), c"0");
        assert_eq!(write_around(&mut text, &[b'x'; TEXT], 1, b"\0"), Err(libc::ENAMETOOLONG));
    }

    #[test]
    fn paths_of_the_user_and_of_the_slot_are_told_apart() {
        let view = View { overlays: vec!["/a".into(), "/a/b".into()], ..View::default() };
        assert_eq!(view.in_slot(Path::new("/a/b/c")), Some("upper-1/c".into()));
        assert_eq!(view.in_slot(Path::new("/a/bc")), Some("upper-0/bc".into()));
        assert_eq!(view.in_slot(Path::new("/b")), None);
        assert_eq!(view.users(Path::new("upper-1/c")), Some("/a/b/c".into()));
        assert_eq!(view.users(Path::new("_millrace/c")), None);
    }
}
