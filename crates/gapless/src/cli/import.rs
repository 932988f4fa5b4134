//! `gapless import`: sends a CAR file to the running mirror, which checks it like a
//! repository from an untrusted host.

use std::path::Path;

use tokio::fs::File;

use super::client::{Client, run_requests};
use super::{CommandError, CommandOutcome, Server};
use crate::terminal::{print_line, sanitize};
use gapless_mirror::api::ImportAnswer;

pub(crate) fn import(server: &Server, file: &Path) -> Result<CommandOutcome, CommandError> {
    let client = Client::new(server)?;
    let url = client.url(&["v1", "import"], &[]);
    let reply = run_requests(async {
        let opened = File::open(file).await.map_err(|error| {
            CommandError::Usage(format!("cannot read {}: {error}", file.display()))
        })?;
        let is_file = opened.metadata().await.is_ok_and(|there| there.is_file());
        if !is_file {
            let words = format!("{} is not a regular file", file.display());
            return Err(CommandError::Usage(words));
        }
        // The file is read in pieces while it is sent.
        client.upload(url, opened).await
    })?;
    let answer: ImportAnswer = reply.read()?;
    if server.json {
        print_line(&reply.text);
    } else {
        print_line(&sanitize(&format!(
            "{} is now at {}, with {} records; Gapless asks the host whether this commit is the newest",
            answer.did, answer.rev, answer.records
        )));
    }
    Ok(CommandOutcome::Fine)
}
