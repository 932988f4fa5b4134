//! Creates and replaces files so that their names survive a power cut: a new or
//! renamed file is durable only once its folder is synced too. Every file outside
//! the engine's folder is written through this module.
//!
//! Functions return the file system's error and leave the old file or the new one,
//! never a mixture.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// Makes the names in a folder durable.
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Makes the name of a file or folder durable.
pub(crate) fn sync_name(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => sync_folder(Path::new(".")),
        Some(parent) => sync_folder(parent),
        None => Ok(()),
    }
}

/// Replaces a small file atomically and durably.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = File::create(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    drop(file);
    fs::rename(&new, path)?;
    sync_name(path)
}

/// Creates a folder and its parents and makes their names durable. Does nothing if the
/// folder exists.
pub(crate) fn create_folder(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(parent) = path.parent()
        && !parent.as_os_str().is_empty()
    {
        create_folder(parent)?;
    }
    match fs::create_dir(path) {
        Ok(()) => sync_name(path),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        Err(error) => Err(error),
    }
}
