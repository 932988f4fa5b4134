//! `gapless export`: writes a repository into a CAR file. The command hashes every block
//! and walks the whole tree before it gives the file its name, so a file of that name is
//! complete, whatever happens to the mirror or to this command.

use std::io::Write;
use std::path::{Path, PathBuf};

use gapless_atp::syntax::Did;
use serde_json::json;
use tempfile::NamedTempFile;

use super::client::{Client, run_requests};
use super::progress::ProgressBar;
use super::{CommandError, CommandOutcome, Server, check_did};
use crate::terminal::{print_line, sanitize};
use gapless_mirror::repair::snapshot::Snapshot;
use gapless_mirror::repair::spill::{Spill, SpillLimits};

const EVIDENCE_HEADER: &str = "gapless-evidence";

pub(crate) fn export(
    server: &Server,
    did: &str,
    out: Option<&Path>,
) -> Result<CommandOutcome, CommandError> {
    check_did(did)?;
    let out = match out {
        Some(out) => out.to_owned(),
        None => PathBuf::from(format!("{}.car", did.replace([':', '%'], "_"))),
    };
    // The export would replace a device, a folder or a link.
    if std::fs::symlink_metadata(&out).is_ok_and(|there| !there.is_file()) {
        return Err(CommandError::Usage(format!(
            "{} exists and is not a regular file; name another file with --out",
            out.display()
        )));
    }
    let folder = match out.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let client = Client::new(server)?;
    let mut bar = ProgressBar::new();
    let download = run_requests(download_car(&client, did, folder, &out, &mut bar));
    bar.clear();
    let download = download?;
    let wrong = |error: &dyn std::fmt::Display| {
        CommandError::Failed(format!(
            "the mirror did not send the complete repository of {did}: {error}. The command wrote no file."
        ))
    };
    let bytes = download.bytes;
    let fetched = download.spill.finish().map_err(|error| wrong(&error))?;
    let did = Did::parse(did).map_err(|error| CommandError::Usage(error.to_string()))?;
    let snapshot = Snapshot::check(fetched, &did).map_err(|error| wrong(&error.flaw))?;
    let walked = snapshot.walk_whole().map_err(|error| wrong(&error.flaw))?;
    persist(download.file, &out)?;
    let head = snapshot.head();
    let report = json!({
        "did": did.as_str(), "file": out.display().to_string(),
        "commit": head.commit.to_string(), "rev": head.rev.to_string(),
        "data": head.data.to_string(), "records": walked.keys, "bytes": bytes,
        "evidence": download.evidence,
    });
    if server.json {
        print_line(&report.to_string());
    } else {
        print_line(&sanitize(&format!(
            "{}: {} records of {did}, {bytes} bytes\n  root     {}\n  commit   {} at {}\n  evidence {}",
            out.display(),
            walked.keys,
            head.data,
            head.commit,
            head.rev,
            download.evidence.as_deref().unwrap_or("-"),
        )));
    }
    Ok(CommandOutcome::Fine)
}

/// A downloaded repository that is not checked yet.
struct ExportDownload {
    file: NamedTempFile,
    spill: Spill,
    bytes: u64,
    evidence: Option<String>,
}

async fn download_car(
    client: &Client,
    did: &str,
    folder: &Path,
    out: &Path,
    bar: &mut ProgressBar,
) -> Result<ExportDownload, CommandError> {
    let cannot = |error: &dyn std::fmt::Display| {
        CommandError::Failed(format!("cannot write {}: {error}", out.display()))
    };
    let query = [("did", did.to_owned())];
    let url = client.url(&["xrpc", "com.atproto.sync.getRepo"], &query);
    let mut response = client.open(url).await?;
    let evidence = response.header(EVIDENCE_HEADER);
    let mut download = ExportDownload {
        evidence: evidence.map(str::to_owned),
        // A rename needs the temporary file on the same file system.
        file: NamedTempFile::new_in(folder).map_err(|error| cannot(&error))?,
        spill: Spill::new(folder, SpillLimits::default()),
        bytes: 0,
    };
    while let Some(piece) = client.checked(response.next_piece().await)? {
        download
            .file
            .write_all(&piece)
            .map_err(|error| cannot(&error))?;
        let fed = download.spill.feed(&piece);
        fed.map_err(|error| {
            CommandError::Failed(format!(
                "the mirror did not send a valid CAR file of {did}: {error}. The command wrote no file."
            ))
        })?;
        download.bytes += piece.len() as u64;
        bar.update("bytes", download.bytes, 0);
    }
    Ok(download)
}

/// Renames the file after it is durable.
fn persist(file: NamedTempFile, out: &Path) -> Result<(), CommandError> {
    let cannot = |error: &dyn std::fmt::Display| {
        CommandError::Failed(format!("cannot write {}: {error}", out.display()))
    };
    file.as_file().sync_all().map_err(|error| cannot(&error))?;
    file.persist(out).map_err(|error| cannot(&error.error))?;
    Ok(())
}
