//! The judge: every record that the mirror holds, again and again, against the truth of
//! the network at the rev that the mirror states.
//!
//! A repository may be behind, and then it says so; it may never hold anything but
//! what its owner signed at the rev it states. That is compared record by record,
//! byte by byte, faults or not, complete or not.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use gapless_atp::syntax::{Did, Rev};
use gapless_store::error::StoreError;
use gapless_store::read_view::ReadView;
use gapless_testnet::{Records, Truth};

use gapless_mirror::Mirror;

/// Differences that are told in words; the others are counted.
const TOLD: usize = 20;

/// What was compared since the beginning, and what came of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OracleTally {
    /// States of repositories that were compared.
    pub checks: u64,
    /// Records that were compared with the truth at the stated rev.
    pub records: u64,
    /// Of these: missing, extra, or with other bytes.
    pub differences: u64,
    /// Of these: in repositories that the mirror called complete.
    pub differences_in_complete: u64,
    /// Repositories that were complete and then were not.
    pub gaps_opened: u64,
    /// Of these: complete again.
    pub gaps_closed: u64,
    /// Repositories of the network, and those that were complete when last looked at.
    pub repos: u64,
    pub complete: u64,
    /// The first differences, in words.
    pub told: Vec<String>,
    /// Why a comparison did not get to its end.
    pub failed: Option<String>,
}

#[derive(Default)]
struct State {
    tally: OracleTally,
    /// Those that have been complete before.
    known: BTreeSet<Did>,
    /// Those that are a gap now.
    open: BTreeSet<Did>,
}

pub struct Judge {
    truth: Truth,
    state: Mutex<State>,
}

/// What was compared of one repository at one moment.
struct Compared {
    complete: bool,
    records: u64,
    different: Vec<String>,
}

impl Judge {
    pub fn new(truth: Truth) -> Judge {
        Judge {
            truth,
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing in here can panic half way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn tally(&self) -> OracleTally {
        self.state().tally.clone()
    }

    /// A comparison did not get to its end: who cannot look vouches for nothing.
    pub fn fail(&self, why: String) {
        self.state().tally.failed = Some(why);
    }

    /// Compares everything once. Blocks for as long as that takes.
    pub fn pass(&self, mirror: &Mirror) -> Result<(), StoreError> {
        let view = mirror.services().store.view();
        let dids = self.truth.dids();
        let mut complete = 0;
        for did in &dids {
            let compared = self.compare(mirror, &view, did)?;
            complete += u64::from(compared.as_ref().is_some_and(|one| one.complete));
            self.note(did, compared);
        }
        let mut state = self.state();
        state.tally.repos = dids.len() as u64;
        state.tally.complete = complete;
        Ok(())
    }

    fn note(&self, did: &Did, compared: Option<Compared>) {
        let mut state = self.state();
        let complete = compared.as_ref().is_some_and(|one| one.complete);
        match complete {
            true => {
                state.known.insert(did.clone());
                state.tally.gaps_closed += u64::from(state.open.remove(did));
            }
            false if state.known.contains(did) => {
                state.tally.gaps_opened += u64::from(state.open.insert(did.clone()));
            }
            false => {}
        }
        let Some(compared) = compared else {
            return;
        };
        let tally = &mut state.tally;
        tally.checks += 1;
        tally.records += compared.records;
        let different = compared.different.len() as u64;
        tally.differences += different;
        if complete {
            tally.differences_in_complete += different;
        }
        for words in compared.different {
            if tally.told.len() < TOLD {
                tally.told.push(words);
            }
        }
    }

    /// None: nothing exact is held, and nothing is claimed.
    fn compare(
        &self,
        mirror: &Mirror,
        view: &ReadView,
        did: &Did,
    ) -> Result<Option<Compared>, StoreError> {
        let Some((id, repo)) = view.repo_by_did(did)? else {
            return Ok(None);
        };
        let complete = mirror.inspector().answer(&repo).complete();
        let Some(head) = repo.head() else {
            return Ok(complete.then(|| Compared {
                complete,
                records: 0,
                different: vec![format!("{did}: complete, and nothing is held")],
            }));
        };
        let held = held(view.records(id))?;
        let rev = head.rev;
        let signed = self.truth.commits(did).unwrap_or_default();
        let signed = signed.into_iter().find(|commit| commit.rev == rev);
        let mut different = Vec::new();
        match signed {
            Some(signed) if signed.commit == head.commit && signed.data == head.data => {}
            Some(_) => different.push(format!("{did} at {rev}: another commit than was signed")),
            None => different.push(format!("{did}: nobody signed {rev}")),
        }
        if let Some(truth) = self.truth.records_at(did, rev) {
            differing(did, rev, &held, &truth, &mut different);
        }
        Ok(Some(Compared {
            complete,
            records: held.len() as u64,
            different,
        }))
    }

    /// Why a repository is not complete at the head that its owner has now.
    pub fn behind(&self, mirror: &Mirror, did: &Did) -> Result<Option<String>, StoreError> {
        let Some(head) = self.truth.head(did) else {
            return Ok(Some("its host has lost it".to_owned()));
        };
        let view = mirror.services().store.view();
        let Some((_, repo)) = view.repo_by_did(did)? else {
            return Ok(Some("not known yet".to_owned()));
        };
        let answer = mirror.inspector().answer(&repo);
        if !answer.complete() {
            let reasons: Vec<&str> = answer.reasons.iter().map(|one| one.as_str()).collect();
            return Ok(Some(reasons.join(", ")));
        }
        let held = repo.head().map(|held| held.rev);
        Ok((held != Some(head.rev)).then(|| "its newest commit is not known here".to_owned()))
    }
}

type HeldRecords = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

fn held(
    records: impl Iterator<Item = Result<gapless_store::table::record::Record, StoreError>>,
) -> Result<HeldRecords, StoreError> {
    let mut held = HeldRecords::new();
    for record in records {
        let record = record?;
        held.insert(record.path().to_vec(), record.bytes().map(<[u8]>::to_vec));
    }
    Ok(held)
}

/// Every record that is missing, extra, or has other bytes.
fn differing(did: &Did, rev: Rev, held: &HeldRecords, truth: &Records, found: &mut Vec<String>) {
    for (path, (_, bytes)) in truth {
        let words = match held.get(path.as_bytes()) {
            None => "is missing",
            Some(own) if own.as_deref() != Some(&bytes[..]) => "has other bytes",
            Some(_) => continue,
        };
        found.push(format!("{did} at {rev}: {path} {words}"));
    }
    for path in held.keys() {
        let path = String::from_utf8_lossy(path);
        if !truth.contains_key(path.as_ref()) {
            found.push(format!("{did} at {rev}: {path} is held and was not signed"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::stage::{Stage, StageOptions};
    use gapless_atp::cid::Cid;
    use gapless_testnet::{Config, Testnet};

    /// Nothing that is waited for takes longer.
    const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);

    #[tokio::test(flavor = "multi_thread")]
    async fn what_another_truth_does_not_know_is_a_difference() {
        let folder = tempfile::tempdir().unwrap();
        let wanted = StageOptions {
            repos: 1,
            port: 0,
            bind: "127.0.0.1:0".parse().unwrap(),
        };
        let stage = Stage::build(&wanted, folder.path()).await.unwrap();
        let right = Judge::new(stage.net.truth());
        let mirror = stage.running().unwrap();
        let began = std::time::Instant::now();
        while right.tally().complete < 1 {
            right.pass(&mirror).unwrap();
            assert!(began.elapsed() < PATIENCE, "{:?}", right.tally());
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        assert_eq!(right.tally().differences, 0, "{:?}", right.tally());
        assert!(right.tally().records >= 30, "{:?}", right.tally());
        // The same account, which did something else.
        let other = Testnet::start(Config {
            repos: 1,
            pds: 3,
            did_web: false,
            wall_clock: true,
            ..Config::default()
        });
        let other = other.await.unwrap();
        assert_eq!(other.truth().dids(), stage.net.truth().dids());
        let wrong = Judge::new(other.truth());
        wrong.pass(&mirror).unwrap();
        let tally = wrong.tally();
        assert_eq!(tally.checks, 1);
        assert!(tally.differences_in_complete >= 1, "{tally:?}");
        assert!(tally.told[0].contains("nobody signed"), "{tally:?}");
        drop(mirror);
        stage.take_down().await.unwrap();
    }

    #[test]
    fn what_is_missing_extra_or_other_is_found() {
        let did = Did::parse("did:plc:aaaaaaaaaaaaaaaaaaaaaaaa").unwrap();
        let rev: Rev = "3l6oveex3ii2l".parse().unwrap();
        let of = |bytes: &'static [u8]| (Cid::dag_cbor(bytes), bytes.into());
        let truth: Records = [
            ("a/same", of(b"1")),
            ("a/other", of(b"2")),
            ("a/gone", of(b"3")),
        ]
        .map(|(path, record)| (path.to_owned(), record))
        .into();
        let held: HeldRecords = [("a/same", b"1"), ("a/other", b"9"), ("a/extra", b"4")]
            .map(|(path, bytes)| (path.as_bytes().to_vec(), Some(bytes.to_vec())))
            .into();
        let mut found = Vec::new();
        differing(&did, rev, &held, &truth, &mut found);
        let all = found.join("\n");
        assert_eq!(found.len(), 3, "{all}");
        assert!(all.contains("a/gone is missing") && all.contains("a/other has other bytes"));
        assert!(all.contains("a/extra is held and was not signed"));
    }
}
