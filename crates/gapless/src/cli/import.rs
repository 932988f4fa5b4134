//! `gapless import`: a repository from a file, handed to the running mirror, which
//! checks it as it would a stranger's.

use std::path::Path;

use tokio::fs::File;

use super::client::{Client, talk};
use super::table::{plain, say};
use super::{Failure, Outcome, Server};
use crate::api::ImportAnswer;

pub fn import(server: &Server, file: &Path) -> Result<Outcome, Failure> {
    let client = Client::new(server)?;
    let url = client.url(&["v1", "import"], &[]);
    let reply = talk(async {
        let opened = File::open(file)
            .await
            .map_err(|error| Failure::Usage(format!("cannot read {}: {error}", file.display())))?;
        let is_file = opened.metadata().await.is_ok_and(|there| there.is_file());
        if !is_file {
            let words = format!("{} is no file", file.display());
            return Err(Failure::Usage(words));
        }
        // Read as it is sent, never all at once.
        client.hand_over(url, opened.into()).await
    })?;
    let answer: ImportAnswer = reply.read()?;
    match server.json {
        true => say(&reply.text),
        false => say(&plain(&format!(
            "{} is at {} now, with {} records; its host is asked whether that is its newest commit",
            answer.did, answer.rev, answer.records
        ))),
    }
    Ok(Outcome::Fine)
}
