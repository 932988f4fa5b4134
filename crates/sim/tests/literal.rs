//! Tests that the simulator catches the flaws of the literal rules (`gapless_sim::literal`): in
//! chaos, and by one schedule for each flaw. The same schedules, played on the rules of the
//! ledger, lead to no false claim.

use gapless_sim::literal::{self, Literal};
use gapless_sim::script::Stage;
use gapless_sim::world::{Fault, Faults, Place, World};

const PDS: Place = Place::Pds(0);

/// One host with `a` and `b`, read and indexed.
fn indexed() -> (World, Literal) {
    let mut world = World::new(0, Faults::none());
    world.add_pds();
    world.add_owner(0);
    world.add_owner(0);
    let mut literal = Literal::default();
    literal.connect(&mut world, 0);
    for owner in 0..2 {
        world.write(owner);
    }
    literal.drain(&mut world);
    for owner in 0..2 {
        let indexing = literal.fetch(&mut world, owner).expect("it is there");
        literal.index(indexing);
    }
    world.write(0);
    world.write(1);
    literal.drain(&mut world);
    assert!(literal.complete(0) && !literal.lacks(&world, 0));
    (world, literal)
}

fn claims_falsely(world: &World, literal: &Literal) -> bool {
    literal.complete(0) && literal.lacks(world, 0)
}

/// Commits until the missed one shows in the records.
fn miss_a_commit(world: &mut World, literal: &mut Literal) {
    literal.disconnect(0);
    while !literal.lacks(world, 0) {
        world.write(0);
    }
    world.forget(PDS, 0);
}

#[test]
fn chaos_catches_the_literal_rules() {
    let seeds = 0..300;
    let caught = seeds.filter(|seed| literal::chaos(*seed) > 0).count();
    assert!(caught > 60, "only {caught} of 300 seeds");
}

#[test]
fn s1_two_events_after_a_reset_hide_what_was_missed() {
    let (mut world, mut literal) = indexed();
    miss_a_commit(&mut world, &mut literal);
    literal.drain(&mut world);
    // A commit that changes nothing shows that it is the missed ones that lack.
    world.faults.force(Fault::EmptyCommit, 2);
    world.write(0);
    literal.drain(&mut world);
    assert!(!literal.complete(0));
    world.write(0);
    literal.drain(&mut world);
    assert!(claims_falsely(&world, &literal));

    let mut stage = Stage::one_host();
    stage.lose(PDS);
    for _ in 0..3 {
        stage.commit("a");
    }
    stage.run.world.forget(PDS, 0);
    stage.read();
    stage.commit("a");
    stage.commit("a");
    stage.deliver();
    assert!(!stage.complete("a"));
}

#[test]
fn s2_too_big_stays_complete() {
    let (mut world, mut literal) = indexed();
    while !literal.lacks(&world, 0) {
        world.faults.force(Fault::TooBig, 1);
        world.write(0);
    }
    literal.drain(&mut world);
    assert!(claims_falsely(&world, &literal));

    let mut stage = Stage::one_host();
    stage.force(Fault::TooBig);
    stage.commit("a");
    stage.deliver();
    assert!(!stage.complete("a"));
}

#[test]
fn s3_what_is_unset_is_complete() {
    let mut world = World::new(0, Faults::none());
    world.add_pds();
    world.add_owner(0);
    let mut literal = Literal::default();
    let indexing = literal.fetch(&mut world, 0).expect("it is there");
    literal.index(indexing);
    while !literal.lacks(&world, 0) {
        world.write(0);
    }
    literal.drain(&mut world);
    assert!(claims_falsely(&world, &literal));

    let mut stage = Stage::new(1, &[0]);
    stage.follow(PDS);
    stage.sweep();
    stage.work();
    stage.commit("a");
    stage.deliver();
    assert!(!stage.complete("a"));
}

#[test]
fn s4_cursors_of_two_hosts_are_compared() {
    let (mut world, mut literal) = indexed();
    world.add_pds();
    world.pds[0].log.seq += 1_000_000;
    world.forget(PDS, 0);
    literal.disconnect(0);
    world.write(0);
    world.write(0);
    literal.drain(&mut world);
    let indexing = literal.fetch(&mut world, 0).expect("it is there");
    literal.index(indexing);
    assert!(literal.complete(0));
    // It moves; what it does there first is missed.
    world.migrate(0, 1);
    while !literal.lacks(&world, 0) {
        world.write(0);
    }
    world.forget(Place::Pds(1), 0);
    literal.connect(&mut world, 1);
    world.faults.force(Fault::EmptyCommit, 1);
    world.write(0);
    literal.drain(&mut world);
    assert!(claims_falsely(&world, &literal));

    let mut stage = Stage::two_hosts();
    stage.run.world.pds[0].log.seq += 1_000_000;
    stage.commit("a");
    stage.deliver();
    stage.lose(Place::Pds(1));
    stage.run.world.migrate(0, 1);
    stage.commit("a");
    stage.run.world.forget(Place::Pds(1), 0);
    stage.read();
    stage.force(Fault::EmptyCommit);
    stage.commit("a");
    stage.deliver();
    assert!(!stage.complete("a"));
}

#[test]
fn s5_between_info_and_the_first_event_all_look_complete() {
    let (mut world, mut literal) = indexed();
    miss_a_commit(&mut world, &mut literal);
    literal.drain(&mut world);
    assert!(claims_falsely(&world, &literal));

    let mut stage = Stage::one_host();
    stage.lose(PDS);
    stage.commit("a");
    stage.run.world.forget(PDS, 0);
    stage.deliver();
    assert!(!stage.complete("a"));
}

#[test]
fn s6_a_listing_read_before_a_reset_and_applied_after_it() {
    let mut world = World::new(0, Faults::none());
    world.add_pds();
    world.add_owner(0);
    world.add_owner(0);
    let mut literal = Literal::default();
    literal.connect(&mut world, 0);
    world.write(1);
    literal.drain(&mut world);
    let indexing = literal.fetch(&mut world, 0).expect("it is there");
    literal.index(indexing);
    let page = world.list(0, None).expect("no fault");
    miss_a_commit(&mut world, &mut literal);
    literal.connect(&mut world, 0);
    world.write(1);
    literal.drain(&mut world);
    literal.listed(0, &page);
    assert!(claims_falsely(&world, &literal));

    let mut stage = Stage::one_host();
    let host = stage.run.mirror.host_id(0);
    stage.run.mirror.start_sweep(&stage.run.world, host);
    stage.sweep_step();
    stage.lose(PDS);
    stage.commit("a");
    stage.run.world.forget(PDS, 0);
    stage.read();
    stage.commit("b");
    stage.deliver();
    stage.sweep_step();
    assert!(!stage.complete("a"));
}

#[test]
fn s7_the_first_rev_goes_back() {
    let mut world = World::new(0, Faults::none());
    world.add_pds();
    world.add_owner(0);
    let mut literal = Literal::default();
    literal.connect(&mut world, 0);
    world.write(0);
    world.write(0);
    // The listing is ahead of the stream.
    let page = world.list(0, None).expect("no fault");
    literal.listed(0, &page);
    let listed = literal.repo(0).first_rev_since_reset;
    literal.receive(&mut world, 0);
    assert!(literal.repo(0).first_rev_since_reset < listed);

    let mut stage = Stage::one_host();
    stage.commit("a");
    stage.force(Fault::TooBig);
    stage.commit("a");
    stage.read();
    let first = stage.repo("a").first_rev_since_reset;
    stage.sweep();
    stage.process();
    assert!(stage.repo("a").first_rev_since_reset >= first);
}
