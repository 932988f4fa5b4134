//! `gapless export`: a repository into a file. What comes is hashed as it comes and
//! walked whole; only then does the file get its name. So a file of that name is whole,
//! whatever happens to the mirror or to this command.

use std::io::Write;
use std::path::{Path, PathBuf};

use gapless_atp::syntax::Did;
use serde_json::json;
use tempfile::NamedTempFile;

use super::client::{Client, talk};
use super::progress::Bar;
use super::table::{plain, say};
use super::{Failure, Outcome, Server, a_did};
use crate::fetch::snapshot::Snapshot;
use crate::fetch::spill::{Spill, SpillLimits};

const EVIDENCE: &str = "gapless-evidence";

pub fn export(server: &Server, did: &str, out: Option<&Path>) -> Result<Outcome, Failure> {
    a_did(did)?;
    let out = match out {
        Some(out) => out.to_owned(),
        None => PathBuf::from(format!("{}.car", did.replace([':', '%'], "_"))),
    };
    // It would be replaced: a device, a folder, or where a link leads.
    if std::fs::symlink_metadata(&out).is_ok_and(|there| !there.is_file()) {
        return Err(Failure::Usage(format!(
            "{} is there and no ordinary file; name another one with --out",
            out.display()
        )));
    }
    let folder = match out.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let client = Client::new(server)?;
    let mut bar = Bar::new();
    let came = talk(download(&client, did, folder, &out, &mut bar));
    bar.end();
    let came = came?;
    let wrong = |error: &dyn std::fmt::Display| {
        Failure::Failed(format!(
            "what the mirror sent is not the repository of {did}, whole: {error}. Nothing was written."
        ))
    };
    let bytes = came.bytes;
    let fetched = came.spill.finish().map_err(|error| wrong(&error))?;
    let did = Did::parse(did).map_err(|error| Failure::Usage(error.to_string()))?;
    let snapshot = Snapshot::check(fetched, &did).map_err(|error| wrong(&error.flaw))?;
    let walked = snapshot.walk_whole().map_err(|error| wrong(&error.flaw))?;
    keep(came.file, &out)?;
    let head = snapshot.head();
    let told = json!({
        "did": did.as_str(), "file": out.display().to_string(),
        "commit": head.commit.to_string(), "rev": head.rev.to_string(),
        "data": head.data.to_string(), "records": walked.keys, "bytes": bytes,
        "evidence": came.evidence,
    });
    match server.json {
        true => say(&told.to_string()),
        false => say(&plain(&format!(
            "{}: {} records of {did}, {bytes} bytes\n  root     {}\n  commit   {} at {}\n  evidence {}",
            out.display(),
            walked.keys,
            head.data,
            head.commit,
            head.rev,
            came.evidence.as_deref().unwrap_or("-"),
        ))),
    }
    Ok(Outcome::Fine)
}

/// What came, not checked yet.
struct Came {
    file: NamedTempFile,
    spill: Spill,
    bytes: u64,
    evidence: Option<String>,
}

async fn download(
    client: &Client,
    did: &str,
    folder: &Path,
    out: &Path,
    bar: &mut Bar,
) -> Result<Came, Failure> {
    let cannot = |error: &dyn std::fmt::Display| {
        Failure::Failed(format!("cannot write {}: {error}", out.display()))
    };
    let query = [("did", did.to_owned())];
    let url = client.url(&["xrpc", "com.atproto.sync.getRepo"], &query);
    let mut response = client.open(url).await?;
    let evidence = response.headers().get(EVIDENCE);
    let evidence = evidence.and_then(|words| words.to_str().ok());
    let mut came = Came {
        evidence: evidence.map(str::to_owned),
        // Beside the file, so that it can be renamed.
        file: NamedTempFile::new_in(folder).map_err(|error| cannot(&error))?,
        spill: Spill::new(folder, SpillLimits::default()),
        bytes: 0,
    };
    while let Some(piece) = client.piece(&mut response).await? {
        came.file
            .write_all(&piece)
            .map_err(|error| cannot(&error))?;
        let fed = came.spill.feed(&piece);
        fed.map_err(|error| Failure::Failed(format!("what the mirror sends is no CAR: {error}")))?;
        came.bytes += piece.len() as u64;
        bar.tell("bytes", came.bytes, 0);
    }
    Ok(came)
}

/// The file gets its name when it is on the disk.
fn keep(file: NamedTempFile, out: &Path) -> Result<(), Failure> {
    let cannot = |error: &dyn std::fmt::Display| {
        Failure::Failed(format!("cannot write {}: {error}", out.display()))
    };
    file.as_file().sync_all().map_err(|error| cannot(&error))?;
    file.persist(out).map_err(|error| cannot(&error.error))?;
    Ok(())
}
