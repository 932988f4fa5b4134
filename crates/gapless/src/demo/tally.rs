//! The running tally of a demonstration: the [`oracle`] compares every record that the mirror
//! holds with the truth again and again, and the tally counts the results.

use std::collections::BTreeSet;
use std::sync::MutexGuard;

use gapless_atp::syntax::Did;
use gapless_core::retain::{ConsumerClass, ConsumerKey, ConsumerNeeds};
use gapless_mirror::Mirror;
use gapless_mirror::api::Inspect as _;
use gapless_mirror::log::consumer::ConsumerInfo;
use gapless_store::error::StoreError;
use gapless_store::sync::Mutex;
use gapless_testnet::Truth;

use crate::demo::DemoError;
use crate::demo::log_observer::LogObserver;
use crate::demo::oracle::{self, Comparison, RecordScope};

/// The most differences that are described; further ones are only counted.
const TOLD: usize = 20;

/// The model that follows the log from its first number, as a consumer of the log.
const OBSERVER: ConsumerKey = ConsumerKey {
    class: ConsumerClass::Backup,
    id: 0,
    lane: 0,
};

/// The results of all comparisons since the beginning.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct OracleTally {
    /// States of repositories that were compared.
    pub checks: u64,
    /// Records that were compared with the truth at the stated rev.
    pub records: u64,
    /// Records that are missing, extra, or have other bytes.
    pub differences: u64,
    /// Differences in repositories that the mirror called complete.
    pub differences_in_complete: u64,
    /// Repositories that were complete and then were not.
    pub gaps_opened: u64,
    /// Repositories that became incomplete and then complete again.
    pub gaps_closed: u64,
    /// Repositories of the network, and those that were complete when last looked at.
    pub repos: u64,
    pub complete: u64,
    /// Comparisons of the store with models that follow the log.
    pub log_checks: u64,
    /// Models that began with a walk, and the last number that another one has read from the first
    /// number on.
    pub log_walks: u64,
    pub log_upto: u64,
    /// Differences between a model and the store.
    pub log_differences: u64,
    /// Descriptions of the first differences.
    pub told: Vec<String>,
    /// Why a comparison failed before its end.
    pub failed: Option<String>,
}

impl OracleTally {
    /// Keeps descriptions of differences, as long as there is room.
    fn tell(&mut self, different: Vec<String>) {
        let room = TOLD.saturating_sub(self.told.len());
        self.told.extend(different.into_iter().take(room));
    }
}

#[derive(Default)]
struct Inner {
    tally: OracleTally,
    /// The repositories that have been complete before.
    known: BTreeSet<Did>,
    /// The repositories that are a gap now.
    open: BTreeSet<Did>,
}

pub(super) struct Judge {
    truth: Truth,
    state: Mutex<Inner>,
    log: Mutex<LogObserver>,
}

impl Judge {
    pub(super) fn new(truth: Truth) -> Judge {
        Judge {
            truth,
            state: Mutex::default(),
            log: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, Inner> {
        self.state.lock()
    }

    pub(super) fn tally(&self) -> OracleTally {
        self.state().tally.clone()
    }

    /// Records that a comparison failed before its end, so that the demonstration fails.
    pub(super) fn fail(&self, why: String) {
        self.state().tally.failed = Some(why);
    }

    /// Compares everything once. Blocks for as long as that takes.
    pub(super) fn pass(&self, mirror: &Mirror) -> Result<(), DemoError> {
        let dids = self.truth.dids();
        let mut complete = 0;
        for did in &dids {
            let compared = self.compare(mirror, did)?;
            complete += u64::from(compared.complete);
            self.note(did, compared);
        }
        let mut log = self.log.lock();
        let different = log.observe(&mirror.services().store)?;
        let observer = ConsumerInfo {
            key: OBSERVER,
            name: "demonstration".to_owned(),
            needs: ConsumerNeeds::LogAndVersions,
        };
        match mirror.report_consumer(&observer, log.read_upto + 1) {
            // An act stops the mirror: the next comparison reports the position.
            Ok(()) | Err(StoreError::Closed) => {}
            Err(error) => return Err(error.into()),
        }
        let mut state = self.state();
        let tally = &mut state.tally;
        tally.repos = dids.len() as u64;
        tally.complete = complete;
        (tally.log_checks, tally.log_walks) = (log.checks, log.walks);
        tally.log_upto = log.read_upto;
        tally.log_differences += different.len() as u64;
        tally.tell(different);
        Ok(())
    }

    fn compare(&self, mirror: &Mirror, did: &Did) -> Result<Comparison, DemoError> {
        let answer = mirror.inspector().repo(did);
        let answer = answer.map_err(|error| DemoError::Mirror(error.to_string()))?;
        let Some(answer) = answer else {
            return Ok(Comparison::default());
        };
        let view = mirror.services().store.view();
        let scope = RecordScope::default();
        Ok(oracle::compare(&self.truth, &scope, &answer, Some(&view))?)
    }

    fn note(&self, did: &Did, compared: Comparison) {
        let mut state = self.state();
        let complete = compared.complete;
        if complete {
            state.known.insert(did.clone());
            state.tally.gaps_closed += u64::from(state.open.remove(did));
        } else if state.known.contains(did) {
            state.tally.gaps_opened += u64::from(state.open.insert(did.clone()));
        }
        let tally = &mut state.tally;
        tally.checks += u64::from(compared.stated);
        tally.records += compared.records;
        let different = compared.different.len() as u64;
        tally.differences += different;
        if complete {
            tally.differences_in_complete += different;
        }
        tally.tell(compared.different);
    }

    /// Why a repository is not complete at the head that its owner has now.
    pub(super) fn behind(&self, mirror: &Mirror, did: &Did) -> Result<Option<String>, StoreError> {
        let Some(head) = self.truth.head(did) else {
            return Ok(Some("its host has lost it".to_owned()));
        };
        let view = mirror.services().store.view();
        let Some((_, repo)) = view.repo_by_did(did)? else {
            return Ok(Some("not known yet".to_owned()));
        };
        let answer = mirror.services().completeness(&repo);
        if !answer.complete() {
            let reasons: Vec<&str> = answer.reasons.iter().map(|one| one.as_str()).collect();
            return Ok(Some(reasons.join(", ")));
        }
        let held = repo.head().map(|held| held.rev);
        Ok((held != Some(head.rev)).then(|| "its newest commit is not known here".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::stage::{Stage, StageOptions};
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
        assert!(tally.told[0].contains("never signed"), "{tally:?}");
        drop(mirror);
        stage.take_down().await.unwrap();
    }
}
