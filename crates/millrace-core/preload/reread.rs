//! Preloaded into tools that open a file again for each record and read it from its start: the file stays open.
//!
//! The stream is opened once, in the C library's own mode `m`, which maps the file instead of reading it by 4 KiB a
//! call. `fclose` keeps it, and the next `fopen` of the same file rewinds it. So the tool reads the same bytes by the
//! same functions, without the system calls. A file that has changed since is opened as ever, and so is one that is
//! open already.

#![no_std]

mod machine;
mod next;

use core::ffi::{CStr, c_char, c_int, c_long, c_void};
use core::mem::transmute;
use core::ptr::null_mut;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};

use machine::of_machine;
use next::next;

#[link(name = "dl")]
#[link(name = "c")]
unsafe extern "C" {
    fn getenv(name: *const c_char) -> *mut c_char;
    fn fileno(stream: Stream) -> c_int;
    fn rewind(stream: Stream);
    fn syscall(number: c_long, ...) -> c_long;
}

type Text = *const c_char;
type Stream = *mut c_void;
type Open = unsafe extern "C" fn(Text, Text) -> Stream;
type Close = unsafe extern "C" fn(Stream) -> c_int;

const STATX: c_long = of_machine(332, 291);
const PRLIMIT: c_long = of_machine(302, 261);
const AT_FDCWD: c_int = -100;
const AT_EMPTY_PATH: c_int = 0x1000;
/// Shared storage is asked, as it is when a file is opened.
const AT_STATX_FORCE_SYNC: c_int = 0x2000;
const STATX_BASIC_STATS: c_int = 0x7ff;
const S_IFMT: u64 = 0o170_000;
const S_IFREG: u64 = 0o100_000;
const RLIMIT_AS: c_int = 9;

/// Words of `struct statx` by which a file is known: number, size, times of its last changes, device.
const IDENTITY: [usize; 7] = [4, 5, 12, 13, 14, 15, 17];

/// States of the one stream that is kept: there is none, a call changes it, the tool has it, the tool has closed it.
const NONE: u32 = 0;
const CHANGING: u32 = 1;
const IN_USE: u32 = 2;
const CLOSED: u32 = 3;

static STATE: AtomicU32 = AtomicU32::new(NONE);
static STREAM: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
static KNOWN: [AtomicU64; IDENTITY.len()] = [const { AtomicU64::new(0) }; IDENTITY.len()];

static FOPEN: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
static FOPEN64: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
static FCLOSE: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// As the C library's.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fopen(path: Text, mode: Text) -> Stream {
    // SAFETY: the caller's texts, and the function that it meant.
    unsafe { open(path, mode, transmute::<*mut c_void, Open>(next(&FOPEN, c"fopen"))) }
}

/// As the C library's.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fopen64(path: Text, mode: Text) -> Stream {
    // SAFETY: as above.
    unsafe { open(path, mode, transmute::<*mut c_void, Open>(next(&FOPEN64, c"fopen64"))) }
}

/// As the C library's.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fclose(stream: Stream) -> c_int {
    let is_ours = !stream.is_null() && stream == STREAM.load(Acquire);
    if is_ours && STATE.compare_exchange(IN_USE, CLOSED, AcqRel, Relaxed).is_ok() {
        return 0;
    }
    // SAFETY: the caller's stream.
    unsafe { close(stream) }
}

unsafe fn close(stream: Stream) -> c_int {
    // SAFETY: the function of this name, with the stream of whoever closes it.
    unsafe { transmute::<*mut c_void, Close>(next(&FCLOSE, c"fclose"))(stream) }
}

/// Opens `path`, or rewinds its stream if that is kept; `real` is what opens every other file.
unsafe fn open(path: Text, mode: Text, real: Open) -> Stream {
    // SAFETY: the caller's texts; whoever changes the state has the kept stream alone.
    unsafe {
        if !is_reread(path, mode) {
            return real(path, mode);
        }
        if STATE.compare_exchange(CLOSED, CHANGING, AcqRel, Relaxed).is_ok() {
            let stream = STREAM.load(Acquire);
            if identify(AT_FDCWD, path, AT_STATX_FORCE_SYNC).is_some_and(|found| is_known(&found)) {
                rewind(stream);
                STATE.store(IN_USE, Release);
                return stream;
            }
            STREAM.store(null_mut(), Release);
            close(stream);
        } else if STATE.compare_exchange(NONE, CHANGING, AcqRel, Relaxed).is_err() {
            return real(path, mode);
        }
        // A mapping would take from what a limit leaves for the tool's own memory.
        let stream = real(path, if is_memory_limited() { mode } else { c"rbm".as_ptr() });
        let found = if stream.is_null() { None } else { identify(fileno(stream), c"".as_ptr(), AT_EMPTY_PATH) };
        let Some(found) = found else {
            STATE.store(NONE, Release);
            return stream;
        };
        for (known, word) in KNOWN.iter().zip(found) {
            known.store(word, Relaxed);
        }
        STREAM.store(stream, Release);
        STATE.store(IN_USE, Release);
        stream
    }
}

/// Whether it is opened for reading, and its name ends with the text in `MILLRACE_REREAD`.
unsafe fn is_reread(path: Text, mode: Text) -> bool {
    // SAFETY: texts that end with a NUL.
    unsafe {
        let suffix = getenv(c"MILLRACE_REREAD".as_ptr());
        if suffix.is_null() || path.is_null() || mode.is_null() {
            return false;
        }
        let is_read = matches!(CStr::from_ptr(mode).to_bytes(), b"r" | b"rb");
        is_read && CStr::from_ptr(path).to_bytes().ends_with(CStr::from_ptr(suffix).to_bytes())
    }
}

/// What a regular file is known by; None: it is none, or this is not known.
unsafe fn identify(folder: c_int, path: Text, flags: c_int) -> Option<[u64; IDENTITY.len()]> {
    let mut status = [0_u64; 32];
    // SAFETY: fills 256 bytes.
    let done = unsafe { syscall(STATX, folder, path, flags, STATX_BASIC_STATS, &raw mut status) };
    (done == 0 && (status[3] >> 32) & S_IFMT == S_IFREG).then(|| IDENTITY.map(|at| status[at]))
}

fn is_known(found: &[u64; IDENTITY.len()]) -> bool {
    KNOWN.iter().zip(found).all(|(known, word)| known.load(Relaxed) == *word)
}

/// Whether the process may map only so much.
fn is_memory_limited() -> bool {
    let mut limit = [0_u64; 2];
    // SAFETY: fills two numbers.
    let done = unsafe { syscall(PRLIMIT, 0, RLIMIT_AS, 0_usize, &raw mut limit) };
    done != 0 || limit[0] != u64::MAX
}
