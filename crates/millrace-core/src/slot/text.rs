//! Puts the user's paths back where a tool printed the private ones of its slot.

use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use memchr::memmem;

/// Pairs of (private text, the user's text), longest private text first.
pub(super) type Substitutions = [(Vec<u8>, Vec<u8>)];

const WINDOW: usize = 256 << 10;

/// `text` with the directory `root` of a slot in every place of `mark`.
pub(super) fn in_slot(text: &[u8], mark: &[u8], root: &Path) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = memmem::find(rest, mark) {
        bytes.extend(&rest[..at]);
        bytes.extend(root.as_os_str().as_bytes());
        rest = &rest[at + mark.len()..];
    }
    bytes.extend(rest);
    bytes
}

/// Returns `file` if none of its bytes mention `mark`, else a new file at `scratch` with the user's texts.
///
/// `mark` is the part that all private texts share; it is random, so a clash with data does not happen.
///
/// # Errors
/// If a private path stands there in a form that cannot be put back: better no block than a wrong one.
pub(super) fn restore(mut file: File, mark: &[u8], pairs: &Substitutions, scratch: &Path) -> io::Result<File> {
    if !mentions(&mut file, mark)? {
        return Ok(file);
    }
    let mut text = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.read_to_end(&mut text)?;
    let fresh = fs_err::OpenOptions::new().read(true).write(true).create(true).truncate(true).open(scratch)?;
    let fresh = fresh.into_file();
    let mut out = BufWriter::with_capacity(WINDOW, fresh);
    let finder = memmem::Finder::new(mark);
    let mut done = 0;
    while let Some(hit) = finder.find(&text[done..]).map(|hit| done + hit) {
        let found = pairs.iter().find_map(|(private, user)| {
            // The mark stands at the same place in every private text.
            let start = hit.checked_sub(memmem::find(private, mark)?)?;
            (start >= done && text[start..].starts_with(private)).then_some((start, private.len(), user))
        });
        let Some((start, length, user)) = found else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the tool printed its private directory in a form that cannot be replaced",
            ));
        };
        out.write_all(&text[done..start])?;
        out.write_all(user)?;
        done = start + length;
    }
    out.write_all(&text[done..])?;
    out.into_inner().map_err(io::IntoInnerError::into_error)
}

fn mentions(file: &mut File, mark: &[u8]) -> io::Result<bool> {
    let finder = memmem::Finder::new(mark);
    let length = file.metadata()?.len();
    let mut window = vec![0; WINDOW.min(usize::try_from(length).unwrap_or(WINDOW)).max(mark.len())];
    let mut kept = 0;
    file.seek(SeekFrom::Start(0))?;
    loop {
        let n = file.read(&mut window[kept..])?;
        if n == 0 {
            return Ok(false);
        }
        let filled = kept + n;
        if finder.find(&window[..filled]).is_some() {
            return Ok(true);
        }
        // Keep what could be the beginning of a mark that the next read completes.
        kept = filled.min(mark.len() - 1);
        window.copy_within(filled - kept..filled, 0);
    }
}
