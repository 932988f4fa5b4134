//! How the acts break a test network: events and fetches, streams, accounts and the directory.

use gapless_atp::crypto::Curve;
use gapless_atp::syntax::Did;
use gapless_mirror::api::Status;
use gapless_testnet::{Fault, NewAccount, Place, Spec, Status as AccountStatus, Testnet, Write};

use crate::demo::DemoError;
use crate::demo::acts::LOST;
use crate::demo::acts::network::{
    MirroredNetwork, accounts_of, accounts_on, break_chain, drop_next, inject, network_error, post,
    scripted_account, until, until_complete, until_fired, until_incomplete, url,
};

/// Events that a stream keeps for replay, unless an act says otherwise.
const WINDOW: usize = 50_000;
/// The host that is wiped.
const WIPED: usize = 2;

type ChangedRepos = Result<Vec<Did>, DemoError>;

pub(super) fn lose_event(net: &Testnet) -> ChangedRepos {
    let did = scripted_account(net, 0, 0)?;
    drop_next(net, &did)?;
    post(net, &did)?;
    Ok(vec![did])
}

pub(super) fn lose_delete(net: &Testnet) -> ChangedRepos {
    let did = scripted_account(net, 1, 0)?;
    let fails = Fault::HttpError {
        status: 503,
        retry_after: None,
        route: Some("getRepo".to_owned()),
    };
    inject(net, Spec::new(fails).of(&did).times(2))?;
    let records = net.truth().records(&did).unwrap_or_default();
    let path = records.into_keys().next();
    let path = path.ok_or_else(|| network_error(format!("{did} has no record")))?;
    drop_next(net, &did)?;
    let deleted = net.write(&did, &[Write::Delete { path }]);
    deleted.map_err(network_error)?;
    post(net, &did)?;
    Ok(vec![did])
}

pub(super) fn spoil_fetch(
    net: &Testnet,
    (host, number): (usize, usize),
    fault: &Fault,
) -> ChangedRepos {
    let did = scripted_account(net, host, number)?;
    // The mirror fetches the difference first, then the whole repository; both are spoilt.
    inject(net, Spec::new(fault.clone()).of(&did).times(2))?;
    break_chain(net, &did)?;
    Ok(vec![did])
}

pub(super) async fn sync_during_fetch(on: &mut impl MirroredNetwork) -> ChangedRepos {
    let did = scripted_account(on.net(), 0, 4)?;
    let stalled = on.net().faults().fired("stall");
    let stall = Fault::Stall {
        ms: None,
        route: Some("getRepo".to_owned()),
    };
    inject(on.net(), Spec::new(stall).on(Place::Pds(0)).of(&did))?;
    break_chain(on.net(), &did)?;
    until_fired(on, "stall", stalled + 1).await?;
    inject(on.net(), Spec::new(Fault::Sync {}).of(&did))?;
    post(on.net(), &did)?;
    inject(on.net(), Spec::new(Fault::Sync {}).of(&did))?;
    on.net().clear_faults(Some("stall"));
    Ok(vec![did])
}

pub(super) async fn refuse_dials<N: MirroredNetwork>(
    on: &mut N,
    refusals: &[(u16, u64)],
) -> ChangedRepos {
    let (net, stream) = (on.net(), on.stream(2));
    let mut least = net.faults().fired("dial-error");
    for (status, times) in refusals {
        let refused = Fault::DialError { status: *status };
        inject(net, Spec::new(refused).on(stream).times(*times))?;
        least += times;
    }
    inject(net, Spec::new(Fault::Disconnect {}).on(stream))?;
    net.stir(30);
    let dids = vec![scripted_account(net, 2, 2)?, scripted_account(net, 2, 3)?];
    for did in dids.iter().chain(&dids) {
        post(net, did)?;
    }
    until_fired(on, "dial-error", least).await?;
    let url = url(on.net(), stream);
    let connected = |status: &Status| {
        let mut all = status.upstreams.iter();
        all.any(|one| Some(&one.url) == url.as_ref() && one.connected)
    };
    until(on, "the stream is connected again", N::status, connected).await?;
    Ok(dids)
}

pub(super) async fn pass_window(on: &mut impl MirroredNetwork) -> ChangedRepos {
    on.stop_mirror().await?;
    let (net, stream) = (on.net(), on.stream(0));
    net.stir(40);
    for did in net.truth().dids() {
        post(net, &did)?;
    }
    inject(net, Spec::new(Fault::Window { events: 1 }).on(stream))?;
    on.start_mirror().await?;
    let window = Fault::Window { events: WINDOW };
    inject(on.net(), Spec::new(window).on(stream))?;
    Ok(accounts_of(on, stream))
}

pub(super) async fn restart_sequence<N: MirroredNetwork>(on: &mut N) -> ChangedRepos {
    let stream = on.stream(1);
    let url = url(on.net(), stream);
    let epoch = |status: &Status| {
        let mut all = status.upstreams.iter();
        let ours = all.find(|one| Some(&one.url) == url.as_ref());
        ours.map(|one| one.epoch)
    };
    let before = epoch(&on.status().await?);
    let restart = Fault::SeqRestart { next: 1 };
    inject(on.net(), Spec::new(restart).on(stream))?;
    on.net().stir(20);
    let is_new = |status: &Status| epoch(status) > before;
    until(on, "the mirror begins a new epoch", N::status, is_new).await?;
    on.net().stir(20);
    Ok(accounts_of(on, stream))
}

pub(super) fn omit_events(net: &Testnet) -> ChangedRepos {
    let did = scripted_account(net, 1, 2)?;
    inject(net, Spec::new(Fault::RelayOmit {}).of(&did))?;
    for _ in 0..3 {
        post(net, &did)?;
    }
    net.clear_faults(Some("relay-omit"));
    Ok(vec![did])
}

pub(super) fn skip_number(net: &Testnet) -> ChangedRepos {
    let did = scripted_account(net, 1, 3)?;
    inject(net, Spec::new(Fault::RelayGap {}).of(&did).times(1))?;
    post(net, &did)?;
    Ok(vec![did])
}

/// Rolls the relay back, so that other events get numbers that were given before. Then makes
/// events until their numbers are higher than before.
pub(super) async fn roll_relay_back(on: &mut impl MirroredNetwork) -> ChangedRepos {
    let last_seq = |net: &Testnet| net.last_seq(Place::Relay);
    on.net().stir(60);
    let dids = accounts_of(on, Place::Relay);
    until_complete(on, &dids).await?;
    let before = last_seq(on.net());
    let rollback = Spec::new(Fault::RelayRollback { events: 30 });
    inject(on.net(), rollback.on(Place::Relay))?;
    inject(on.net(), Spec::new(Fault::Disconnect {}).on(Place::Relay))?;
    if last_seq(on.net()) >= before {
        return Err(network_error("the relay was not rolled back"));
    }
    on.net().stir(15);
    until_complete(on, &dids).await?;
    on.net().stir(40);
    until_complete(on, &dids).await?;
    if last_seq(on.net()) <= before {
        return Err(network_error("the relay has not passed its old numbers"));
    }
    Ok(dids)
}

pub(super) fn rotate_key(net: &Testnet) -> ChangedRepos {
    let did = scripted_account(net, 2, 1)?;
    inject(net, Spec::new(Fault::RotateKey { quiet: true }).of(&did))?;
    post(net, &did)?;
    Ok(vec![did])
}

pub(super) async fn take_directory_down(on: &mut impl MirroredNetwork) -> ChangedRepos {
    let net = on.net();
    let asked = net.faults().fired("plc-down");
    inject(net, Spec::new(Fault::PlcDown {}))?;
    let did = scripted_account(net, 0, 2)?;
    inject(net, Spec::new(Fault::RotateKey { quiet: true }).of(&did))?;
    let unjudged = post(net, &did)?.rev.to_string();
    let newcomer = net.create_account(NewAccount {
        host: 1,
        curve: Curve::P256,
        web: false,
        records: 12,
    });
    let newcomer = newcomer.map_err(network_error)?;
    until_incomplete(on, &did).await?;
    until_fired(on, "plc-down", asked + 2).await?;
    let answer = on.repo(&did).await?;
    if answer.is_none_or(|answer| answer.rev == Some(unjudged)) {
        let words = format!("{did}: a commit was applied without the key of its owner");
        return Err(DemoError::Wrong(words));
    }
    Ok(vec![did, newcomer])
}

pub(super) fn migrate(net: &Testnet) -> ChangedRepos {
    let did = scripted_account(net, 0, 3)?;
    inject(net, Spec::new(Fault::Drop { unnumbered: false }).of(&did))?;
    post(net, &did)?;
    let (to, import) = (Some(1), false);
    inject(net, Spec::new(Fault::Migrate { to, import }).of(&did))?;
    post(net, &did)?;
    net.clear_faults(Some("drop"));
    Ok(vec![did])
}

pub(super) async fn wipe_host<N: MirroredNetwork>(on: &mut N) -> ChangedRepos {
    let net = on.net();
    let mut lost = accounts_on(net, WIPED);
    lost.truncate(LOST);
    let silent = Spec::new(Fault::LostAccount {});
    inject(net, silent.on(Place::Pds(WIPED)))?;
    for did in &lost {
        net.set_status(did, AccountStatus::Deleted)
            .map_err(network_error)?;
    }
    net.clear_faults(Some("lost-account"));
    let url = net.urls().pds[WIPED].clone();
    let suspended = |status: &Status| status.hiding_suspended.contains(&url);
    until(on, "the mirror doubts the host", N::status, suspended).await?;
    for did in &lost {
        until_incomplete(on, did).await?;
    }
    Ok(lost)
}

/// Gives the lost accounts back to their host, and describes that. Fails unless the mirror still
/// shows each account as active with its records.
pub(super) async fn restore_host(
    on: &mut impl MirroredNetwork,
    lost: &[Did],
) -> Result<String, DemoError> {
    let mut kept = 0;
    for did in lost {
        let answer = on.repo(did).await?;
        let held = answer.filter(|answer| answer.account == "active");
        let records = held.and_then(|answer| answer.records).unwrap_or(0);
        if records == 0 {
            return Err(DemoError::Wrong(format!("{did}: nothing of it is left")));
        }
        kept += records;
        let restored = on.net().set_status(did, AccountStatus::Active);
        restored.map_err(network_error)?;
    }
    let many = lost.len();
    Ok(format!(
        "hiding suspended, nothing purged: all {kept} records of the {many} are held; the host has them again"
    ))
}
