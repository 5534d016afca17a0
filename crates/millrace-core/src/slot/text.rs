//! Puts the user's paths back where a tool printed the private ones of its slot.

use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use memchr::memmem;

/// Pairs of (private text, the user's text), longest private text first.
pub(super) type Substitutions = [(Vec<u8>, Vec<u8>)];

/// What follows a slot's directory in a path to a file that cannot lie at the user's own path, as
/// `millrace.node.mirror_layout` lays it out. Such a path is put back as a whole, or not at all.
const PRIVATE: &[u8] = b"/_millrace";

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

/// Returns `file` if none of its bytes mention `mark`, else one that `scratch` makes, with the user's texts.
///
/// `mark` is the part that all private texts share; it is random, so a clash with data does not happen.
///
/// # Errors
/// If a private path stands there in a form that cannot be put back: better no block than a wrong one.
pub(super) fn restore(
    mut file: File,
    mark: &[u8],
    pairs: &Substitutions,
    scratch: impl FnOnce() -> io::Result<File>,
) -> io::Result<File> {
    if !mentions(&mut file, mark)? {
        return Ok(file);
    }
    file.seek(SeekFrom::Start(0))?;
    let mut out = BufWriter::with_capacity(WINDOW, scratch()?);
    replace(&mut file, mark, pairs, &mut out, WINDOW)?;
    out.into_inner().map_err(io::IntoInnerError::into_error)
}

/// Copies `from` to `out` with the user's texts in it; holds `window` bytes and what the longest private text needs.
fn replace(
    from: &mut impl Read,
    mark: &[u8],
    pairs: &Substitutions,
    out: &mut impl Write,
    window: usize,
) -> io::Result<()> {
    let finder = memmem::Finder::new(mark);
    // How far a private text may reach on either side of a mark.
    let reach = pairs.iter().map(|(private, _)| private.len()).max().unwrap_or(0).max(mark.len());
    let mut text = Vec::with_capacity(window + 2 * reach);
    let mut at_end = false;
    while !at_end {
        at_end = from.take(window as u64).read_to_end(&mut text)? == 0;
        let mut done = 0;
        loop {
            let hit = finder.find(&text[done..]).map(|hit| done + hit);
            let Some(hit) = hit.filter(|hit| at_end || hit + reach <= text.len()) else {
                // What may belong to a private text that the next bytes complete stays.
                let whole = if at_end { text.len() } else { hit.unwrap_or(text.len()).saturating_sub(reach) };
                let whole = whole.max(done);
                out.write_all(&text[done..whole])?;
                text.drain(..whole);
                break;
            };
            let found = pairs.iter().find_map(|(private, user)| {
                // The mark stands at the same place in every private text.
                let start = hit.checked_sub(memmem::find(private, mark)?)?;
                (start >= done && text[start..].starts_with(private)).then_some((start, private.len(), user))
            });
            // A part of a path to a file that lies elsewhere is no path of the user's.
            let found = found.filter(|(start, length, _)| !text[start + length..].starts_with(PRIVATE));
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
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Words between which marks and private texts lie in all manners, cut anywhere by the window.
    fn words() -> impl Strategy<Value = Vec<&'static str>> {
        prop::collection::vec(
            prop::sample::select(vec![
                "/tmp/M-1/in/q",
                "/tmp/M-1/in",
                "/tmp/M-1",
                "x",
                "/tmp/",
                "M",
                "-",
                "\n",
                "/tmp/M",
            ]),
            0..40,
        )
    }

    proptest! {
        #[test]
        fn windows_do_not_matter(words in words(), window in 1_usize..40) {
            let pairs = [("/tmp/M-1/in/q", "q.fa"), ("/tmp/M-1/in", "in"), ("/tmp/M-1", ".")];
            let text = words.concat();
            // Longest first, as in `pairs`.
            let expected = pairs.iter().fold(text.clone(), |text, (private, user)| text.replace(private, user));
            let pairs: Vec<_> = pairs.iter().map(|(a, b)| (a.as_bytes().to_vec(), b.as_bytes().to_vec())).collect();
            let mut out = Vec::new();
            let done = replace(&mut text.as_bytes(), b"M-", &pairs, &mut out, window);
            if expected.contains("M-") {
                prop_assert!(done.is_err(), "a mark that stands in no private text");
            } else {
                done.unwrap();
                prop_assert_eq!(String::from_utf8(out).unwrap(), expected);
            }
        }
    }
}
