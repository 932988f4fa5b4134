//! The network on which the acts are played, and their common steps and waits. Every wait has a
//! deadline, and its error reports what was last seen.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use gapless_atp::syntax::Did;
use gapless_mirror::api::{RepoAnswer, Status};
use gapless_testnet::{Fault, NewCommit, Place, SetFault, Spec, Testnet, Write};

use crate::demo::acts::HOSTS;
use crate::demo::traffic::{new_path, record};
use crate::demo::{DemoError, REPAIR_TIMEOUT};

/// How often a condition is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A test network with [`HOSTS`] hosts, and a mirror of it that can be stopped and started.
#[expect(
    async_fn_in_trait,
    reason = "acts are played by one task, never spawned"
)]
pub trait MirroredNetwork {
    fn net(&self) -> &Testnet;

    /// The stream by which the mirror receives the events of a host.
    fn stream(&self, host: usize) -> Place;

    /// The mirror's answer about a repository; `None` if the mirror does not know it.
    async fn repo(&mut self, did: &Did) -> Result<Option<RepoAnswer>, DemoError>;

    async fn status(&mut self) -> Result<Status, DemoError>;

    async fn stop_mirror(&mut self) -> Result<(), DemoError>;

    /// Starts the mirror again on its existing data.
    async fn start_mirror(&mut self) -> Result<(), DemoError>;
}

pub(super) fn network_error(error: impl ToString) -> DemoError {
    DemoError::Network(error.to_string())
}

/// The account of a host, by its number there, to which only the acts write. Numbers are
/// below [`CAST`](super::CAST); an account keeps its number when it moves.
pub(super) fn scripted_account(
    net: &Testnet,
    host: usize,
    number: usize,
) -> Result<Did, DemoError> {
    let did = net.truth().dids().get(number * HOSTS + host).cloned();
    did.ok_or_else(|| network_error("there are too few accounts"))
}

/// The accounts that a host has now.
pub(super) fn accounts_on(net: &Testnet, host: usize) -> Vec<Did> {
    let truth = net.truth();
    let lives = |did: &Did| truth.head(did).is_some_and(|head| head.host == host);
    truth.dids().into_iter().filter(lives).collect()
}

/// The accounts whose events the mirror receives by a stream.
pub(super) fn accounts_of(on: &impl MirroredNetwork, stream: Place) -> Vec<Did> {
    let hosts = (0..HOSTS).filter(|host| on.stream(*host) == stream);
    hosts.flat_map(|host| accounts_on(on.net(), host)).collect()
}

/// The URL of a stream; `None` for a server that has none.
pub(super) fn url(net: &Testnet, stream: Place) -> Option<String> {
    match stream {
        Place::Pds(host) => net.urls().pds.get(host).cloned(),
        _ => net.urls().relay.clone(),
    }
}

/// Injects a fault. A fault that is done at once must have fired.
pub(super) fn inject(net: &Testnet, spec: Spec) -> Result<SetFault, DemoError> {
    let set = net.fault(spec.clone()).map_err(network_error)?;
    if set.id.is_none() && set.fired == 0 {
        return Err(network_error(format!("{spec:?} did nothing")));
    }
    Ok(set)
}

/// Makes one commit with one new record.
pub(super) fn post(net: &Testnet, did: &Did) -> Result<NewCommit, DemoError> {
    let path = new_path();
    let record = record(&path);
    let written = net.write(did, &[Write::Create { path, record }]);
    written.map_err(network_error)
}

/// Makes the next event of an account get a number and never be sent.
pub(super) fn drop_next(net: &Testnet, did: &Did) -> Result<SetFault, DemoError> {
    let fault = Fault::Drop { unnumbered: false };
    inject(net, Spec::new(fault).of(did).times(1))
}

/// Makes a commit whose event is lost, then another one, which does not chain.
pub(super) fn break_chain(net: &Testnet, did: &Did) -> Result<(), DemoError> {
    drop_next(net, did)?;
    post(net, did)?;
    post(net, did).map(drop)
}

type DemoResult = Result<(), DemoError>;

/// Asks until the answer is as wanted.
pub(super) async fn until<N: MirroredNetwork, T: Debug>(
    on: &mut N,
    what: &str,
    mut ask: impl AsyncFnMut(&mut N) -> Result<T, DemoError>,
    wanted: impl Fn(&T) -> bool,
) -> DemoResult {
    let began = Instant::now();
    loop {
        let answer = ask(on).await?;
        if wanted(&answer) {
            return Ok(());
        }
        if began.elapsed() > REPAIR_TIMEOUT {
            let words = format!(
                "the demo expected within {} s that {what}; the last answer was {answer:?}",
                REPAIR_TIMEOUT.as_secs()
            );
            return Err(DemoError::Wrong(words));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Waits until a repository is not complete.
pub(super) async fn until_incomplete<N: MirroredNetwork>(on: &mut N, did: &Did) -> DemoResult {
    let ask = async |on: &mut N| on.repo(did).await;
    let doubted = |answer: &Option<RepoAnswer>| answer.as_ref().is_none_or(|one| !one.complete);
    until(on, &format!("{did} is in doubt"), ask, doubted).await
}

/// Waits until repositories are complete at the heads of their owners.
pub(super) async fn until_complete<N: MirroredNetwork>(on: &mut N, dids: &[Did]) -> DemoResult {
    let truth = on.net().truth();
    for did in dids {
        let ask = async |on: &mut N| on.repo(did).await;
        let complete = |answer: &Option<RepoAnswer>| {
            let head = truth.head(did).map(|head| head.rev.to_string());
            let found = answer.as_ref();
            found.is_some_and(|found| found.complete && found.rev == head)
        };
        until(on, &format!("{did} is complete"), ask, complete).await?;
    }
    Ok(())
}

/// Waits until faults of this name have fired at least `least` times.
pub(super) async fn until_fired<N: MirroredNetwork>(
    on: &mut N,
    fault: &str,
    least: u64,
) -> DemoResult {
    let ask = async |on: &mut N| Ok(on.net().faults().fired(fault));
    until(on, &format!("{fault} has fired"), ask, |fired| {
        *fired >= least
    })
    .await
}
