//! Preloaded into tools whose calls are counted: what they do with each file, in a table that they share with a slot.
//!
//! The table is a file that all processes of a task have mapped, and counters in it are only added to: nothing is lost
//! when a process is killed. What a tool calls is called as it is, once; before and after, the clock is read.
//!
//! The streams of the C library (stdio) call the kernel from within. Their table of functions (`_IO_file_jumps`) is
//! changed at the start, if it has the four functions that are expected there; if not, the table of calls says so.

#![no_std]

mod machine;
mod next;
mod table;

use core::ffi::{CStr, c_char, c_int, c_long, c_void};
use core::ptr::null_mut;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};

use machine::of_machine;
use next::next;
use table::{Calls, Entry, N_PLACES, N_SIZES, PATH_BYTES, Table};

#[link(name = "dl")]
#[link(name = "c")]
unsafe extern "C" {
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    fn getenv(name: *const c_char) -> *mut c_char;
    fn clock_gettime(clock: c_int, time: *mut [i64; 2]) -> c_int;
    fn sysconf(name: c_int) -> c_long;
    fn fileno(file: Any) -> c_int;
    fn syscall(number: c_long, ...) -> c_long;
    fn __errno_location() -> *mut c_int;
}

type Text = *const c_char;
type Any = *mut c_void;

// System calls past the library, whose functions are ours here.
const OPENAT: c_long = of_machine(257, 56);
const CLOSE: c_long = of_machine(3, 57);
const LSEEK: c_long = of_machine(8, 62);
const MMAP: c_long = of_machine(9, 222);
const MPROTECT: c_long = of_machine(10, 226);
const READLINKAT: c_long = of_machine(267, 78);
const AT_FDCWD: c_int = -100;
const O_RDWR_CLOEXEC: c_int = 2 | 0o2_000_000;
const PROT_READ: c_int = 1;
const PROT_WRITE: c_int = 2;
const MAP_SHARED: c_int = 1;
const CLOCK_MONOTONIC: c_int = 1;
const SC_PAGESIZE: c_int = 30;
const SEEK_CUR: c_int = 1;

/// Descriptors whose files are remembered; of others nothing is counted.
const N_OPEN: usize = 4096;

/// Not a file of which calls are counted.
const NO_FILE: u32 = u32::MAX;

/// No place is known.
const NOWHERE: u64 = u64::MAX;

/// What is known of an open descriptor.
struct Open {
    /// The number of its file, from 1; 0: it is to be found out.
    file: AtomicU32,
    /// Where the next call reads or writes that does not say where.
    position: AtomicU64,
    /// Where the last call ended.
    end: AtomicU64,
}

static OPEN: [Open; N_OPEN] = [const {
    Open { file: AtomicU32::new(0), position: AtomicU64::new(NOWHERE), end: AtomicU64::new(NOWHERE) }
}; N_OPEN];

static TABLE: AtomicPtr<Table> = AtomicPtr::new(null_mut());

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

extern "C" fn begin() {
    // SAFETY: before `main`, in the only thread.
    unsafe {
        let path = getenv(c"MILLRACE_CALLS".as_ptr());
        if path.is_null() {
            return;
        }
        let file = syscall(OPENAT, AT_FDCWD, path, O_RDWR_CLOEXEC, 0);
        if file < 0 {
            return;
        }
        let at = syscall(MMAP, 0_usize, size_of::<Table>(), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0_usize);
        syscall(CLOSE, file);
        if at < 0 && at > -4096 {
            return;
        }
        let table = at as usize as *mut Table;
        (*table).n_processes.fetch_add(1, Relaxed);
        if !watch_streams() {
            (*table).n_streamless.fetch_add(1, Relaxed);
        }
        TABLE.store(table, Release);
    }
}

/// Nanoseconds of a clock that only goes forward.
fn now() -> u64 {
    let mut time = [0; 2];
    // SAFETY: fills two numbers.
    unsafe { clock_gettime(CLOCK_MONOTONIC, &mut time) };
    (time[0] * 1_000_000_000 + time[1]).unsigned_abs()
}

/// The open descriptor of this number.
fn open_of(fd: c_int) -> Option<&'static Open> {
    OPEN.get(usize::try_from(fd).ok()?)
}

/// Called when a number may be another file's from now on.
fn forget(fd: c_int) {
    if let Some(open) = open_of(fd) {
        open.file.store(0, Relaxed);
    }
}

/// The descriptor and the entry of its file; None: nothing is counted.
unsafe fn file_of(fd: c_int) -> Option<(&'static Open, &'static Entry)> {
    // SAFETY: the table stays mapped.
    unsafe {
        let table = TABLE.load(Acquire).as_ref()?;
        let open = open_of(fd)?;
        let mut number = open.file.load(Relaxed);
        if number == 0 {
            let errno = *__errno_location();
            number = find_file(table, fd).unwrap_or(NO_FILE);
            let at = syscall(LSEEK, fd, 0_usize, SEEK_CUR);
            *__errno_location() = errno;
            open.position.store(if at < 0 { NOWHERE } else { at as u64 }, Relaxed);
            open.end.store(NOWHERE, Relaxed);
            open.file.store(number, Relaxed);
        }
        Some((open, table.files.get(number as usize - 1)?))
    }
}

/// The number of the file that is open as `fd`, which gets one if it has none yet.
unsafe fn find_file(table: &Table, fd: c_int) -> Option<u32> {
    let (mut link, mut digits, mut rest) = (*b"/proc/self/fd/\0\0\0\0\0\0\0\0", 1, fd.unsigned_abs());
    while rest > 9 {
        (digits, rest) = (digits + 1, rest / 10);
    }
    rest = fd.unsigned_abs();
    for place in (14..14 + digits).rev() {
        *link.get_mut(place)? = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    let mut text = [0_u8; 4096];
    // SAFETY: fills the text.
    let n = unsafe { syscall(READLINKAT, AT_FDCWD, link.as_ptr(), text.as_mut_ptr(), text.len()) };
    let path = text.get(..usize::try_from(n).ok()?)?;
    let path: &[u8] = match (fd, path) {
        (1, path) if path.ends_with(b" (deleted)") => b"standard output",
        (2, path) if path.ends_with(b" (deleted)") => b"standard error",
        (_, [b'/', ..]) => path,
        (_, path) if path.starts_with(b"pipe:") => b"pipes",
        (_, path) if path.starts_with(b"socket:") => b"sockets",
        _ => return None,
    };
    number_of(table, &path[path.len().saturating_sub(PATH_BYTES)..])
}

/// The number of the file with this path.
fn number_of(table: &Table, path: &[u8]) -> Option<u32> {
    let hash = path.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    for step in 0..N_PLACES {
        let place = table.index.get((hash as usize + step) % N_PLACES)?;
        let mut number = place.load(Acquire);
        if number == 0 {
            match place.compare_exchange(0, NO_FILE, AcqRel, Acquire) {
                Ok(_) => return add_file(table, place, path),
                Err(other) => number = other,
            }
        }
        // Whoever takes it is about to be ready, unless it was killed just there.
        let mut patience = 100_000;
        while number == NO_FILE && patience > 0 {
            core::hint::spin_loop();
            (number, patience) = (place.load(Acquire), patience - 1);
        }
        let Some(entry) = table.files.get(number as usize - 1) else { continue };
        // SAFETY: written before its number was there, and not since.
        let known = unsafe { &*entry.path.get() };
        if known.get(..entry.length.load(Relaxed) as usize)? == path {
            return Some(number);
        }
    }
    None
}

fn add_file(table: &Table, place: &AtomicU32, path: &[u8]) -> Option<u32> {
    let number = table.n_files.fetch_add(1, Relaxed) as usize;
    let Some(entry) = table.files.get(number) else {
        table.n_lost.fetch_add(1, Relaxed);
        place.store(0, Release);
        return None;
    };
    // SAFETY: nobody else has this number.
    unsafe { (*entry.path.get()).get_mut(..path.len())?.copy_from_slice(path) };
    entry.length.store(path.len() as u64, Relaxed);
    place.store(number as u32 + 1, Release);
    Some(number as u32 + 1)
}

/// Makes a call that reads or writes, and counts it. `at`: where, if the call says so.
unsafe fn count(fd: c_int, calls: fn(&Entry) -> &Calls, at: Option<i64>, call: impl FnOnce() -> isize) -> isize {
    // SAFETY: see `file_of`.
    let Some((open, entry)) = (unsafe { file_of(fd) }) else { return call() };
    let begun = now();
    let n = call();
    let (calls, took) = (calls(entry), now() - begun);
    calls.ns.fetch_add(took, Relaxed);
    calls.n.fetch_add(1, Relaxed);
    let Ok(bytes) = u64::try_from(n) else { return n };
    calls.bytes.fetch_add(bytes, Relaxed);
    let class = (0..N_SIZES - 1).find(|class| bytes <= 64 << (4 * class)).unwrap_or(N_SIZES - 1);
    if let Some(size) = calls.sizes.get(class) {
        size.fetch_add(1, Relaxed);
    }
    let from = at.map_or_else(|| open.position.load(Relaxed), i64::unsigned_abs);
    if from == NOWHERE {
        return n;
    }
    let before = open.end.swap(from + bytes, Relaxed);
    if before != NOWHERE && before != from {
        calls.jumps.fetch_add(1, Relaxed);
    }
    if at.is_none() {
        open.position.store(from + bytes, Relaxed);
    }
    n
}

fn reads(entry: &Entry) -> &Calls {
    &entry.read
}

fn writes(entry: &Entry) -> &Calls {
    &entry.written
}

/// Makes a call that opens a file, and counts it.
unsafe fn count_open<T: Copy>(call: impl FnOnce() -> T, number: impl FnOnce(T) -> c_int) -> T {
    let begun = now();
    let opened = call();
    let took = now() - begun;
    let fd = number(opened);
    forget(fd);
    // SAFETY: see `file_of`.
    if let Some((_, entry)) = unsafe { file_of(fd) } {
        entry.opens.fetch_add(1, Relaxed);
        entry.open_ns.fetch_add(took, Relaxed);
    }
    opened
}

unsafe fn number_of_stream(file: Any) -> c_int {
    // SAFETY: a stream of the library, or none.
    if file.is_null() { -1 } else { unsafe { fileno(file) } }
}

/// Makes a call that moves the place of the next one, and counts it.
unsafe fn count_seek(fd: c_int, call: impl FnOnce() -> i64) -> i64 {
    // SAFETY: see `file_of`.
    let known = unsafe { file_of(fd) };
    let at = call();
    if let (Some((open, entry)), Ok(at)) = (known, u64::try_from(at)) {
        if open.position.swap(at, Relaxed) != at {
            entry.seeks.fetch_add(1, Relaxed);
        }
    }
    at
}

unsafe fn count_map(fd: c_int, length: usize, call: impl FnOnce() -> Any) -> Any {
    let mapped = call();
    if fd >= 0 && mapped as isize != -1 {
        // SAFETY: see `file_of`.
        if let Some((_, entry)) = unsafe { file_of(fd) } {
            entry.mapped_bytes.fetch_add(length as u64, Relaxed);
        }
    }
    mapped
}

/// Functions that stand before those of the library; `next` in what they do is the library's.
macro_rules! hooked {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty, |$next:ident| $body:expr;)*) => { $(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            static NEXT: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
            // SAFETY: the arguments are passed on as they came, to the function for which they are.
            unsafe {
                let name = CStr::from_bytes_with_nul_unchecked(concat!(stringify!($name), "\0").as_bytes());
                let function: unsafe extern "C" fn($($type),*) -> $result = core::mem::transmute(next(&NEXT, name));
                let $next = || function($($argument),*);
                $body
            }
        }
    )* };
}

hooked! {
    // A variable argument is passed like any other on these architectures.
    open(path: Text, flags: c_int, mode: u32) -> c_int, |call| count_open(call, |fd| fd);
    open64(path: Text, flags: c_int, mode: u32) -> c_int, |call| count_open(call, |fd| fd);
    openat(folder: c_int, path: Text, flags: c_int, mode: u32) -> c_int, |call| count_open(call, |fd| fd);
    openat64(folder: c_int, path: Text, flags: c_int, mode: u32) -> c_int, |call| count_open(call, |fd| fd);
    __open_2(path: Text, flags: c_int) -> c_int, |call| count_open(call, |fd| fd);
    __open64_2(path: Text, flags: c_int) -> c_int, |call| count_open(call, |fd| fd);
    __openat_2(folder: c_int, path: Text, flags: c_int) -> c_int, |call| count_open(call, |fd| fd);
    __openat64_2(folder: c_int, path: Text, flags: c_int) -> c_int, |call| count_open(call, |fd| fd);
    creat(path: Text, mode: u32) -> c_int, |call| count_open(call, |fd| fd);
    creat64(path: Text, mode: u32) -> c_int, |call| count_open(call, |fd| fd);
    fopen(path: Text, mode: Text) -> Any, |call| count_open(call, |file| number_of_stream(file));
    fopen64(path: Text, mode: Text) -> Any, |call| count_open(call, |file| number_of_stream(file));
    freopen(path: Text, mode: Text, file: Any) -> Any, |call| count_open(call, |file| number_of_stream(file));
    freopen64(path: Text, mode: Text, file: Any) -> Any, |call| count_open(call, |file| number_of_stream(file));
    close(fd: c_int) -> c_int, |call| { forget(fd); call() };
    dup2(old: c_int, new: c_int) -> c_int, |call| { let done = call(); forget(new); done };
    dup3(old: c_int, new: c_int, flags: c_int) -> c_int, |call| { let done = call(); forget(new); done };
    read(fd: c_int, buffer: Any, n: usize) -> isize, |call| count(fd, reads, None, call);
    __read_chk(fd: c_int, buffer: Any, n: usize, size: usize) -> isize, |call| count(fd, reads, None, call);
    readv(fd: c_int, parts: Any, n: c_int) -> isize, |call| count(fd, reads, None, call);
    pread(fd: c_int, buffer: Any, n: usize, at: i64) -> isize, |call| count(fd, reads, Some(at), call);
    pread64(fd: c_int, buffer: Any, n: usize, at: i64) -> isize, |call| count(fd, reads, Some(at), call);
    __pread_chk(fd: c_int, buffer: Any, n: usize, at: i64, size: usize) -> isize, |call| count(fd, reads, Some(at), call);
    __pread64_chk(fd: c_int, buffer: Any, n: usize, at: i64, size: usize) -> isize, |call| count(fd, reads, Some(at), call);
    preadv(fd: c_int, parts: Any, n: c_int, at: i64) -> isize, |call| count(fd, reads, Some(at), call);
    preadv64(fd: c_int, parts: Any, n: c_int, at: i64) -> isize, |call| count(fd, reads, Some(at), call);
    write(fd: c_int, buffer: Any, n: usize) -> isize, |call| count(fd, writes, None, call);
    writev(fd: c_int, parts: Any, n: c_int) -> isize, |call| count(fd, writes, None, call);
    pwrite(fd: c_int, buffer: Any, n: usize, at: i64) -> isize, |call| count(fd, writes, Some(at), call);
    pwrite64(fd: c_int, buffer: Any, n: usize, at: i64) -> isize, |call| count(fd, writes, Some(at), call);
    pwritev(fd: c_int, parts: Any, n: c_int, at: i64) -> isize, |call| count(fd, writes, Some(at), call);
    pwritev64(fd: c_int, parts: Any, n: c_int, at: i64) -> isize, |call| count(fd, writes, Some(at), call);
    copy_file_range(from: c_int, at: Any, to: c_int, there: Any, n: usize, flags: u32) -> isize,
        |call| count(from, reads, None, || count(to, writes, None, call));
    sendfile(to: c_int, from: c_int, at: Any, n: usize) -> isize,
        |call| count(from, reads, None, || count(to, writes, None, call));
    sendfile64(to: c_int, from: c_int, at: Any, n: usize) -> isize,
        |call| count(from, reads, None, || count(to, writes, None, call));
    lseek(fd: c_int, offset: i64, whence: c_int) -> i64, |call| count_seek(fd, call);
    lseek64(fd: c_int, offset: i64, whence: c_int) -> i64, |call| count_seek(fd, call);
    mmap(at: Any, length: usize, access: c_int, flags: c_int, fd: c_int, offset: i64) -> Any, |call| count_map(fd, length, call);
    mmap64(at: Any, length: usize, access: c_int, flags: c_int, fd: c_int, offset: i64) -> Any, |call| count_map(fd, length, call);
}

type Read = unsafe extern "C" fn(Any, Any, isize) -> isize;
type Seek = unsafe extern "C" fn(Any, i64, c_int) -> i64;
type Close = unsafe extern "C" fn(Any) -> c_int;

/// The functions of streams that call the kernel: name, and place in the table of each kind of stream (`_IO_jump_t`).
const OF_STREAMS: [(&CStr, usize); 4] =
    [(c"_IO_file_read", 14), (c"_IO_file_write", 15), (c"_IO_file_seek", 16), (c"_IO_file_close", 17)];

/// The kinds of streams: of bytes, and of wide characters.
const KINDS: [&CStr; 2] = [c"_IO_file_jumps", c"_IO_wfile_jumps"];

/// The library's own.
static STREAM_FUNCTIONS: [AtomicPtr<c_void>; 4] = [const { AtomicPtr::new(null_mut()) }; 4];

/// Puts our functions in the place of those with which streams call the kernel; false: they are not what is expected.
unsafe fn watch_streams() -> bool {
    // SAFETY: the only thread; each place is looked at before it is changed, and may be written meanwhile.
    unsafe {
        for (place, (name, _)) in STREAM_FUNCTIONS.iter().zip(OF_STREAMS) {
            place.store(dlsym(null_mut(), name.as_ptr()), Relaxed);
        }
        let ours = [stream_read as *mut c_void, stream_write as Any, stream_seek as Any, stream_close as Any];
        let mut is_done = true;
        for kind in KINDS {
            let functions = dlsym(null_mut(), kind.as_ptr()).cast::<Any>();
            let is_known = !functions.is_null()
                && STREAM_FUNCTIONS.iter().zip(OF_STREAMS).all(|(known, (_, at))| {
                    let known = known.load(Relaxed);
                    !known.is_null() && *functions.add(at) == known
                });
            is_done &= is_known && replace(functions, &ours);
        }
        is_done
    }
}

unsafe fn replace(functions: *mut Any, ours: &[Any; 4]) -> bool {
    // SAFETY: see `watch_streams`.
    unsafe {
        let page = (sysconf(SC_PAGESIZE).max(4096)) as usize;
        let begin = functions as usize & !(page - 1);
        let length = functions.add(18) as usize - begin;
        if syscall(MPROTECT, begin, length, PROT_READ | PROT_WRITE) != 0 {
            return false;
        }
        for (function, (_, at)) in ours.iter().zip(OF_STREAMS) {
            *functions.add(at) = *function;
        }
        syscall(MPROTECT, begin, length, PROT_READ);
    }
    true
}

unsafe extern "C" fn stream_read(file: Any, buffer: Any, n: isize) -> isize {
    // SAFETY: called by the library with a stream of its own, as its function would be.
    unsafe {
        let function: Read = core::mem::transmute(STREAM_FUNCTIONS[0].load(Relaxed));
        count(fileno(file), reads, None, || function(file, buffer, n))
    }
}

unsafe extern "C" fn stream_write(file: Any, buffer: Any, n: isize) -> isize {
    // SAFETY: as above.
    unsafe {
        let function: Read = core::mem::transmute(STREAM_FUNCTIONS[1].load(Relaxed));
        count(fileno(file), writes, None, || function(file, buffer, n))
    }
}

unsafe extern "C" fn stream_seek(file: Any, offset: i64, whence: c_int) -> i64 {
    // SAFETY: as above.
    unsafe {
        let function: Seek = core::mem::transmute(STREAM_FUNCTIONS[2].load(Relaxed));
        count_seek(fileno(file), || function(file, offset, whence))
    }
}

unsafe extern "C" fn stream_close(file: Any) -> c_int {
    // SAFETY: as above.
    unsafe {
        let function: Close = core::mem::transmute(STREAM_FUNCTIONS[3].load(Relaxed));
        forget(fileno(file));
        function(file)
    }
}
