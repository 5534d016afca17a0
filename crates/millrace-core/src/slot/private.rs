//! What one slot shows of the user's files: links, and copies in the place of some.
//!
//! A file behind a link was written while a task ran, by the tool or by somebody else. The task runs again with a copy of
//! the file in the place of the link: if that changes, it was the tool. The copy stays, as it was, for later tasks.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirEntryExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::links::{Written, read_short};

/// The links of a slot, and its files that are no links any more.
pub(super) struct Private {
    /// Path relative to the slot: the number of the link, and what it names.
    links: HashMap<PathBuf, (u64, PathBuf)>,
    /// Path relative to the slot, and the file as it is when a task begins.
    files: HashMap<PathBuf, Copy>,
    /// What stays in the slot besides its skeleton.
    skeleton: HashSet<PathBuf>,
    /// Paths that cannot be copied: too large, too many, gone, not to be read.
    given_up: HashSet<PathBuf>,
}

/// A file of the user's as it was when it was copied.
struct Copy {
    bytes: Vec<u8>,
    permissions: fs::Permissions,
    /// Long before any task: a tool that writes the same bytes again is seen, too.
    modified: SystemTime,
    /// Whether it is known that somebody wrote: who only opens a file to write, or touches it, does no harm.
    is_certain: bool,
}

impl Copy {
    fn of(real: &Path, is_certain: bool) -> io::Result<Option<Self>> {
        let about = fs::metadata(real)?;
        if !about.is_file() {
            return Ok(None);
        }
        let modified = UNIX_EPOCH + Duration::from_secs(u64::try_from(about.mtime() - 2).unwrap_or(0));
        let permissions = about.permissions();
        Ok(read_short(real, MOST_BYTES)?.map(|bytes| Self { bytes, permissions, modified, is_certain }))
    }

    fn put(&self, place: &Path) -> io::Result<()> {
        fs::write(place, &self.bytes)?;
        fs::set_permissions(place, self.permissions.clone())?;
        File::open(place)?.set_modified(self.modified)
    }

    fn is_at(&self, place: &Path) -> bool {
        fs::symlink_metadata(place).is_ok_and(|about| {
            about.is_file()
                && about.len() == self.bytes.len() as u64
                && (!self.is_certain || about.modified().is_ok_and(|modified| modified == self.modified))
        }) && fs::read(place).is_ok_and(|now| now == self.bytes)
    }
}

/// Most bytes of a copy.
const MOST_BYTES: u64 = 16 << 20;

/// Most entries of a folder that becomes one of links.
const MOST_ENTRIES: usize = 2000;

impl Private {
    /// What is in the new slot `root`, with these (path, target) in it.
    pub(super) fn of(root: &Path, links: &[(PathBuf, PathBuf)]) -> io::Result<Self> {
        let link = |(path, target): &(PathBuf, PathBuf)| {
            Ok((path.clone(), (fs_err::symlink_metadata(root.join(path))?.ino(), target.clone())))
        };
        Ok(Self {
            links: links.iter().map(link).collect::<io::Result<_>>()?,
            files: HashMap::new(),
            skeleton: HashSet::new(),
            given_up: HashSet::new(),
        })
    }

    /// Whether the entry at `path`, which belongs in the slot, is still what it was. Copies are looked at by `restore`.
    /// Nothing is asked of the filesystem: there may be thousands.
    pub(super) fn is_intact(&self, path: &Path, entry: &fs::DirEntry, kind: fs::FileType) -> bool {
        self.links.get(path).is_none_or(|(number, _)| kind.is_symlink() && entry.ino() == *number)
    }

    /// How many entries there are besides the skeleton.
    pub(super) fn n_more(&self) -> usize {
        self.skeleton.len()
    }

    /// Makes the links anew that are not there.
    pub(super) fn relink(&mut self, root: &Path) -> io::Result<()> {
        for (path, (number, target)) in &mut self.links {
            let place = root.join(path);
            if fs::symlink_metadata(&place).is_ok() {
                continue;
            }
            if let Some(parent) = place.parent() {
                fs::create_dir_all(parent)?;
            }
            symlink(target, &place)?;
            *number = fs::symlink_metadata(&place)?.ino();
        }
        Ok(())
    }

    fn link(&mut self, root: &Path, path: PathBuf, target: PathBuf) -> io::Result<()> {
        symlink(&target, root.join(&path))?;
        self.links.insert(path.clone(), (fs::symlink_metadata(root.join(&path))?.ino(), target));
        self.skeleton.insert(path);
        Ok(())
    }

    /// Whether `path` is shared with other slots when a task begins, and can be copied.
    pub(super) fn is_shared(&self, path: &Path) -> bool {
        // A file that is new in a folder of which this slot has a copy is not seen there.
        let is_linked = self.links.contains_key(path) || path.parent().is_some_and(|top| self.links.contains_key(top));
        is_linked && !self.files.contains_key(path) && !self.given_up.contains(path)
    }

    /// Whether `path` belongs in the slot when no task runs.
    pub(super) fn keeps(&self, path: &Path) -> bool {
        self.skeleton.contains(path)
    }

    /// Puts a copy of a file in the place of what the slot shows of it; false if it cannot be.
    pub(super) fn take(&mut self, root: &Path, written: &Written) -> bool {
        let taken = self.try_take(root, written).unwrap_or(false);
        if !taken {
            self.given_up.insert(written.path.clone());
        }
        taken
    }

    fn try_take(&mut self, root: &Path, written: &Written) -> io::Result<bool> {
        let (path, real) = (&*written.path, &*written.real);
        let Some(copy) = Copy::of(real, written.is_certain)? else { return Ok(false) };
        let (Some(parent), Some(real_parent)) = (path.parent(), real.parent()) else { return Ok(false) };
        if self.links.contains_key(parent) && !self.open_folder(root, parent, real_parent)? {
            return Ok(false);
        }
        let place = root.join(path);
        self.links.remove(path);
        remove(&place)?;
        copy.put(&place)?;
        self.files.insert(path.to_owned(), copy);
        Ok(true)
    }

    /// Makes a folder with links to its entries of what was one link.
    fn open_folder(&mut self, root: &Path, folder: &Path, real: &Path) -> io::Result<bool> {
        let names = fs::read_dir(real)?.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<_>>>()?;
        if names.len() > MOST_ENTRIES {
            return Ok(false);
        }
        self.links.remove(folder);
        remove(&root.join(folder))?;
        fs::create_dir(root.join(folder))?;
        for name in names {
            let path = folder.join(&name);
            self.link(root, path, real.join(name))?;
        }
        Ok(true)
    }

    /// The first copy that is not as it was; all of them are afterwards.
    pub(super) fn restore(&self, root: &Path) -> io::Result<Option<PathBuf>> {
        let mut changed = None;
        for (path, copy) in &self.files {
            let place = root.join(path);
            if !copy.is_at(&place) {
                remove(&place)?;
                if let Some(parent) = place.parent() {
                    fs::create_dir_all(parent)?;
                }
                copy.put(&place)?;
                changed = changed.or_else(|| Some(path.clone()));
            }
        }
        Ok(changed)
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(about) if about.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}
