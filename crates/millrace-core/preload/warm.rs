//! Preloaded into a tool that is to stay warm: at its first touch of the input it stops, and forks for each task.
//!
//! The input is not there before: whatever touches it in a way that is not watched here fails, and the tool is then
//! started for each task as ever. What is open in the tool, and whether it may be forked at all, is looked at from
//! outside (`slot/warm/`), which also makes the files that a fork gets in the place of the tool's own.
//!
//! A forked process is a child of Millrace, not of the tool that it was forked from (`CLONE_PARENT`): it is waited for,
//! limited and killed like every tool.

#![no_std]

mod next;

use core::ffi::{CStr, c_char, c_int, c_long, c_void};
use core::mem::{size_of, zeroed};
use core::ptr::{null, null_mut};
use core::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

use next::next;

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: ends the process; a signal is never taken for a good end.
    unsafe { give_up() }
}

#[link(name = "dl")]
#[link(name = "c")]
unsafe extern "C" {
    fn getenv(name: *const c_char) -> *mut c_char;
    fn setenv(name: *const c_char, value: *const c_char, overwrite: c_int) -> c_int;
    fn unsetenv(name: *const c_char) -> c_int;
    fn getpid() -> c_int;
    fn getppid() -> c_int;
    fn setpgid(pid: c_int, group: c_int) -> c_int;
    fn kill(pid: c_int, signal: c_int) -> c_int;
    fn prctl(option: c_int, ...) -> c_int;
    fn prlimit64(pid: c_int, resource: c_int, new: *const [u64; 2], old: *mut [u64; 2]) -> c_int;
    fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int;
    fn connect(socket: c_int, address: *const c_void, length: u32) -> c_int;
    fn send(socket: c_int, bytes: *const c_void, n: usize, flags: c_int) -> isize;
    fn recvmsg(socket: c_int, message: *mut Message, flags: c_int) -> isize;
    fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int;
    fn close(fd: c_int) -> c_int;
    fn syscall(number: c_long, ...) -> c_long;
    fn __errno_location() -> *mut c_int;
    fn _exit(status: c_int) -> !;
}

/// What every kernel for these architectures has.
const EINTR: c_int = 4;
const SIGKILL: c_int = 9;
const SIGCHLD: c_long = 17;
const CLONE: c_long = if cfg!(target_arch = "x86_64") { 56 } else { 220 };
const CLONE_PARENT: c_long = 0x8000;
const CLONE_CHILD_SETTID: c_long = 0x0100_0000;
const CLONE_CHILD_CLEARTID: c_long = 0x0020_0000;
const PR_SET_PDEATHSIG: c_int = 1;
const PR_GET_TID_ADDRESS: c_int = 40;
const RLIMIT_LOCKS: c_int = 10;
const AF_UNIX: u16 = 1;
const SOCK_STREAM_CLOEXEC: c_int = 1 | 0o2_000_000;
const MSG_NOSIGNAL: c_int = 0x4000;
const MSG_WAITALL: c_int = 0x100;
const MSG_CMSG_CLOEXEC: c_int = 0x4000_0000;
const O_CLOEXEC: c_int = 0o2_000_000;
const AT_FDCWD: c_int = -100;

/// Most descriptors of a message.
const MOST: usize = 250;

/// As `struct msghdr`.
#[repr(C)]
struct Message {
    name: *mut c_void,
    name_length: u32,
    parts: *mut [usize; 2],
    n_parts: usize,
    control: *mut c_void,
    control_length: usize,
    flags: c_int,
}

/// As `slot::warm::order` sends it, with as many descriptors.
#[repr(C)]
struct Order {
    mark: u64,
    n: u64,
    /// What each takes the place of, and whether it closes on exec.
    places: [[c_int; 2]; MOST],
}

/// `struct cmsghdr` and its descriptors.
#[repr(C)]
struct Control {
    length: usize,
    level: c_int,
    kind: c_int,
    descriptors: [c_int; MOST],
}

/// The process that is to wait; 0: this is none, or no more.
static WATCHED: AtomicI32 = AtomicI32::new(0);

/// The text of `MILLRACE_WARM`: parent, name of the socket, and for each input device and number of its folder, and its
/// name; all with `/` between them.
static TOLD: AtomicPtr<c_char> = AtomicPtr::new(null_mut());

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

extern "C" fn begin() {
    // SAFETY: before `main`, in the only thread.
    unsafe {
        let told = getenv(c"MILLRACE_WARM".as_ptr());
        if told.is_null() {
            return;
        }
        let mut words = Words(told);
        // What the tool starts is none of ours, and is not to know of us.
        if words.number() != u64::from(getppid().unsigned_abs()) {
            hide();
            return;
        }
        TOLD.store(words.0, Ordering::Relaxed);
        WATCHED.store(getpid(), Ordering::Relaxed);
    }
}

/// Makes the environment what it is without us.
unsafe fn hide() {
    // SAFETY: texts of the environment, in the only thread.
    unsafe {
        let ours = getenv(c"LD_PRELOAD".as_ptr());
        let mut rest = if ours.is_null() { null() } else { ours.cast_const() };
        while !rest.is_null() && *rest != 0 && *rest != b':' as c_char {
            rest = rest.add(1);
        }
        if rest.is_null() || *rest == 0 {
            unsetenv(c"LD_PRELOAD".as_ptr());
        } else {
            setenv(c"LD_PRELOAD".as_ptr(), rest.add(1), 1);
        }
        unsetenv(c"MILLRACE_WARM".as_ptr());
    }
}

/// Words of a text with `/` between them.
struct Words(*mut c_char);

impl Words {
    /// The next one; empty at the end.
    unsafe fn next(&mut self) -> &'static [u8] {
        // SAFETY: a text that ends with a NUL, and stays: it is part of what the process was started with.
        unsafe {
            let begin = self.0;
            let mut n = 0;
            while *begin.add(n) != 0 && *begin.add(n) != b'/' as c_char {
                n += 1;
            }
            self.0 = begin.add(n + usize::from(*begin.add(n) != 0));
            core::slice::from_raw_parts(begin.cast(), n)
        }
    }

    unsafe fn number(&mut self) -> u64 {
        // SAFETY: as above.
        let digits = unsafe { self.next() };
        digits.iter().fold(0, |number, digit| number * 10 + u64::from(digit.wrapping_sub(b'0')))
    }
}

/// Called before anything is done with a file: returns in a process that may go on.
unsafe fn touch(folder: c_int, path: *const c_char) {
    // SAFETY: `path` is what the tool gives to a function of the library that takes a path.
    unsafe {
        let watched = WATCHED.load(Ordering::Relaxed);
        if watched == 0 || path.is_null() || watched != getpid() {
            return;
        }
        let errno = *__errno_location();
        if is_input(folder, CStr::from_ptr(path).to_bytes()) {
            WATCHED.store(0, Ordering::Relaxed);
            serve();
        }
        *__errno_location() = errno;
    }
}

/// Whether a path is that of an input: its name in its folder.
unsafe fn is_input(folder: c_int, path: &[u8]) -> bool {
    let at = path.iter().rposition(|byte| *byte == b'/');
    let name = at.map_or(path, |at| &path[at + 1..]);
    // SAFETY: see `touch`.
    unsafe {
        let mut words = Words(TOLD.load(Ordering::Relaxed));
        words.next(); // the socket
        let mut seen = None;
        while *words.0 != 0 {
            let (wanted, input) = ([words.number(), words.number()], words.next());
            if input == name && *seen.get_or_insert_with(|| folder_of(folder, path, at)) == Some(wanted) {
                return true;
            }
        }
        false
    }
}

/// Device and number of the folder of a path, whose last `/` is there.
unsafe fn folder_of(folder: c_int, path: &[u8], at: Option<usize>) -> Option<[u64; 2]> {
    let mut text = [0_u8; 4096];
    let n = match at {
        None => 1,
        Some(at) => at + 1,
    };
    text.get_mut(..n)?.copy_from_slice(if at.is_none() { b"." } else { &path[..n] });
    text.get(n)?;
    // SAFETY: `struct stat` begins with these two, and is shorter; the text ends with a NUL.
    unsafe {
        let mut about = [0_u64; 64];
        let found = real_stat(folder, text.as_ptr().cast(), about.as_mut_ptr().cast());
        (found == 0).then_some([about[0], about[1]])
    }
}

/// `fstatat`, past the library: older ones have it by another name.
unsafe fn real_stat(folder: c_int, path: *const c_char, about: *mut c_void) -> c_int {
    const NEWFSTATAT: c_long = if cfg!(target_arch = "x86_64") { 262 } else { 79 };
    // SAFETY: as the system call wants it.
    unsafe { syscall(NEWFSTATAT, folder, path, about, 0) as c_int }
}

/// Tells Millrace that the tool is warm, and forks as often as it wants. Returns in a forked process; or in this one, if
/// it is not to be forked.
unsafe fn serve() {
    // SAFETY: system calls on values of our own.
    unsafe {
        let link = socket(c_int::from(AF_UNIX), SOCK_STREAM_CLOEXEC, 0);
        if link < 0 || !reach(link) || send(link, (&raw const link).cast(), size_of::<c_int>(), MSG_NOSIGNAL) < 0 {
            close(link);
            return;
        }
        loop {
            let (mut order, mut control): (Order, Control) = (zeroed(), zeroed());
            let mut part = [(&raw mut order) as usize, size_of::<Order>()];
            let mut message: Message = zeroed();
            (message.parts, message.n_parts) = (&mut part, 1);
            (message.control, message.control_length) = ((&raw mut control).cast(), size_of::<Control>());
            let n = recvmsg(link, &mut message, MSG_WAITALL | MSG_CMSG_CLOEXEC);
            if n < 0 && *__errno_location() == EINTR {
                continue;
            }
            if n != size_of::<Order>() as isize || order.n as usize > MOST {
                _exit(0); // the slot has no more use for it
            }
            let parent = getppid();
            let child = fork_beside();
            if child == 0 {
                close(link);
                become_task(&order, &control, parent);
                return;
            }
            for fresh in control.descriptors.iter().take(order.n as usize) {
                close(*fresh);
            }
            let told = child as c_int;
            send(link, (&raw const told).cast(), size_of::<c_int>(), MSG_NOSIGNAL);
        }
    }
}

/// Connects to the socket without a place among files of which we were told.
unsafe fn reach(link: c_int) -> bool {
    // SAFETY: `struct sockaddr_un`, whose name begins with a NUL.
    unsafe {
        let name = Words(TOLD.load(Ordering::Relaxed)).next();
        let mut address = [0_u8; 110];
        address[..2].copy_from_slice(&AF_UNIX.to_ne_bytes());
        let Some(place) = address.get_mut(3..3 + name.len()) else { return false };
        place.copy_from_slice(name);
        connect(link, address.as_ptr().cast(), 3 + name.len() as u32) == 0
    }
}

/// Forks a child of this process's parent. 0 in it.
unsafe fn fork_beside() -> c_long {
    // SAFETY: like `fork`, which keeps the number of the thread at this very place (glibc, `arch_fork`).
    unsafe {
        let mut place = 0_usize;
        let mut flags = CLONE_PARENT | SIGCHLD;
        if prctl(PR_GET_TID_ADDRESS, &raw mut place) == 0 && place != 0 {
            flags |= CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID;
        }
        // The fourth is the place on one architecture, the fifth on the other; neither looks at the one that is not.
        syscall(CLONE, flags, 0_usize, 0_usize, place, place)
    }
}

/// Makes the forked process what `slot::spawn` makes of one that it starts.
unsafe fn become_task(order: &Order, control: &Control, parent: c_int) {
    // SAFETY: system calls on values of our own.
    unsafe {
        let is_ready = setpgid(0, 0) == 0 && prctl(PR_SET_PDEATHSIG, SIGKILL as c_long) == 0 && getppid() == parent;
        let mut limit = [0; 2];
        if prlimit64(0, RLIMIT_LOCKS, null(), &mut limit) == 0 {
            limit[0] = order.mark;
            prlimit64(0, RLIMIT_LOCKS, &limit, null_mut());
        }
        let places = order.places.iter().zip(control.descriptors).take(order.n as usize);
        for ([place, closes], fresh) in places {
            if dup3(fresh, *place, if *closes == 0 { 0 } else { O_CLOEXEC }) < 0 {
                give_up();
            }
            close(fresh);
        }
        if !is_ready {
            give_up();
        }
        hide();
    }
}

/// Ends the process in a way that is never taken for a good end.
unsafe fn give_up() -> ! {
    // SAFETY: system calls.
    unsafe {
        kill(getpid(), SIGKILL);
        _exit(127)
    }
}

/// Functions that do something with a path. A variable argument is passed like any other on these architectures.
macro_rules! watched {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty, $folder:expr, $path:ident;)*) => { $(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            static NEXT: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
            // SAFETY: the arguments are passed on as they came, to the function for which they are.
            unsafe {
                touch($folder, $path);
                let name = CStr::from_bytes_with_nul_unchecked(concat!(stringify!($name), "\0").as_bytes());
                let next: unsafe extern "C" fn($($type),*) -> $result = core::mem::transmute(next(&NEXT, name));
                next($($argument),*)
            }
        }
    )* };
}

type Text = *const c_char;
type Any = *mut c_void;

watched! {
    open(path: Text, flags: c_int, mode: u32) -> c_int, AT_FDCWD, path;
    open64(path: Text, flags: c_int, mode: u32) -> c_int, AT_FDCWD, path;
    openat(folder: c_int, path: Text, flags: c_int, mode: u32) -> c_int, folder, path;
    openat64(folder: c_int, path: Text, flags: c_int, mode: u32) -> c_int, folder, path;
    __open_2(path: Text, flags: c_int) -> c_int, AT_FDCWD, path;
    __open64_2(path: Text, flags: c_int) -> c_int, AT_FDCWD, path;
    __openat_2(folder: c_int, path: Text, flags: c_int) -> c_int, folder, path;
    __openat64_2(folder: c_int, path: Text, flags: c_int) -> c_int, folder, path;
    creat(path: Text, mode: u32) -> c_int, AT_FDCWD, path;
    creat64(path: Text, mode: u32) -> c_int, AT_FDCWD, path;
    fopen(path: Text, mode: Text) -> Any, AT_FDCWD, path;
    fopen64(path: Text, mode: Text) -> Any, AT_FDCWD, path;
    freopen(path: Text, mode: Text, file: Any) -> Any, AT_FDCWD, path;
    freopen64(path: Text, mode: Text, file: Any) -> Any, AT_FDCWD, path;
    stat(path: Text, about: Any) -> c_int, AT_FDCWD, path;
    stat64(path: Text, about: Any) -> c_int, AT_FDCWD, path;
    lstat(path: Text, about: Any) -> c_int, AT_FDCWD, path;
    lstat64(path: Text, about: Any) -> c_int, AT_FDCWD, path;
    fstatat(folder: c_int, path: Text, about: Any, flags: c_int) -> c_int, folder, path;
    fstatat64(folder: c_int, path: Text, about: Any, flags: c_int) -> c_int, folder, path;
    statx(folder: c_int, path: Text, flags: c_int, mask: u32, about: Any) -> c_int, folder, path;
    __xstat(version: c_int, path: Text, about: Any) -> c_int, AT_FDCWD, path;
    __xstat64(version: c_int, path: Text, about: Any) -> c_int, AT_FDCWD, path;
    __lxstat(version: c_int, path: Text, about: Any) -> c_int, AT_FDCWD, path;
    __lxstat64(version: c_int, path: Text, about: Any) -> c_int, AT_FDCWD, path;
    __fxstatat(version: c_int, folder: c_int, path: Text, about: Any, flags: c_int) -> c_int, folder, path;
    __fxstatat64(version: c_int, folder: c_int, path: Text, about: Any, flags: c_int) -> c_int, folder, path;
    access(path: Text, mode: c_int) -> c_int, AT_FDCWD, path;
    eaccess(path: Text, mode: c_int) -> c_int, AT_FDCWD, path;
    euidaccess(path: Text, mode: c_int) -> c_int, AT_FDCWD, path;
    faccessat(folder: c_int, path: Text, mode: c_int, flags: c_int) -> c_int, folder, path;
    realpath(path: Text, found: Any) -> Any, AT_FDCWD, path;
    __realpath_chk(path: Text, found: Any, size: usize) -> Any, AT_FDCWD, path;
    canonicalize_file_name(path: Text) -> Any, AT_FDCWD, path;
    readlink(path: Text, found: Any, size: usize) -> isize, AT_FDCWD, path;
    readlinkat(folder: c_int, path: Text, found: Any, size: usize) -> isize, folder, path;
    truncate(path: Text, size: i64) -> c_int, AT_FDCWD, path;
    truncate64(path: Text, size: i64) -> c_int, AT_FDCWD, path;
}
