//! XML of any program: what stands around the content of one element is written once.

use std::io::{self, BufRead, Write};

use super::lines::{Common, Presence, buffered, keep, shape};
use super::{JoinError, Joiner};

/// XML of any program: what stands up to the opening of one element, and from its closing on, once.
pub(super) struct Xml {
    tag: Vec<u8>,
    opening: Common,
    closing: Common,
    /// The whole of a batch whose element has nothing in it, which may be written in another way.
    empty: Common,
    presence: Presence,
}

/// A tag at the end of a piece of XML that was read up to its `>`.
enum Tag {
    Open,
    Close,
    Empty,
    Other,
}

impl Xml {
    pub(super) fn new(tag: &str) -> Option<Self> {
        let is_name = |c: char| c.is_alphanumeric() || "_:.-".contains(c);
        if tag.is_empty() || !tag.chars().all(is_name) {
            return None;
        }
        Some(Self {
            tag: tag.as_bytes().to_vec(),
            opening: Common::default(),
            closing: Common::default(),
            empty: Common::default(),
            presence: Presence::default(),
        })
    }

    /// The tag that ends `piece`, and where it begins.
    fn tag(&self, piece: &[u8]) -> (Tag, usize) {
        let Some(at) = memchr::memrchr(b'<', piece) else {
            return (Tag::Other, piece.len());
        };
        let inner = piece[at + 1..].strip_suffix(b">").unwrap_or_default();
        let (is_close, name) = inner.strip_prefix(b"/").map_or((false, inner), |name| (true, name));
        let Some(after) = name.strip_prefix(self.tag.as_slice()) else {
            return (Tag::Other, at);
        };
        if after.first().is_some_and(|byte| !byte.is_ascii_whitespace() && *byte != b'/') {
            return (Tag::Other, at);
        }
        let kind = match (is_close, after.ends_with(b"/")) {
            (true, _) => Tag::Close,
            (false, true) => Tag::Empty,
            (false, false) => Tag::Open,
        };
        (kind, at)
    }

    fn wrong<T>(&self, problem: &str) -> Result<T, JoinError> {
        let tag = String::from_utf8_lossy(&self.tag);
        Err(shape("XML", problem.replace("TAG", &tag)))
    }

    /// Reads up to the element; true if it is there and has an end of its own.
    fn prologue(&self, block: &mut dyn BufRead, kept: &mut Vec<u8>) -> Result<bool, JoinError> {
        let mut piece = Vec::new();
        while next_piece(block, &mut piece)? {
            keep(kept, &piece, "XML")?;
            match self.tag(&piece).0 {
                Tag::Open => return Ok(true),
                Tag::Empty => return Ok(false),
                Tag::Close => return self.wrong("</TAG> without <TAG>"),
                Tag::Other => {}
            }
        }
        self.wrong("a batch without <TAG>")
    }

    /// Reads what follows the element.
    fn epilogue(&self, block: &mut dyn BufRead, kept: &mut Vec<u8>) -> Result<(), JoinError> {
        let mut piece = Vec::new();
        while next_piece(block, &mut piece)? {
            if matches!(self.tag(&piece).0, Tag::Open | Tag::Empty) {
                return self.wrong("a batch has several <TAG>: name the element that holds them");
            }
            keep(kept, &piece, "XML")?;
        }
        Ok(())
    }

    /// Notes a batch whose element is empty, which adds nothing to others.
    fn nothing(&mut self, whole: Vec<u8>) -> Result<(), JoinError> {
        self.empty.check(whole, "XML", "batch without results")?;
        self.presence.framed_nothing("XML")
    }
}

/// Reads text and the `>` that ends it; false at the end of the block.
fn next_piece(block: &mut dyn BufRead, piece: &mut Vec<u8>) -> io::Result<bool> {
    piece.clear();
    Ok(block.read_until(b'>', piece)? > 0)
}

impl Joiner for Xml {
    fn block(&mut self, _n_records: u64, block: &mut dyn BufRead, out: &mut dyn Write) -> Result<(), JoinError> {
        if block.fill_buf()?.is_empty() {
            return self.presence.silent("XML");
        }
        let mut opening = Vec::new();
        if !self.prologue(block, &mut opening)? {
            self.epilogue(block, &mut opening)?;
            return self.nothing(opening);
        }
        let mut out = buffered(out);
        let mut piece = Vec::new();
        let mut depth = 1;
        let mut is_first = true;
        loop {
            if !next_piece(block, &mut piece)? {
                return self.wrong("a batch without </TAG>");
            }
            let (tag, at) = self.tag(&piece);
            match tag {
                Tag::Open => depth += 1,
                Tag::Close => depth -= 1,
                _ => {}
            }
            if depth == 0 && is_first && piece[..at].trim_ascii().is_empty() {
                opening.extend_from_slice(&piece);
                self.epilogue(block, &mut opening)?;
                return self.nothing(opening);
            }
            let mut content = 0;
            if is_first {
                // The line end behind the opening tag belongs to it.
                content = piece.iter().position(|byte| !byte.is_ascii_whitespace()).unwrap_or(0);
                content = memchr::memchr(b'\n', &piece[..content]).map_or(0, |end| end + 1);
                opening.extend_from_slice(&piece[..content]);
                let begins = self.opening.get().is_none();
                self.opening.check(std::mem::take(&mut opening), "XML", "beginning")?;
                if begins {
                    out.write_all(self.opening.get().unwrap_or_default())?;
                }
                is_first = false;
            }
            if depth > 0 {
                out.write_all(&piece[content..])?;
                continue;
            }
            // The indentation of the closing tag belongs to it.
            let indent = piece[content..at].iter().rev().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
            let end = if piece[..at - indent].ends_with(b"\n") { at - indent } else { at };
            out.write_all(&piece[content..end])?;
            let mut closing = piece[end..].to_vec();
            self.epilogue(block, &mut closing)?;
            self.closing.check(closing, "XML", "end")?;
            out.flush()?;
            return Ok(());
        }
    }

    fn finish(&mut self, out: &mut dyn Write) -> Result<(), JoinError> {
        if let Some(closing) = self.closing.get().or(self.empty.get()) {
            out.write_all(closing)?;
        }
        Ok(())
    }
}
