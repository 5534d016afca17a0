//! The orders that a warm tool gets: fork, with these files in the place of those.

use std::io::{self, Read};
use std::mem::size_of;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::ptr;

use super::super::mark::Mark;
use super::held::Fresh;

/// Most descriptors of an order; `preload/warm.rs` has room for as many.
pub(super) const MOST: usize = 250;

/// As `preload/warm.rs` reads it.
#[repr(C)]
struct Order {
    mark: u64,
    n: u64,
    /// What each takes the place of, and whether it closes on exec.
    places: [[i32; 2]; MOST],
}

/// Has the tool at the other end forked; the number of the new process.
pub(super) fn fork(link: &mut UnixStream, mark: Mark, files: &[Fresh]) -> io::Result<libc::pid_t> {
    let mut order = Order { mark: mark.number(), n: files.len() as u64, places: [[0; 2]; MOST] };
    for (place, file) in order.places.iter_mut().zip(files) {
        *place = [file.number, i32::from(file.closes)];
    }
    let descriptors: Vec<RawFd> = files.iter().map(|fresh| fresh.file.as_raw_fd()).collect();
    send(link.as_raw_fd(), &order, &descriptors)?;
    match number(link)? {
        pid if pid > 0 => Ok(pid),
        _ => Err(io::Error::other("the tool cannot be forked")),
    }
}

/// A number from the tool.
pub(super) fn number(link: &mut UnixStream) -> io::Result<i32> {
    let mut bytes = [0; size_of::<i32>()];
    link.read_exact(&mut bytes)?;
    Ok(i32::from_ne_bytes(bytes))
}

fn send(link: RawFd, order: &Order, descriptors: &[RawFd]) -> io::Result<()> {
    let length = size_of_val(descriptors);
    // SAFETY: a message of plain data that lives until the call returns; the room for descriptors is that of so many.
    let sent = unsafe {
        let room = libc::CMSG_SPACE(length as u32) as usize;
        let mut control = vec![0_u64; room.div_ceil(size_of::<u64>())];
        let mut part = libc::iovec { iov_base: ptr::from_ref(order).cast_mut().cast(), iov_len: size_of::<Order>() };
        let mut message: libc::msghdr = std::mem::zeroed();
        (message.msg_iov, message.msg_iovlen) = (&mut part, 1);
        (message.msg_control, message.msg_controllen) = (control.as_mut_ptr().cast(), room as _);
        let head = libc::CMSG_FIRSTHDR(&message);
        (*head).cmsg_len = libc::CMSG_LEN(length as u32) as _;
        ((*head).cmsg_level, (*head).cmsg_type) = (libc::SOL_SOCKET, libc::SCM_RIGHTS);
        ptr::copy_nonoverlapping(descriptors.as_ptr(), libc::CMSG_DATA(head).cast(), descriptors.len());
        libc::sendmsg(link, &message, libc::MSG_NOSIGNAL)
    };
    if sent == size_of::<Order>() as isize { Ok(()) } else { Err(io::Error::last_os_error()) }
}
