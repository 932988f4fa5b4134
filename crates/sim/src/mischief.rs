//! Mischief: one random fault in the world or in the mirror's machine.

use std::sync::Arc;

use gapless_atp::syntax::Rev;
use gapless_core::ledger::Account;

use crate::chaos::places;
use crate::mirror::SimMirror;
use crate::world::pds::Served;
use crate::world::{Commit, Fault, OwnerId, PdsId, Place, World, name, short};

const KINDS: [Fault; 21] = [
    Fault::ConnectionLost,
    Fault::WindowPassed,
    Fault::Restart,
    Fault::Phantom,
    Fault::Rollback,
    Fault::Migration,
    Fault::KeyChange,
    Fault::SyncEvent,
    Fault::Forged,
    Fault::Misrouted,
    Fault::AccountChange,
    Fault::Vanished,
    Fault::Wiped,
    Fault::RelayRollback,
    Fault::RelaySlanders,
    Fault::Overflow,
    Fault::Crash,
    Fault::UpstreamAdded,
    Fault::FilterChanged,
    Fault::Imported,
    Fault::ParkedDamaged,
];

/// Causes a random fault and describes it. Returns an empty text if nothing happened.
pub(crate) fn mischief(world: &mut World, mirror: &mut SimMirror) -> String {
    if world.rng.per_mille(250) {
        return quiet_change(world);
    }
    let kind = KINDS[world.rng.below(KINDS.len())];
    if !world.faults.is_on(kind) || (is_rare(kind) && !world.rng.per_mille(250)) {
        return String::new();
    }
    let owner = world.rng.below(world.owners.len());
    let host = world.rng.below(world.pds.len());
    let what = match kind {
        Fault::ConnectionLost => lose_connection(world, mirror),
        Fault::WindowPassed => pass_window(world),
        Fault::Restart => restart(world, mirror, host),
        Fault::Phantom => phantom(world, owner),
        Fault::Rollback => {
            world.restore_backup(host);
            format!("host {host} is restored from a backup")
        }
        Fault::Migration => migrate(world, owner, host),
        Fault::KeyChange => {
            world.change_key(owner);
            format!("{} changes its key", name(owner))
        }
        Fault::SyncEvent => {
            world.sync_event(owner);
            format!("{} #sync", name(owner))
        }
        Fault::Forged => {
            claim(world, mirror, owner);
            forge(world, owner)
        }
        Fault::Misrouted => {
            world.misroute(owner, host);
            format!("{} on host {host}", name(owner))
        }
        Fault::AccountChange => change_account(world, owner),
        Fault::Vanished => vanish(world, owner),
        Fault::Wiped => {
            world.wipe(host);
            format!("host {host} is wiped")
        }
        Fault::RelayRollback => roll_relay_back(world),
        Fault::RelaySlanders => slander(world, owner),
        Fault::Overflow => overflow(world, mirror),
        Fault::Crash => crash(world, mirror),
        Fault::UpstreamAdded => change_upstreams(world, mirror),
        Fault::FilterChanged => change_filter(world, mirror),
        Fault::Imported => import(world, mirror, owner),
        Fault::ParkedDamaged => damage_parked(world, mirror),
        _ => String::new(),
    };
    if !what.is_empty() {
        world.faults.count(kind);
    }
    what
}

fn is_rare(kind: Fault) -> bool {
    matches!(
        kind,
        Fault::Wiped
            | Fault::FilterChanged
            | Fault::Rollback
            | Fault::Vanished
            | Fault::UpstreamAdded
            | Fault::Restart
    )
}

/// Changes the filter: to a wider one, a narrower one, or one that wants the same.
fn change_filter(world: &mut World, mirror: &mut SimMirror) -> String {
    const WANTED: [&[&str]; 4] = [&[], &["app.test.*"], &["app.test.post"], &["app.test.like"]];
    // Where keys are dropped, the checker could not recompute a root.
    let choices = if mirror.rules.settings.wanted_keys_only {
        1
    } else {
        WANTED.len()
    };
    let wanted = WANTED[world.rng.below(choices)];
    mirror.change_filter(wanted);
    format!("the filter wants {wanted:?}")
}

/// Lets an operator import a state that a host has of an account, at times without the owner's
/// signature.
fn import(world: &mut World, mirror: &mut SimMirror, owner: OwnerId) -> String {
    let hosted = world.pds.iter().filter_map(|pds| pds.repos.get(&owner));
    let lines: Vec<_> = hosted.flat_map(|hosted| hosted.line.clone()).collect();
    let Some(mut commit) = world.rng.pick(&lines) else {
        return String::new();
    };
    if world.rng.per_mille(100) {
        let mut stranger = Commit::clone(&commit);
        stranger.key = None;
        commit = Arc::new(stranger);
    }
    let records = commit.records.clone();
    let rev = short(commit.head.rev);
    match mirror.import(world, &Served { commit, records }) {
        None => String::new(),
        Some(true) => format!("{rev} of {} is imported", name(owner)),
        Some(false) => format!("{rev} of {} is refused as an import", name(owner)),
    }
}

fn damage_parked(world: &mut World, mirror: &mut SimMirror) -> String {
    let ids = mirror.book.repo_ids().into_iter();
    let parked: Vec<_> = ids
        .flat_map(|id| {
            let revs = mirror.book.parked(id).into_keys();
            revs.map(move |rev| (id, rev))
        })
        .collect();
    let Some((id, rev)) = world.rng.pick(&parked) else {
        return String::new();
    };
    mirror.damage_parked(id, rev);
    format!("the parked frame {} of {id:?} is damaged", short(rev))
}

/// Ends an earlier fault, chosen at random, and describes it.
fn quiet_change(world: &mut World) -> String {
    let host = world.rng.below(world.pds.len());
    match world.rng.below(4) {
        0 => {
            world.refresh_listing(host);
            format!("the listing of host {host} is brought up to date")
        }
        1 => {
            let owner = world.rng.below(world.owners.len());
            if !world.owners[owner].lags {
                return String::new();
            }
            world.owners[owner].lags = false;
            format!("the directory knows the new document of {}", name(owner))
        }
        2 => {
            if world.pds[host].lost.is_none() {
                return String::new();
            }
            world.unwipe(host);
            format!("host {host} is restored")
        }
        _ => {
            let place = some_place(world);
            if world.log(place).held_back.is_none() {
                return String::new();
            }
            world.log_mut(place).release();
            format!("{place:?} sends what it held back")
        }
    }
}

fn some_place(world: &mut World) -> Place {
    let places = places(world);
    places[world.rng.below(places.len())]
}

fn lose_connection(world: &mut World, mirror: &mut SimMirror) -> String {
    let open: Vec<_> = mirror
        .feeds
        .iter()
        .filter(|(_, feed)| feed.socket.is_some())
        .collect();
    let ids: Vec<_> = open.into_iter().map(|(id, _)| *id).collect();
    let Some(id) = world.rng.pick(&ids) else {
        return String::new();
    };
    mirror.hang_up(world, id);
    format!("{id:?} loses its connection")
}

fn pass_window(world: &mut World) -> String {
    let place = some_place(world);
    let keep = world.rng.below(4);
    world.forget(place, keep);
    if matches!(place, Place::Relay(_)) {
        world.faults.count(Fault::RelaySkips);
    }
    format!("{place:?} keeps its last {keep} events")
}

fn restart(world: &mut World, mirror: &mut SimMirror, host: PdsId) -> String {
    let cursor = mirror
        .upstream_of(Place::Pds(host))
        .and_then(|id| mirror.book.cursor(id))
        .map_or(0, |(_, cursor)| cursor.seq);
    let past = world.strikes(Fault::RestartPastUs);
    let seq = if past {
        cursor + world.rng.below(3) as u64
    } else {
        0
    };
    world.pds[host].log.restart(seq);
    format!("host {host} begins its numbers anew at {seq}")
}

fn phantom(world: &mut World, owner: OwnerId) -> String {
    world.phantom(owner);
    format!("{} writes, and its host loses it", name(owner))
}

fn migrate(world: &mut World, owner: OwnerId, to: PdsId) -> String {
    if world.true_host(owner) == Some(to) {
        return String::new();
    }
    world.migrate(owner, to);
    format!("{} moves to host {to}", name(owner))
}

fn forge(world: &mut World, owner: OwnerId) -> String {
    let place = some_place(world);
    let times = if world.rng.per_mille(100) { 20 } else { 1 };
    for _ in 0..times {
        world.forge(owner, place);
    }
    format!("{} is forged on {place:?}, {times} times", name(owner))
}

/// Lets a Jetstream claim a commit of the owner: the newest one, or one that the owner did
/// not sign.
fn claim(world: &World, mirror: &mut SimMirror, owner: OwnerId) {
    let lie = Rev::from_micros(world.now.0, 9);
    let newest = world.truth(owner).map(|(commit, _)| commit.head.rev);
    let rev = newest
        .filter(|_| world.now.0.is_multiple_of(2))
        .unwrap_or(lie);
    mirror.claimed(world, owner, rev);
}

fn change_account(world: &mut World, owner: OwnerId) -> String {
    let Some((_, account)) = world.truth(owner) else {
        return String::new();
    };
    let next = match account {
        Account::Deleted => return String::new(),
        Account::Active if world.strikes(Fault::Deleted) => Account::Deleted,
        Account::Active => {
            [Account::Deactivated, Account::Suspended, Account::Takendown][world.rng.below(3)]
        }
        _ => Account::Active,
    };
    world.set_account(owner, next);
    format!("{} becomes {next:?}", name(owner))
}

fn vanish(world: &mut World, owner: OwnerId) -> String {
    let Some(host) = world.true_host(owner) else {
        return String::new();
    };
    let Some(hosted) = world.pds[host].repos.get(&owner) else {
        return String::new();
    };
    let vanished = !hosted.vanished;
    world.set_vanished(owner, vanished);
    format!("{} vanished: {vanished}", name(owner))
}

fn slander(world: &mut World, owner: OwnerId) -> String {
    if world.relays.is_empty() {
        return String::new();
    }
    let relay = world.rng.below(world.relays.len());
    world.slander(relay, owner);
    format!("relay {relay} calls {} deleted", name(owner))
}

fn roll_relay_back(world: &mut World) -> String {
    if world.relays.is_empty() {
        return String::new();
    }
    let relay = world.rng.below(world.relays.len());
    let lost = world.rng.below(4);
    world.relay_rollback(relay, lost);
    format!("relay {relay} loses its last {lost} events")
}

fn overflow(world: &mut World, mirror: &mut SimMirror) -> String {
    let ids: Vec<_> = mirror.feeds.keys().copied().collect();
    let all = world.rng.per_mille(300);
    match world.rng.pick(&ids) {
        Some(id) if mirror.overflow(world, id, all) => {
            format!("the queue of {id:?} runs over, all of it: {all}")
        }
        _ => String::new(),
    }
}

fn crash(world: &mut World, mirror: &mut SimMirror) -> String {
    let at_risk = mirror.book.unsynced();
    let keep = world.rng.below(at_risk + 1);
    mirror.crash(world, keep);
    format!("crash: {keep} of {at_risk} unsynced batches are left")
}

fn change_upstreams(world: &mut World, mirror: &mut SimMirror) -> String {
    let place = some_place(world);
    match mirror.upstream_of(place) {
        Some(id) if mirror.feeds.len() > 1 => {
            mirror.unfollow(id);
            world.faults.count(Fault::UpstreamRemoved);
            format!("{place:?} is followed no longer")
        }
        Some(_) => String::new(),
        None => {
            mirror.follow(place);
            format!("{place:?} is followed")
        }
    }
}
