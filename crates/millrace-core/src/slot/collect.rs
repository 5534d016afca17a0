//! What a task wrote and said, with the user's paths in it.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use super::outcome::Failure;
use super::place::Place;
use super::task::{Collect, Task};
use super::text;
use super::words;
use super::written;

impl Place {
    /// The beginning and the end of what the tool said, with the user's paths in it.
    pub(super) fn said(&self, file: &mut File, pairs: &text::Substitutions) -> io::Result<Vec<u8>> {
        let mut bytes = words::read(file)?;
        if memchr::memmem::find(&bytes, &self.secret).is_none() {
            return Ok(bytes);
        }
        // For a person to read: whatever cannot be put back stays.
        let mut ours = self.scratch()?;
        ours.write_all(&bytes)?;
        if let Ok(mut restored) = text::restore(ours, &self.secret, pairs, || self.scratch()) {
            bytes.clear();
            restored.seek(SeekFrom::Start(0))?;
            restored.read_to_end(&mut bytes)?;
        }
        Ok(bytes)
    }

    pub(super) fn collect(
        &self,
        task: &Task,
        stdout: File,
        pairs: &text::Substitutions,
    ) -> Result<Vec<(u16, Vec<u8>, File)>, Failure> {
        let mut stdout = Some(stdout);
        let mut found = Vec::with_capacity(task.outputs.len());
        for output in &task.outputs {
            match &output.collect {
                Collect::Stdout => {
                    if let Some(file) = stdout.take() {
                        found.push((output.stream, output.name.clone(), file));
                    }
                }
                Collect::File(path) => match self.open_written(path)? {
                    Some(file) => found.push((output.stream, output.name.clone(), file)),
                    None if output.optional => {}
                    None => return Err(Failure::Missing(self.users(path))),
                },
                Collect::Folder(path) => {
                    let top = self.root.join(path);
                    for name in files_below(&top).map_err(Failure::Io)? {
                        let below = path.join(&name);
                        let file = self.open_written(&below)?.ok_or_else(|| Failure::Missing(self.users(&below)))?;
                        found.push((output.stream, name.into_os_string().into_vec(), file));
                    }
                }
            }
        }
        found
            .into_iter()
            .map(|(stream, name, file)| {
                Ok((stream, name, text::restore(file, &self.secret, pairs, || self.scratch())?))
            })
            .collect::<io::Result<_>>()
            .map_err(Failure::Io)
    }
}

impl Place {
    /// Opens a file that the tool wrote, by its path relative to the slot; None if it is not there.
    fn open_written(&self, path: &Path) -> Result<Option<File>, Failure> {
        let in_slot = |target: &Path| self.view.as_ref()?.in_slot(target);
        written::open(&self.root, path, &self.users(path), in_slot)
    }
}

fn files_below(top: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        for entry in fs_err::read_dir(top.join(&folder))? {
            let entry = entry?;
            let name = folder.join(entry.file_name());
            if entry.file_type()?.is_dir() { folders.push(name) } else { found.push(name) }
        }
    }
    found.sort();
    Ok(found)
}
