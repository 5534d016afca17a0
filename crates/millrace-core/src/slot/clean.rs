//! Leaving a slot as it was before its task.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use super::place::Place;
use super::rights;
use super::task::{Collect, Placement, Task};
use super::view::Change;

/// Whether what lies there might be kept: what only processes talk through is gone with them.
fn is_kept(kind: std::fs::FileType) -> bool {
    !kind.is_socket() && !kind.is_fifo()
}

impl Place {
    /// Paths at which `task` puts or collects something.
    fn wanted(task: &Task) -> BTreeSet<&Path> {
        let mut wanted: BTreeSet<&Path> = BTreeSet::new();
        for placement in &task.placements {
            match placement {
                Placement::Batch { to, .. }
                | Placement::Before { to, .. }
                | Placement::Link { to, .. }
                | Placement::Folder(to) => wanted.insert(to),
                Placement::Packed { to, .. } => to.as_ref().is_some_and(|to| wanted.insert(to)),
                Placement::Stdin(_) | Placement::Ended => false,
            };
        }
        for output in &task.outputs {
            match &output.collect {
                Collect::File(path) | Collect::Folder(path) => wanted.insert(path),
                Collect::Stdout => false,
            };
        }
        wanted
    }

    /// A file of the user's that `task` has changed in its view of the user's folders.
    pub(super) fn changed_in_view(&self, task: &Task) -> io::Result<Option<PathBuf>> {
        let Some(view) = &self.view else { return Ok(None) };
        let changes = view.changes(&self.root, &Self::wanted(task))?;
        Ok(changes.into_iter().find(|(_, change, _)| *change == Change::Changed).map(|(path, ..)| self.users(&path)))
    }

    /// Removes all that is not in the skeleton; returns what nobody had asked for.
    pub(super) fn clean(&self, task: &Task) -> io::Result<Vec<PathBuf>> {
        let wanted = Self::wanted(task);
        let mut extra = Vec::new();
        if let Some(view) = &self.view {
            let made = view.changes(&self.root, &wanted)?;
            extra = made
                .into_iter()
                .filter(|(_, change, kind)| *change == Change::Made && is_kept(*kind))
                .map(|(path, ..)| self.users(&path))
                .collect();
            view.refresh(&self.root)?;
        }
        let n_kept = rights::removing(&self.root, || self.clean_below(Path::new(""), &wanted, &mut extra))?;
        let mut private = self.private();
        if n_kept < self.skeleton.len() + private.n_more() {
            // The tool removed some of it, or put something else in its place.
            private.relink(&self.root)?;
            for path in self.skeleton.iter().filter(|path| std::fs::symlink_metadata(self.root.join(path)).is_err()) {
                fs_err::create_dir_all(self.root.join(path))?;
            }
        }
        Ok(extra)
    }

    /// Returns how many entries belong there.
    fn clean_below(&self, below: &Path, wanted: &BTreeSet<&Path>, extra: &mut Vec<PathBuf>) -> io::Result<usize> {
        let mut n_kept = 0;
        for entry in std::fs::read_dir(self.root.join(below))? {
            let entry = entry?;
            let path = below.join(entry.file_name());
            let kind = entry.file_type()?;
            if self.view.as_ref().is_some_and(|view| view.is_layer(&path)) {
                continue;
            }
            if self.belongs(&path, &entry, kind) {
                n_kept += 1;
                if kind.is_dir() {
                    n_kept += self.clean_below(&path, wanted, extra)?;
                }
                continue;
            }
            if kind.is_dir() {
                fs_err::remove_dir_all(entry.path())?
            } else {
                fs_err::remove_file(entry.path())?
            }
            if !wanted.contains(path.as_path()) && is_kept(kind) {
                extra.push(path);
            }
        }
        Ok(n_kept)
    }

    pub(super) fn belongs(&self, path: &Path, entry: &std::fs::DirEntry, kind: std::fs::FileType) -> bool {
        let private = self.private();
        (self.skeleton.contains(path) || private.keeps(path)) && private.is_intact(path, entry, kind)
    }
}
