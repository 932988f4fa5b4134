//! Acts that lose an event and damage the fetch that would repair the gap.

use gapless_testnet::{Fault, Place, Spec, Testnet, Write};

use crate::demo::DemoError;
use crate::demo::acts::Breakage;
use crate::demo::acts::network::{
    MirroredNetwork, break_chain, cast, clear, drop_next, inject, network_error, post, until_fired,
    write,
};

pub fn lose_event(net: &Testnet) -> Result<Breakage, DemoError> {
    let did = cast(net, 0, 0)?;
    drop_next(net, &did)?;
    post(net, &did)?;
    let words = "a commit is lost on its way to us, and nothing follows it";
    Ok(Breakage::new(words, vec![did]))
}

pub fn lose_delete(net: &Testnet) -> Result<Breakage, DemoError> {
    let did = cast(net, 1, 0)?;
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
    write(net, &did, Write::Delete { path })?;
    post(net, &did)?;
    let words = "a delete is lost, a commit follows, and getRepo answers 503 twice";
    Ok(Breakage::new(words, vec![did]))
}

/// Damages the fetched repository of a cast account, by host and number, twice.
pub fn spoil(
    net: &Testnet,
    (host, number): (usize, usize),
    fault: Fault,
    words: &str,
) -> Result<Breakage, DemoError> {
    let did = cast(net, host, number)?;
    inject(net, Spec::new(fault).of(&did).times(2))?;
    break_chain(net, &did)?;
    Ok(Breakage::new(words, vec![did]))
}

pub async fn sync_during_fetch(on: &mut impl MirroredNetwork) -> Result<Breakage, DemoError> {
    let did = cast(on.net(), 0, 4)?;
    let stalled = on.net().faults().fired("stall");
    let stall = Fault::Stall {
        ms: None,
        route: Some("getRepo".to_owned()),
    };
    let stall = Spec::new(stall).on(Place::Pds(0)).of(&did);
    let stall = inject(on.net(), stall)?;
    break_chain(on.net(), &did)?;
    until_fired(on, "stall", stalled + 1).await?;
    inject(on.net(), Spec::new(Fault::Sync {}).of(&did))?;
    post(on.net(), &did)?;
    inject(on.net(), Spec::new(Fault::Sync {}).of(&did))?;
    clear(on.net(), stall);
    let words = "a #sync, a commit and a #sync arrive while getRepo is still being answered";
    Ok(Breakage::new(words, vec![did]))
}
