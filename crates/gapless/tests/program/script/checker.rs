//! The checker: asks a mirror without a pause what it holds, while the acts are played.
//! Whatever the mirror states must be what the owner signed at that rev, complete or not.

use std::time::Duration;

use gapless_atp::syntax::Did;
use gapless_harness::http::ask;
use gapless_harness::oracle::{self, RecordScope};
use gapless_mirror::api::RepoAnswer;
use gapless_testnet::Truth;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::script::served::By;

/// One repository in so many is compared record by record.
const RECORDS_COMPARED_EVERY: u64 = 4;
/// The pause between two questions, in which the mirror can work.
const PAUSE: Duration = Duration::from_millis(2);

/// What the checker did.
#[derive(Debug, Default, Clone)]
pub(crate) struct Figures {
    /// Answers that were compared with the truth at the stated rev.
    pub(crate) checks: u64,
    /// Answers that called the repository complete.
    pub(crate) complete: u64,
    /// States of which every record was compared.
    pub(crate) states: u64,
    /// Records that were compared.
    pub(crate) records: u64,
    pub(crate) different: Vec<String>,
}

/// A running checker.
pub(crate) struct Checker {
    /// The port of the mirror; `None` while it is down.
    pub(crate) port: watch::Sender<Option<u16>>,
    stop: watch::Sender<bool>,
    task: JoinHandle<Figures>,
}

impl Checker {
    pub(crate) fn start(truth: Truth, scope: RecordScope) -> Checker {
        let (port, ports) = watch::channel(None);
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(check(truth, scope, ports, stopped));
        Checker { port, stop, task }
    }

    /// Ends the checker.
    ///
    /// # Panics
    /// If the mirror stated anything that is not true.
    pub(crate) async fn stop(self) -> Figures {
        self.stop.send_replace(true);
        let figures = self.task.await.expect("everything that was said is true");
        assert_eq!(figures.different, Vec::<String>::new());
        figures
    }
}

/// Judges an answer that was cut although the script had not ended the mirror. That is right
/// only if the mirror has ended by itself, or has hidden the account meanwhile.
async fn judge_cut(port: u16, did: &Did) -> Option<String> {
    let path = format!("/xrpc/com.atproto.sync.getRepoStatus?did={did}");
    let (_, body) = ask(port, "GET", &path).await?;
    let answer: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
    (answer["active"] == true).then(|| format!("{did}: cut in the middle, and yet {answer}"))
}

async fn check(
    truth: Truth,
    scope: RecordScope,
    mut port: watch::Receiver<Option<u16>>,
    stopped: watch::Receiver<bool>,
) -> Figures {
    let mut figures = Figures::default();
    let (mut by, mut turn) = (None, 0_u64);
    while !*stopped.borrow() {
        for did in truth.dids() {
            let Some(at) = *port.borrow_and_update() else {
                break;
            };
            turn += 1;
            if by.is_none() {
                by = By::best(at, &did).await;
            }
            let path = format!("/v1/repos/{did}");
            if let Some((200, body)) = ask(at, "GET", &path).await {
                let answer: RepoAnswer =
                    serde_json::from_slice(&body).expect("as the contract has it");
                let compared = oracle::compare(&truth, &scope, &answer, None);
                figures
                    .different
                    .extend(compared.expect("no store is read").different);
                figures.checks += 1;
                figures.complete += u64::from(answer.complete);
            }
            if turn % RECORDS_COMPARED_EVERY == 0
                && let Some(by) = by
                && let Some(compared) = by.compare(at, &truth, &did).await
            {
                figures.records += compared.records;
                figures.different.extend(compared.different);
                if !compared.cut {
                    figures.states += 1;
                } else if !port.has_changed().unwrap_or(true) {
                    figures.different.extend(judge_cut(at, &did).await);
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
        tokio::time::sleep(PAUSE).await;
    }
    figures
}
