//! Acts that break the streams of hosts and of relays.

use gapless_testnet::{Fault, Place, Spec, Testnet};

use crate::demo::DemoError;
use crate::demo::acts::Breakage;
use crate::demo::acts::network::{
    MirroredNetwork, accounts_of, cast, clear, inject, network_error, post, until_complete,
    until_fired, until_upstream, upstream,
};

/// Events that a stream keeps for replay, unless an act says otherwise.
const WINDOW: usize = 50_000;

/// Closes the stream of the third host and answers the next dials with these HTTP statuses,
/// each so many times.
pub async fn refuse_dials(
    on: &mut impl MirroredNetwork,
    refusals: &[(u16, u64)],
    words: &str,
) -> Result<Breakage, DemoError> {
    let (net, stream) = (on.net(), on.stream(2));
    let mut least = net.faults().fired("dial-error");
    for (status, times) in refusals {
        let refused = Fault::DialError { status: *status };
        inject(net, Spec::new(refused).on(stream).times(*times))?;
        least += times;
    }
    inject(net, Spec::new(Fault::Disconnect {}).on(stream))?;
    net.stir(30);
    let dids = vec![cast(net, 2, 2)?, cast(net, 2, 3)?];
    for did in dids.iter().chain(&dids) {
        post(net, did)?;
    }
    until_fired(on, "dial-error", least).await?;
    Ok(Breakage::new(words, dids))
}

pub async fn until_connected(on: &mut impl MirroredNetwork) -> Result<(), DemoError> {
    let stream = on.stream(2);
    let connected = until_upstream(on, stream, "it is connected", |one| one.connected);
    connected.await.map(drop)
}

pub async fn pass_window(on: &mut impl MirroredNetwork) -> Result<Breakage, DemoError> {
    on.stop_mirror().await?;
    let (net, stream) = (on.net(), on.stream(0));
    net.stir(40);
    for did in net.truth().dids() {
        post(net, &did)?;
    }
    inject(net, Spec::new(Fault::Window { events: 1 }).on(stream))?;
    on.start_mirror().await?;
    let words = "the mirror is down, and its host keeps no event of that time";
    Ok(Breakage {
        restarted: true,
        ..Breakage::new(words, accounts_of(on, stream))
    })
}

pub fn restore_window(on: &impl MirroredNetwork) -> Result<(), DemoError> {
    let window = Fault::Window { events: WINDOW };
    inject(on.net(), Spec::new(window).on(on.stream(0))).map(drop)
}

pub async fn restart_sequence(on: &mut impl MirroredNetwork) -> Result<Breakage, DemoError> {
    let stream = on.stream(1);
    let before = upstream(on, stream).await?.epoch;
    let restart = Fault::SeqRestart { next: 1 };
    inject(on.net(), Spec::new(restart).on(stream))?;
    on.net().stir(20);
    until_upstream(on, stream, "its numbers are doubted", |one| {
        one.epoch > before
    })
    .await?;
    on.net().stir(20);
    let words = "a host forgets its numbers and counts from 1 again";
    Ok(Breakage::new(words, accounts_of(on, stream)))
}

pub fn omit_events(net: &Testnet) -> Result<Breakage, DemoError> {
    let did = cast(net, 1, 2)?;
    let omission = inject(net, Spec::new(Fault::RelayOmit {}).of(&did))?;
    for _ in 0..3 {
        post(net, &did)?;
    }
    clear(net, omission);
    let words = "a relay leaves out the events of an account, and nothing follows them";
    Ok(Breakage::new(words, vec![did]))
}

pub fn skip_number(net: &Testnet) -> Result<Breakage, DemoError> {
    let did = cast(net, 1, 3)?;
    inject(net, Spec::new(Fault::RelayGap {}).of(&did).times(1))?;
    post(net, &did)?;
    let words = "a relay gives an event a number and does not send it";
    Ok(Breakage::new(words, vec![did]))
}

/// Other events get numbers that were given before, and further events get higher ones.
pub async fn roll_relay_back(on: &mut impl MirroredNetwork) -> Result<Breakage, DemoError> {
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
    let words = "a relay loses its last 30 events and gives their numbers to others";
    Ok(Breakage::new(words, dids))
}
