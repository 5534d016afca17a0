//! Removing what a tool has left without the right to: folders that may not be written.

use std::fs::{self, OpenOptions, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Calls `remove`, which removes what is in `folder`; if it may not, once more when the folders there let it.
///
/// A folder that may not be written (`chmod -R a-w cache`, as tools protect theirs) keeps its entries from everybody
/// but root.
pub(super) fn removing<T>(folder: &Path, mut remove: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    match remove() {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            open_up(folder)?;
            remove()
        }
        done => done,
    }
}

/// Removes `folder` with all that is in it, if it is there.
pub(super) fn removing_all(folder: &Path) -> io::Result<()> {
    match removing(folder, || fs::remove_dir_all(folder)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Lets the owner of `folder`, and of all folders below it, do anything there. No link is followed, whatever the tool's
/// processes put in the place of a folder meanwhile: what is changed and read is the folder that was opened.
fn open_up(folder: &Path) -> io::Result<()> {
    let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW;
    let held = OpenOptions::new().read(true).custom_flags(flags).open(folder)?;
    // The descriptor of a path takes no fchmod.
    let place = Path::new("/proc/self/fd").join(held.as_raw_fd().to_string());
    let mode = held.metadata()?.permissions().mode();
    if mode & 0o700 != 0o700 {
        fs::set_permissions(&place, Permissions::from_mode((mode & 0o7777) | 0o700))?;
    }
    for entry in fs::read_dir(&place)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            open_up(&entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_opened_up_and_links_are_not_followed() {
        let top = tempfile::TempDir::new().unwrap();
        let mode_of = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let (other, cache) = (top.path().join("other"), top.path().join("cache"));
        fs::create_dir(&other).unwrap();
        fs::create_dir_all(cache.join("sub/sub")).unwrap();
        std::os::unix::fs::symlink(&other, cache.join("link")).unwrap();
        for (path, mode) in [(&other, 0o555), (&cache.join("sub/sub"), 0), (&cache.join("sub"), 0o555)] {
            fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        }
        let mut answers = vec![Ok(7), Err(io::ErrorKind::PermissionDenied.into())];
        assert_eq!(removing(&cache, || answers.pop().unwrap()).unwrap(), 7);
        assert_eq!(
            [cache.join("sub"), cache.join("sub/sub"), other.clone()].map(|path| mode_of(&path)),
            [0o755, 0o700, 0o555]
        );
        assert!(open_up(&cache.join("link")).is_err());
    }
}
