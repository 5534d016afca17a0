//! Whether a task gave the same bytes warm as it did in a process of its own.

use std::fs::File;
use std::io::{self, Read, Seek};

use super::super::attempt::Outputs;
use super::super::bytes::is_same;
use super::super::outcome::Sink;
use super::super::task::{Collect, Task};

/// Bytes of a line that are shown.
const SHOWN: usize = 160;

/// What differs, in words; None: nothing does.
pub(super) fn difference<S: Sink>(
    sink: &S,
    task: &Task,
    warm: &mut Outputs,
    own: &mut Outputs,
) -> io::Result<Option<String>> {
    if warm.iter().map(|(stream, name, _)| (stream, name)).ne(own.iter().map(|(stream, name, _)| (stream, name))) {
        return Ok(Some("it wrote other files".to_owned()));
    }
    for ((stream, _, warm), (_, _, own)) in warm.iter_mut().zip(own) {
        if is_same(warm, own)? {
            continue;
        }
        let [warm, own] = [bytes(warm)?, bytes(own)?].map(|bytes| sink.steady(*stream, bytes));
        if warm != own {
            return Ok(Some(shown(&name(task, *stream), &warm, &own)));
        }
    }
    Ok(None)
}

fn bytes(file: &mut File) -> io::Result<Vec<u8>> {
    let mut bytes = vec![];
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn name(task: &Task, stream: u16) -> String {
    let output = task.outputs.iter().find(|output| output.stream == stream);
    match output.map(|output| &output.collect) {
        Some(Collect::File(path) | Collect::Folder(path)) => path.display().to_string(),
        _ => "standard output".to_owned(),
    }
}

/// The first line that differs.
fn shown(name: &str, warm: &[u8], own: &[u8]) -> String {
    let lines = |bytes: &[u8]| bytes.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect::<Vec<_>>();
    let (warm, own) = (lines(warm), lines(own));
    let at = warm.iter().zip(&own).take_while(|(left, right)| left == right).count();
    let line = |lines: &[Vec<u8>]| {
        let line = lines.get(at).map_or(&b""[..], Vec::as_slice);
        format!("{:?}", String::from_utf8_lossy(&line[..line.len().min(SHOWN)]))
    };
    format!("{name}, line {}: {} where a process of its own wrote {}", at + 1, line(&warm), line(&own))
}

#[cfg(test)]
mod tests {
    use super::shown;

    #[test]
    fn the_first_line_that_differs_is_shown() {
        let words = shown("out", b"same\nwarm\nx\n", b"same\nown\nx\n");
        assert_eq!(words, "out, line 2: \"warm\" where a process of its own wrote \"own\"");
        let words = shown("out", b"same\n", b"same\nmore\n");
        assert_eq!(words, "out, line 2: \"\" where a process of its own wrote \"more\"");
    }
}
