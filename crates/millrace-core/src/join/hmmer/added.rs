//! The options that were added to the user's, and how to take their traces out again.
//!
//! HMMER repeats its options at two places: a line each in the report's banner, and the line `# Option settings:` in
//! the trailer of a table. Both are written by HMMER alone, so a trace is found by its exact text or not at all.

use super::lines::shape;
use crate::join::JoinError;

/// One option that was added.
struct AddedOption {
    /// As HMMER spells it in `# Option settings:`.
    text: String,
    /// What its line in the banner begins with.
    label: &'static str,
    /// What the user's own command prints in that line; without it, the user's command has no such line.
    serial: Option<String>,
}

/// All options that were added.
pub(super) struct Added(Vec<AddedOption>);

/// The beginning of the trailer's line with all options.
const SETTINGS: &[u8] = b"# Option settings: ";

fn label(option: &str) -> Option<&'static str> {
    Some(match option.split(' ').next()? {
        "--cpu" => "# number of worker threads:",
        "--dna" | "--rna" => "# input query is asserted as:",
        "--qsingle_seqs" => "# query contains individual seqs:",
        _ => return None,
    })
}

impl Added {
    pub(super) fn parse(parameter: &str) -> Option<Self> {
        let words = parameter.split(',').filter(|word| !word.is_empty());
        let parse = |word: &str| {
            let (text, serial) = match word.split_once('=') {
                Some((text, serial)) => (text, Some(serial.to_owned())),
                None => (word, None),
            };
            Some(AddedOption { text: text.to_owned(), label: label(text)?, serial })
        };
        words.map(parse).collect::<Option<Vec<_>>>().map(Self)
    }

    /// Gives the banner the lines that the user's own command prints.
    ///
    /// # Errors
    /// [`JoinError::Shape`] if the line of an added option is not there exactly once.
    pub(super) fn clean_banner(&self, banner: &mut Vec<Vec<u8>>, format: &'static str) -> Result<(), JoinError> {
        for option in &self.0 {
            let mut found = (0..banner.len()).filter(|at| starts(&banner[*at], option.label));
            let (Some(at), None) = (found.next(), found.next()) else {
                let problem = format!("the banner has not one line '{}'", option.label);
                return Err(shape(format, problem));
            };
            match &option.serial {
                None => drop(banner.remove(at)),
                Some(serial) => replace_value(&mut banner[at], option.label, serial),
            }
        }
        Ok(())
    }

    /// Takes the added options out of a trailer's line `# Option settings:`; leaves any other line alone.
    ///
    /// # Errors
    /// [`JoinError::Shape`] if an added option is not there exactly once.
    pub(super) fn clean_settings(&self, line: &mut Vec<u8>, format: &'static str) -> Result<(), JoinError> {
        if !line.starts_with(SETTINGS) {
            return Ok(());
        }
        for option in &self.0 {
            let text = format!(" {} ", option.text);
            let mut found = memchr::memmem::find_iter(line, text.as_bytes());
            let (Some(at), None) = (found.next(), found.next()) else {
                let problem = format!("the option settings name '{}' not once", option.text);
                return Err(shape(format, problem));
            };
            line.drain(at..at + text.len() - 1);
        }
        Ok(())
    }
}

fn starts(line: &[u8], label: &str) -> bool {
    line.starts_with(label.as_bytes())
}

/// Puts `value` where the line has its own, after the label and the spaces.
fn replace_value(line: &mut Vec<u8>, label: &str, value: &str) {
    let spaces = line[label.len()..].iter().take_while(|byte| **byte == b' ').count();
    line.truncate(label.len() + spaces);
    line.extend_from_slice(value.as_bytes());
    line.push(b'\n');
}
