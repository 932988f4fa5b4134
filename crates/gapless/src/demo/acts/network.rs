//! What the acts are played on, and what they do there and wait for. Every wait has a deadline
//! and fails with what was last seen.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use gapless_atp::syntax::Did;
use gapless_mirror::api::{RepoAnswer, Status, UpstreamAnswer};
use gapless_testnet::{Fault, NewCommit, Place, SetFault, Spec, Testnet, Write};

use crate::demo::acts::HOSTS;
use crate::demo::traffic::{new_path, record};
use crate::demo::{DemoError, REPAIR_TIMEOUT};

/// How often a condition is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A test network with [`HOSTS`] hosts, and a mirror of it that can be stopped and started.
pub trait MirroredNetwork {
    fn net(&self) -> &Testnet;

    /// The stream by which the mirror receives the events of a host.
    fn stream(&self, host: usize) -> Place;

    /// The mirror's answer about a repository; `None` if the mirror does not know it.
    fn repo(&mut self, did: &Did) -> impl Future<Output = Result<Option<RepoAnswer>, DemoError>>;

    fn status(&mut self) -> impl Future<Output = Result<Status, DemoError>>;

    fn stop_mirror(&mut self) -> impl Future<Output = Result<(), DemoError>>;

    /// Starts the mirror again on its existing data.
    fn start_mirror(&mut self) -> impl Future<Output = Result<(), DemoError>>;
}

pub(super) fn network_error(error: impl ToString) -> DemoError {
    DemoError::Network(error.to_string())
}

/// The account of a host, by its number there, to which only the acts write. Numbers are
/// below [`CAST`](super::CAST); an account keeps its number when it moves.
pub(super) fn cast(net: &Testnet, host: usize, number: usize) -> Result<Did, DemoError> {
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

/// Injects a fault. A fault that is done at once must have fired.
pub(super) fn inject(net: &Testnet, spec: Spec) -> Result<SetFault, DemoError> {
    let set = net.fault(spec.clone()).map_err(network_error)?;
    if set.id.is_none() && set.fired == 0 {
        return Err(network_error(format!("{spec:?} did nothing")));
    }
    Ok(set)
}

/// Ends a fault.
pub(super) fn clear(net: &Testnet, set: SetFault) {
    if let Some(id) = set.id {
        net.clear_fault(id);
    }
}

pub(super) fn write(net: &Testnet, did: &Did, write: Write) -> Result<NewCommit, DemoError> {
    net.write(did, &[write]).map_err(network_error)
}

/// One commit with one new record.
pub(super) fn post(net: &Testnet, did: &Did) -> Result<NewCommit, DemoError> {
    let path = new_path();
    let record = record(&path);
    write(net, did, Write::Create { path, record })
}

/// The next event of an account gets a number and is never sent.
pub(super) fn drop_next(net: &Testnet, did: &Did) -> Result<SetFault, DemoError> {
    let fault = Fault::Drop { unnumbered: false };
    inject(net, Spec::new(fault).of(did).times(1))
}

/// Loses a commit, and makes another one that does not chain.
pub(super) fn break_chain(net: &Testnet, did: &Did) -> Result<(), DemoError> {
    drop_next(net, did)?;
    post(net, did)?;
    post(net, did).map(drop)
}

/// Waits until a condition yields a value; while it does not hold, it yields what it saw.
async fn until<N: MirroredNetwork, T>(
    on: &mut N,
    what: &str,
    mut condition: impl AsyncFnMut(&mut N) -> Result<Result<T, String>, DemoError>,
) -> Result<T, DemoError> {
    let began = Instant::now();
    loop {
        match condition(on).await? {
            Ok(value) => return Ok(value),
            Err(seen) if began.elapsed() > REPAIR_TIMEOUT => {
                let words = format!("in vain waited until {what}; last seen: {seen}");
                return Err(DemoError::Wrong(words));
            }
            Err(_) => tokio::time::sleep(POLL_INTERVAL).await,
        }
    }
}

/// `found` if it is as wanted, otherwise its description.
fn if_wanted<T: Debug>(found: Option<T>, wanted: impl Fn(&T) -> bool) -> Result<T, String> {
    match found {
        Some(found) if wanted(&found) => Ok(found),
        seen => Err(format!("{seen:?}")),
    }
}

/// Waits until the answer about a repository is as wanted.
pub(super) async fn until_repo(
    on: &mut impl MirroredNetwork,
    did: &Did,
    what: &str,
    wanted: impl Fn(&RepoAnswer) -> bool,
) -> Result<RepoAnswer, DemoError> {
    until(on, &format!("{did}: {what}"), async |on| {
        Ok(if_wanted(on.repo(did).await?, &wanted))
    })
    .await
}

/// Waits until repositories are complete at the heads of their owners.
pub(super) async fn until_complete(
    on: &mut impl MirroredNetwork,
    dids: &[Did],
) -> Result<(), DemoError> {
    let truth = on.net().truth();
    for did in dids {
        let is_at_head = |answer: &RepoAnswer| {
            let head = truth.head(did).map(|head| head.rev.to_string());
            answer.complete && answer.rev == head
        };
        until_repo(on, did, "it is complete at its head", is_at_head).await?;
    }
    Ok(())
}

pub(super) async fn until_status(
    on: &mut impl MirroredNetwork,
    what: &str,
    wanted: impl Fn(&Status) -> bool,
) -> Result<Status, DemoError> {
    until(on, what, async |on| {
        Ok(if_wanted(Some(on.status().await?), &wanted))
    })
    .await
}

/// What the mirror says of an upstream.
pub(super) async fn upstream(
    on: &mut impl MirroredNetwork,
    stream: Place,
) -> Result<UpstreamAnswer, DemoError> {
    until_upstream(on, stream, "the mirror follows it", |_| true).await
}

/// Waits until the answer about an upstream is as wanted.
pub(super) async fn until_upstream(
    on: &mut impl MirroredNetwork,
    stream: Place,
    what: &str,
    wanted: impl Fn(&UpstreamAnswer) -> bool,
) -> Result<UpstreamAnswer, DemoError> {
    let urls = on.net().urls();
    let url = match stream {
        Place::Pds(host) => urls.pds.get(host).cloned(),
        _ => urls.relay.clone(),
    };
    until(on, &format!("{stream}: {what}"), async |on| {
        let mut all = on.status().await?.upstreams.into_iter();
        let found = all.find(|one| Some(&one.url) == url.as_ref());
        Ok(if_wanted(found, &wanted))
    })
    .await
}

/// Waits until faults of this name have fired so often.
pub(super) async fn until_fired(
    on: &mut impl MirroredNetwork,
    fault: &str,
    least: u64,
) -> Result<(), DemoError> {
    until(on, &format!("{fault} has fired"), async |on| {
        let fired = on.net().faults().fired(fault);
        Ok(if_wanted(Some(fired), |fired| *fired >= least).map(drop))
    })
    .await
}
