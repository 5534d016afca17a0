//! A user namespace in which everybody is who they are: what a process needs that may not mount anything otherwise.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

/// Makes a user namespace. Ids are what they are outside: all of them where this process may say so, else its own.
///
/// # Errors
/// If the system does not let this user have one.
pub fn user_namespace() -> io::Result<OwnedFd> {
    let ((mut told, tell), (wait, go)) = (pipe()?, pipe()?);
    // SAFETY: the child of a process that may have threads makes system calls alone.
    let pid = unsafe { libc::fork() };
    match pid {
        -1 => return Err(io::Error::last_os_error()),
        0 => {
            // SAFETY: as above; the descriptors are copies of live ones.
            unsafe {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                let error = if libc::unshare(libc::CLONE_NEWUSER) < 0 { *libc::__errno_location() } else { 0 };
                libc::write(tell.as_raw_fd(), (&raw const error).cast(), size_of::<i32>());
                libc::close(go.as_raw_fd());
                let mut byte = 0_u8;
                libc::read(wait.as_raw_fd(), (&raw mut byte).cast(), 1);
                libc::_exit(0)
            }
        }
        _ => drop((tell, wait)),
    }
    let made = (|| {
        let mut error = [0; size_of::<i32>()];
        told.read_exact(&mut error)?;
        match i32::from_ne_bytes(error) {
            0 => {}
            number => return Err(io::Error::from_raw_os_error(number)),
        }
        let place = Path::new("/proc").join(pid.to_string());
        map_ids(&place)?;
        Ok(OwnedFd::from(File::open(place.join("ns/user"))?))
    })();
    drop(go); // it ends
    // SAFETY: our own child, reaped once.
    unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
    made
}

fn pipe() -> io::Result<(File, File)> {
    let mut ends = [0; 2];
    // SAFETY: room for two descriptors, which are nobody else's.
    unsafe {
        if libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok((File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1])))
    }
}

/// Says who is who to the process with the folder `place` in `/proc`.
fn map_ids(place: &Path) -> io::Result<()> {
    let all = |name: &str| {
        let own = std::fs::read_to_string(Path::new("/proc/self").join(name))?;
        let lines = own.lines().filter_map(|line| {
            let mut words = line.split_ascii_whitespace();
            let (first, count) = (words.next()?, words.nth(1)?);
            Some(format!("{first} {first} {count}\n"))
        });
        write(&place.join(name), &lines.collect::<String>())
    };
    // SAFETY: no arguments, cannot fail.
    let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
    if all("uid_map").is_err() {
        write(&place.join("uid_map"), &format!("{user} {user} 1"))?;
    }
    if all("gid_map").is_err() {
        write(&place.join("setgroups"), "deny")?;
        write(&place.join("gid_map"), &format!("{group} {group} 1"))?;
    }
    Ok(())
}

/// In one call, as the kernel wants it.
fn write(path: &Path, text: &str) -> io::Result<()> {
    File::options().write(true).open(path)?.write_all(text.as_bytes())
}
