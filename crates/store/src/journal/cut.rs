//! Changes journals, each in one durable step: cuts a torn end that was never
//! acknowledged and, for a repair, cuts out damage.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::Hole;
use super::scan::{Journal, Tail};
use crate::durable;

/// The folder in which a repair keeps the original journals that it changed.
pub(crate) const DAMAGED_FOLDER: &str = "damaged";

/// Truncates a journal after its last whole batch.
pub(crate) fn cut_torn_end(torn: &Hole) -> io::Result<()> {
    let file = OpenOptions::new().write(true).open(&torn.file)?;
    file.set_len(torn.at)?;
    file.sync_all()
}

/// Rewrites a journal with its whole batches only, and keeps the damaged file in
/// `keep`. Returns false, without a change, if the journal is whole. Can be called
/// again after an interruption.
pub(crate) fn excise(journal: &Journal, keep: &Path) -> io::Result<bool> {
    let end = match journal.tail {
        Tail::Clean => None,
        Tail::Broken { at, .. } => Some(at),
    };
    if end.is_none() && journal.gap.is_none() {
        return Ok(false);
    }
    durable::create_folder(keep)?;
    keep_copy(&journal.path, keep)?;
    let mut source = BufReader::new(File::open(&journal.path)?);
    let length = source.get_ref().metadata()?.len();
    let end = end.unwrap_or(length);
    let new = journal.path.with_extension("new");
    let mut file = File::create(&new)?;
    let (first_end, rest_start) = journal.gap.map_or((end, end), |gap| (gap.at, gap.until));
    copy(&mut source, &mut file, 0, first_end)?;
    copy(&mut source, &mut file, rest_start, end)?;
    file.sync_all()?;
    fs::rename(&new, &journal.path)?;
    durable::sync_name(&journal.path)?;
    Ok(true)
}

fn copy(source: &mut BufReader<File>, to: &mut File, at: u64, until: u64) -> io::Result<()> {
    source.seek(SeekFrom::Start(at))?;
    let mut piece = io::Read::take(source, until.saturating_sub(at));
    io::copy(&mut piece, to)?;
    to.flush()
}

/// Links or copies the damaged file into `keep`. A file kept by an earlier attempt stays.
fn keep_copy(journal: &Path, keep: &Path) -> io::Result<()> {
    let Some(name) = journal.file_name() else {
        return Ok(());
    };
    let kept: PathBuf = keep.join(name);
    match fs::hard_link(journal, &kept) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(_) => {
            fs::copy(journal, &kept)?;
        }
    }
    durable::sync_name(&kept)
}
