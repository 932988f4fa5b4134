//! Acts that change keys, hosts and the existence of accounts, and the directory.

use gapless_atp::crypto::Curve;
use gapless_atp::syntax::Did;
use gapless_testnet::{Fault, NewAccount, Place, Spec, Status, Testnet};

use crate::demo::DemoError;
use crate::demo::acts::network::{
    MirroredNetwork, accounts_on, cast, clear, inject, network_error, post, until_fired,
    until_repo, until_status,
};
use crate::demo::acts::{Breakage, LOST};

/// The host that is wiped.
const WIPED: usize = 2;

pub fn rotate_key(net: &Testnet) -> Result<Breakage, DemoError> {
    let did = cast(net, 2, 1)?;
    inject(net, Spec::new(Fault::RotateKey { quiet: true }).of(&did))?;
    post(net, &did)?;
    let words = "an account has a new key, and no event says so; it writes";
    Ok(Breakage::new(words, vec![did]))
}

pub async fn take_directory_down(on: &mut impl MirroredNetwork) -> Result<Breakage, DemoError> {
    let net = on.net();
    let asked = net.faults().fired("plc-down");
    inject(net, Spec::new(Fault::PlcDown {}))?;
    let did = cast(net, 0, 2)?;
    inject(net, Spec::new(Fault::RotateKey { quiet: true }).of(&did))?;
    let unjudged = post(net, &did)?.rev.to_string();
    let newcomer = net.create_account(NewAccount {
        host: 1,
        curve: Curve::P256,
        web: false,
        records: 12,
    });
    let newcomer = newcomer.map_err(network_error)?;
    until_repo(on, &did, "it is in doubt", |answer| !answer.complete).await?;
    until_fired(on, "plc-down", asked + 2).await?;
    let answer = on.repo(&did).await?;
    if answer.is_none_or(|answer| answer.rev == Some(unjudged)) {
        let words = format!("{did}: a commit was applied without the key of its owner");
        return Err(DemoError::Wrong(words));
    }
    let words = "the directory answers 503 while an account has a new key and another one is new";
    Ok(Breakage::new(words, vec![did, newcomer]))
}

pub fn migrate(net: &Testnet) -> Result<Breakage, DemoError> {
    let did = cast(net, 0, 3)?;
    let lost = inject(net, Spec::new(Fault::Drop { unnumbered: false }).of(&did))?;
    post(net, &did)?;
    let (to, import) = (Some(1), false);
    inject(net, Spec::new(Fault::Migrate { to, import }).of(&did))?;
    post(net, &did)?;
    clear(net, lost);
    let words = "an account moves to another host; every event about it is lost";
    Ok(Breakage::new(words, vec![did]))
}

pub async fn wipe_host(on: &mut impl MirroredNetwork) -> Result<Breakage, DemoError> {
    let net = on.net();
    let mut lost = accounts_on(net, WIPED);
    lost.truncate(LOST);
    let silent = Spec::new(Fault::LostAccount {}).on(Place::Pds(WIPED));
    let silent = inject(net, silent)?;
    for did in &lost {
        net.set_status(did, Status::Deleted)
            .map_err(network_error)?;
    }
    clear(net, silent);
    let url = net.urls().pds[WIPED].clone();
    until_status(on, "the mirror doubts the host", |status| {
        status.hiding_suspended.contains(&url)
    })
    .await?;
    for did in &lost {
        until_repo(on, did, "it is in doubt", |answer| !answer.complete).await?;
    }
    let many = lost.len();
    let words = format!("a host has lost {many} repositories, and says nothing of it");
    Ok(Breakage::new(words, lost))
}

/// Fails unless every record of the lost accounts is held, and gives the accounts back to
/// their host. Says so.
pub async fn restore_host(
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
        let restored = on.net().set_status(did, Status::Active);
        restored.map_err(network_error)?;
    }
    let many = lost.len();
    Ok(format!(
        "hiding suspended, nothing purged: all {kept} records of the {many} are held; the host has them again"
    ))
}
