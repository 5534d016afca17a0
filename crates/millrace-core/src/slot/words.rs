//! What a tool says on standard error: its beginning and its end are kept, however much it is.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

/// Bytes kept of the beginning, and of the end.
const KEPT: u64 = 64 << 10;

/// Bytes in memory from which the middle is given back.
const MOST_HELD: u64 = 1 << 20;

/// Gives back the memory of the middle, while the tool writes on: the file is as long as before, and never blocks.
pub(super) fn cut(file: &File) -> io::Result<()> {
    let about = file.metadata()?;
    if about.blocks() * 512 <= MOST_HELD || about.len() <= 2 * KEPT {
        return Ok(());
    }
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    let length = about.len() - 2 * KEPT;
    // SAFETY: plain system call on a live descriptor; both numbers are below the length of a file.
    if unsafe { libc::fallocate(file.as_raw_fd(), mode, KEPT as libc::off_t, length as libc::off_t) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// The beginning and the end of what is in `file`, and between them how much is left out.
pub(super) fn read(file: &mut File) -> io::Result<Vec<u8>> {
    let length = file.metadata()?.len();
    let mut bytes = Vec::new();
    if length == 0 {
        return Ok(bytes);
    }
    file.seek(SeekFrom::Start(0))?;
    if length <= 2 * KEPT {
        file.read_to_end(&mut bytes)?;
        return Ok(bytes);
    }
    file.take(KEPT).read_to_end(&mut bytes)?;
    bytes.extend(format!("\n[{} bytes left out]\n", length - 2 * KEPT).bytes());
    file.seek(SeekFrom::Start(length - KEPT))?;
    file.take(KEPT).read_to_end(&mut bytes)?;
    Ok(bytes)
}
