//! Questions that sweeps put: about each repository of a host that has few, about
//! suspects once they have no excuse, and about heads that are to be confirmed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::stream::{FuturesUnordered, StreamExt};
use gapless_atp::syntax::Did;
use gapless_core::ledger::deletion;
use gapless_core::ledger::settings::SUSPECT_PATIENCE;
use gapless_core::ledger::sweep::{self, PageNote, Suspect, SuspectDecision};
use gapless_core::ledger::{HostId, Tick, account};
use gapless_core::repo_tx::answer::AskReason;
use gapless_store::error::StoreError;

use crate::desk::Turn;
use crate::repair::ask_head::Asked;
use crate::store_io::blocking;
use crate::sweep::{Cut, Sweep, Sweeper};

/// Questions about suspects and heads to confirm at a time, of one host.
const QUESTIONS: usize = 4;
/// A host of which we know fewer repositories, and whose listing we do not want
/// as a whole, is asked about each of them instead.
const ASK_EACH: usize = 100;
/// Suspects that are looked at again after so long.
const SUSPECTS_EVERY: Duration = Duration::from_millis(250);

/// The repositories of a host that has few.
#[derive(Default)]
pub(crate) struct Few {
    dids: Vec<Did>,
    /// How many of them are not hidden.
    shown: u64,
    /// Those that a relay calls deleted.
    awaiting: Vec<Did>,
}

/// What came of a question, and how long that took.
struct Put {
    did: Did,
    asked: Asked,
    took: Duration,
}

impl Few {
    pub(crate) fn is_empty(&self) -> bool {
        self.dids.is_empty()
    }
}

impl Sweep {
    /// Returns whether there was an answer; an error when no more are waited for.
    fn hear(&mut self, put: Put) -> Result<bool, String> {
        let took = put.took / QUESTIONS as u32;
        self.cost.took += took;
        if put.asked == Asked::Vanished {
            self.vanished.push(put.did);
        }
        let answered = matches!(put.asked, Asked::Answered | Asked::Vanished);
        if put.asked != Asked::Busy {
            self.patience.question(took, answered)?;
        }
        Ok(answered)
    }
}

impl Sweeper {
    /// The repositories that we know of a host, if they are few.
    pub(crate) async fn few(&self, host: HostId) -> Result<Option<Few>, StoreError> {
        let store = self.fetcher.services.store.clone();
        let read = move || {
            let view = store.view();
            let mut few = Few::default();
            for id in view.hosted(host) {
                if few.dids.len() > ASK_EACH {
                    return Ok(None);
                }
                if let Some(repo) = view.repo(id?)? {
                    few.shown += u64::from(!account::is_hidden(repo.account));
                    if deletion::awaited_evidence(&repo).is_some() {
                        few.awaiting.push(repo.did.clone());
                    }
                    few.dids.push(repo.did);
                }
            }
            Ok(Some(few))
        };
        let metrics = &self.fetcher.services.metrics;
        blocking(metrics, "reading the repositories of a host", read).await
    }

    /// Every repository of a host by itself. The host is swept only if it has
    /// answered about all of them.
    pub(crate) async fn ask_each(&self, sweep: &mut Sweep, few: Few) -> Result<(), Cut> {
        (sweep.all, sweep.awaiting) = (few.shown, few.awaiting);
        let mut asking = FuturesUnordered::new();
        let mut dids = few.dids.into_iter();
        loop {
            while asking.len() < QUESTIONS
                && let Some(did) = dids.next()
            {
                asking.push(self.put(sweep.host, sweep.began.tick, did, AskReason::Sweep, false));
            }
            let Some(put) = asking.next().await else {
                return Ok(());
            };
            let put = put?;
            let did = put.did.clone();
            if !self.hear(sweep, put)? {
                sweep.pass(self.unanswered(&did));
            }
            if self.fetcher.services.shutdown.has_begun() {
                return Err(Cut::ending());
            }
        }
    }

    /// Puts one question; somebody who is at work for the repository is waited for,
    /// unless being owed is `enough` and something is owed. Without an answer it is
    /// owed, durably, before anything is said of the sweep.
    async fn put(
        &self,
        host: HostId,
        began: Tick,
        did: Did,
        why: AskReason,
        enough: bool,
    ) -> Result<Put, StoreError> {
        let since = Instant::now();
        let mut put = since;
        let mut asked = self.fetcher.ask(&did, host, why).await;
        while asked == Asked::Busy
            && since.elapsed() < SUSPECT_PATIENCE
            && !(enough && self.owes(&did)?)
            && !self.fetcher.services.shutdown.has_begun()
        {
            tokio::time::sleep(SUSPECTS_EVERY).await;
            put = Instant::now();
            asked = self.fetcher.ask(&did, host, why).await;
        }
        let took = put.elapsed();
        if matches!(asked, Asked::Answered | Asked::Vanished) {
            return Ok(Put { did, asked, took });
        }
        let visit = self.fetcher.desks.visit(&did, move |turn: &mut Turn<'_>| {
            let now = turn.services.clock.now();
            if let Some(tx) = turn.tx.as_mut() {
                sweep::question_unanswered(now, &mut tx.repo, began);
            }
        });
        visit.await?;
        Ok(Put { did, asked, took })
    }

    /// Returns whether there was an answer. The sweep ends when the host answers
    /// too little: what was not asked stays as it was.
    fn hear(&self, sweep: &mut Sweep, put: Put) -> Result<bool, Cut> {
        let did = put.did.clone();
        let heard = sweep.hear(put);
        heard.map_err(|why| Cut::Short(format!("{why}; the last: {}", self.unanswered(&did))))
    }

    /// Why there was no answer, in words.
    fn unanswered(&self, did: &Did) -> String {
        match self.fetcher.last_errors.of(did) {
            Some(trouble) => format!("no answer about {did}: {}", trouble.error),
            None => format!("no answer about {did}"),
        }
    }

    fn owes(&self, did: &Did) -> Result<bool, StoreError> {
        let found = self.fetcher.services.store.view().repo_by_did(did)?;
        Ok(found.is_some_and(|(_, repo)| !repo.debt.is_empty()))
    }

    /// Asks about suspects once they have no excuse, and about heads that are to
    /// be confirmed.
    pub(crate) async fn questions(&self, sweep: &mut Sweep) -> Result<(), Cut> {
        let (host, began) = (sweep.host, sweep.began.tick);
        let mut asking = FuturesUnordered::new();
        let mut waiting = std::mem::take(&mut sweep.suspects);
        let mut confirm = std::mem::take(&mut sweep.confirm).into_iter();
        let mut ready: Vec<(Did, AskReason)> = Vec::new();
        let mut looked = None::<Instant>;
        loop {
            self.sweeps
                .change(host, |state| state.suspects = waiting.len() as u64);
            if looked.is_none_or(|at| at.elapsed() >= SUSPECTS_EVERY) {
                looked = Some(Instant::now());
                waiting = self.look_at(waiting, &mut ready).await?;
            }
            while asking.len() < QUESTIONS {
                let next = ready
                    .pop()
                    .or_else(|| confirm.next().map(|did| (did, AskReason::Sweep)));
                let Some((did, why)) = next else {
                    break;
                };
                asking.push(self.put(host, began, did, why, true));
            }
            if asking.is_empty() && waiting.is_empty() {
                return Ok(());
            }
            if self.fetcher.services.shutdown.has_begun() {
                return Err(Cut::ending());
            }
            tokio::select! {
                Some(put) = asking.next() => {
                    // One that was not answered is owed: the others do not wait.
                    self.hear(sweep, put?)?;
                }
                () = tokio::time::sleep(SUSPECTS_EVERY) => {}
            }
        }
    }

    async fn look_at(
        &self,
        suspects: Vec<(Did, Suspect, Arc<PageNote>)>,
        ready: &mut Vec<(Did, AskReason)>,
    ) -> Result<Vec<(Did, Suspect, Arc<PageNote>)>, StoreError> {
        let services = &self.fetcher.services;
        let mut rest = Vec::new();
        for (did, suspect, page) in suspects {
            let view = services.store.view();
            let durable = match suspect.upto {
                None => None,
                Some(upto) => {
                    let numbering = view.upstream(upto.upstream)?.map(|row| row.numbering);
                    numbering.zip(view.cursor(upto.upstream)?)
                }
            };
            let noted = page.clone();
            let told = self.fetcher.desks.visit(&did, move |turn: &mut Turn<'_>| {
                let services = turn.services;
                let tx = turn.tx.as_mut()?;
                let now = services.clock.now();
                let repo = &tx.repo;
                let suspicion = services.decide(now, |context| {
                    sweep::review_suspect(context, repo, &suspect, durable)
                });
                if suspicion == SuspectDecision::Cleared {
                    let repo = &mut tx.repo;
                    services.decide(now, |context| {
                        sweep::suspect_cleared(context, repo, &noted, &suspect)
                    });
                }
                Some(suspicion)
            });
            match told.await? {
                None | Some(SuspectDecision::Cleared) => {}
                Some(SuspectDecision::Wait) => rest.push((did, suspect, page)),
                Some(SuspectDecision::Ask) => ready.push((did, AskReason::Suspect(suspect))),
            }
        }
        Ok(rest)
    }
}
