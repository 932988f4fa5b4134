//! Names that survive a power cut. A new or renamed file is only certain to be
//! found again after its folder was synced too; every file beside the engine
//! goes through here.
//!
//! Fails as the file system fails, and leaves the old file or the new one, never
//! something between them.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// Makes the present names of a folder durable.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Makes the name of a file or folder durable.
pub fn sync_name(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => sync_folder(Path::new(".")),
        Some(parent) => sync_folder(parent),
        None => Ok(()),
    }
}

/// Replaces a small file in one step, durably.
pub fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = File::create(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    drop(file);
    fs::rename(&new, path)?;
    sync_name(path)
}

/// Makes a folder, and its name durable. One that exists is fine.
pub fn create_folder(path: &Path) -> io::Result<()> {
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
