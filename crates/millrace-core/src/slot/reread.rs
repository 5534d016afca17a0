//! Tools that read a file again for each record: a library keeps it open and mapped for them (`preload/reread.rs`).

use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::preloaded;

/// The library that is preloaded; empty where there is none.
const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/reread.so"));

/// Whether the library can be preloaded into the program `exe`.
#[must_use]
pub fn can_reread(exe: &Path) -> bool {
    !LIBRARY.is_empty() && preloaded::is_loaded_alike(exe)
}

/// Puts the library into `folder` for the tool `exe`; None: the tool reads the file as it does by itself.
pub(super) fn place_library(folder: &Path, exe: &CStr) -> Option<PathBuf> {
    let path = |text| Path::new(OsStr::from_bytes(text));
    // These bytes separate the names in LD_PRELOAD.
    let is_nameable = !folder.as_os_str().as_bytes().iter().any(|byte| b" :".contains(byte));
    let is_possible = is_nameable && can_reread(path(exe.to_bytes()));
    is_possible.then(|| preloaded::place(folder, "reread.so", LIBRARY).ok().flatten())?
}

/// `environ` with the library, which keeps the file with this suffix.
pub(super) fn environ(environ: &[CString], library: &Path, suffix: &[u8]) -> io::Result<Vec<CString>> {
    preloaded::environ(environ, library.as_os_str().as_bytes(), [b"MILLRACE_REREAD=", suffix].concat())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use super::*;

    /// Tells the test below that it has the library.
    const FOLDER: &str = "MILLRACE_TEST_REREAD_FOLDER";

    /// The bytes of a file, read by streams of the C library, and where its stream was.
    fn read(path: &CStr, then: impl FnOnce()) -> (Vec<u8>, usize) {
        let mut bytes = vec![0; 1 << 16];
        // SAFETY: texts with a NUL, a buffer of this size, and a stream that was opened.
        unsafe {
            let stream = libc::fopen(path.as_ptr(), c"rb".as_ptr());
            assert!(!stream.is_null());
            let n = libc::fread(bytes.as_mut_ptr().cast(), 1, bytes.len(), stream);
            assert_ne!(libc::feof(stream), 0);
            then();
            assert_eq!(libc::fclose(stream), 0);
            bytes.truncate(n);
            (bytes, stream as usize)
        }
    }

    #[test]
    fn tools_read_again_what_is_in_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let exe = std::env::current_exe().unwrap();
        let library = place_library(folder.path(), &CString::new(exe.as_os_str().as_bytes()).unwrap()).unwrap();
        for limit in ["unlimited", "4000000"] {
            let done = Command::new("/bin/sh")
                .args(["-c", &format!("ulimit -v {limit} && exec \"$@\""), "sh"])
                .args(["env", &format!("LD_PRELOAD={}", library.display())])
                .arg(&exe)
                .args(["--exact", "--ignored", "slot::reread::tests::read_as_a_tool"])
                .env("MILLRACE_REREAD", ".kept")
                .env(FOLDER, folder.path())
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&done.stdout).into_owned();
            assert!(done.status.success() && said.contains("1 passed"), "{said}");
        }
    }

    #[test]
    #[ignore = "runs with the library, from the test above"]
    fn read_as_a_tool() {
        let folder = std::env::var_os(FOLDER).unwrap();
        let folder = Path::new(&folder);
        let path_of = |name: &str| CString::new(folder.join(name).as_os_str().as_bytes()).unwrap();
        let (kept, other) = (path_of("a.kept"), path_of("b.kept"));
        let write = |name: &str, text: &[u8]| fs::write(folder.join(name), text).unwrap();
        let first = b"first".repeat(9000);
        write("a.kept", &first);
        write("b.kept", b"other");
        let (bytes, stream) = read(&kept, || ());
        assert_eq!(bytes, first);
        let maps = || fs::read_to_string("/proc/self/smaps").unwrap().contains("a.kept");
        let is_limited = is_limited();
        // While it is open, the same file and another one are opened as ever.
        let nested = || {
            assert_eq!(read(&kept, || ()).0, first);
            assert_eq!(read(&other, || ()).0, b"other");
            assert_eq!(maps(), !is_limited);
        };
        assert_eq!(read(&kept, nested), (first, stream), "the stream is kept");
        write("a.kept", b"second, and shorter");
        assert_eq!(read(&kept, || ()).0, b"second, and shorter");
        fs::rename(folder.join("b.kept"), folder.join("a.kept")).unwrap();
        assert_eq!(read(&kept, || ()).0, b"other");
        // SAFETY: texts with a NUL.
        assert!(unsafe { libc::fopen(other.as_ptr(), c"rb".as_ptr()) }.is_null(), "it is not there");
        assert_eq!(std::io::Error::last_os_error().kind(), io::ErrorKind::NotFound);
        assert_eq!(read(&kept, || ()).0, b"other");
    }

    fn is_limited() -> bool {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: fills two numbers.
        unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) };
        limit.rlim_cur != libc::RLIM_INFINITY
    }

    #[test]
    fn only_programs_that_are_loaded_alike_get_the_library() {
        let folder = tempfile::tempdir().unwrap();
        assert!(place_library(folder.path(), c"/bin/sh").is_some());
        let script = folder.path().join("tool");
        fs::write(&script, "#!/bin/sh\n").unwrap();
        assert_eq!(place_library(folder.path(), &CString::new(script.as_os_str().as_bytes()).unwrap()), None);
        assert_eq!(place_library(folder.path(), c"/nowhere/tool"), None);
        let unnameable = folder.path().join("a b");
        fs::create_dir(&unnameable).unwrap();
        assert_eq!(place_library(&unnameable, c"/bin/sh"), None);
    }
}
