//! Tests power cuts: unsynced writes are lost, or some of their pages survive, and names are
//! durable only after the fsync of their folder, or after any fsync.

use gapless_store::head::HEAD_FILE;

use crate::power::{Dice, Disk, Names};
use crate::rounds;
use crate::truth::verify;
use crate::writer::{Ended, LETTER_BYTES, Memory, Start, Told, Writer};

/// How a round ends: at an event on a file (see `power/forget.c`), or at any time.
#[derive(Debug, Clone, Copy)]
enum End {
    At(&'static str, &'static str, u64),
    AnyTime(usize),
}

/// The places where one thing is durable and the next is not yet.
const POINTS: &[(&str, &str, u64)] = &[
    // Frames are written, not synced; synced, and their batch is not written.
    ("sync", ".seg", 12),
    ("synced", ".seg", 12),
    // The batch is written in part, or whole and not synced; synced, and the head
    // is not written.
    ("write", ".jnl", 40),
    ("sync", ".jnl", 15),
    ("synced", ".jnl", 15),
    ("write", "/head", 9),
    ("sync", "/head", 1),
    // A new segment is begun; its name is not durable, or is.
    ("sync", "/frames", 2),
    ("synced", "/frames", 2),
];

fn run(disk: &Disk, seed: u64, end: End) -> Ended {
    let start = Start {
        folder: &disk.root,
        seed,
        in_flight: 64,
        events: None,
        arm: None,
    };
    let mut command = start.command();
    disk.preload(&mut command);
    match end {
        End::At(event, part, count) => {
            disk.crash(&mut command, event, part, count);
            Writer::spawn(command).end()
        }
        End::AnyTime(events) => {
            let mut writer = Writer::spawn(command);
            assert!(writer.listen(events), "it runs on");
            writer.kill()
        }
    }
}

/// Cuts the power, and compares what is left with what was told.
fn round(disk: &Disk, memory: &mut Memory, seed: u64, end: End, tear: bool) -> Disk {
    let ended = run(disk, seed, end);
    assert_eq!(ended.error, None, "{end:?}");
    if matches!(end, End::At(..)) {
        assert!(disk.fired(), "{end:?} never came");
    }
    let told: Vec<Told> = ended.told;
    memory.add(&told);
    let after = disk.after_power_cut(tear.then_some(Dice(seed)));
    verify(&after.root, memory);
    after
}

#[test]
fn nothing_acknowledged_is_lost_at_any_point_between_two_fsyncs() {
    for names in [Names::Strict, Names::Ordered] {
        let mut disk = Disk::new(names);
        let mut memory = Memory::default();
        disk = round(&disk, &mut memory, 1, End::AnyTime(100), false);
        for (seed, (event, part, count)) in POINTS.iter().enumerate() {
            let end = End::At(event, part, *count);
            if names == Names::Strict {
                disk = round(&disk, &mut memory, seed as u64, end, false);
            }
            disk = round(&disk, &mut memory, seed as u64, end, true);
        }
        assert!(memory.newest > 500, "there was load: {}", memory.newest);
    }
}

#[test]
fn nothing_acknowledged_is_lost_at_any_time() {
    let mut dice = Dice(23);
    for names in [Names::Strict, Names::Ordered] {
        let mut disk = Disk::new(names);
        let mut memory = Memory::default();
        for seed in 0..rounds(4) {
            let events = dice.below(600) as usize;
            let tear = dice.below(2) == 1;
            disk = round(&disk, &mut memory, seed, End::AnyTime(events), tear);
        }
    }
}

#[test]
fn a_first_start_that_is_cut_short_can_be_started_again() {
    let mut dice = Dice(5);
    // Where the engine has begun its files and not finished them.
    let mut ends = vec![("sync", "/version", 1), ("synced", "/version", 1)];
    for count in 0..rounds(10) {
        let event = ["sync", "synced", "write"][dice.below(3) as usize];
        // The first start takes a few hundred of each.
        ends.push((event, "/", 1 + count * 11 + dice.below(11)));
    }
    for (event, part, count) in ends {
        let mut disk = Disk::new(Names::Strict);
        let mut memory = Memory::default();
        let ended = run(&disk, count, End::At(event, part, count));
        assert_eq!(ended.error, None, "{event} {count}");
        assert!(disk.fired());
        memory.add(&ended.told);
        disk = disk.after_power_cut((count % 2 == 0).then_some(Dice(count)));
        // It opens, or is as good as new.
        let again = run(&disk, count, End::AnyTime(20));
        assert_eq!(again.error, None, "{event} {count}");
        memory.add(&again.told);
        let disk = disk.after_power_cut(None);
        verify(&disk.root, &memory);
    }
}

/// The engine stops at such a batch instead of cutting it: its checksum is wrong,
/// and everything else about it is right.
#[test]
fn a_last_batch_that_lost_a_page_in_its_middle_is_cut() {
    // Which batch is a large one depends on what is grouped with what.
    let torn = (30..40).any(lost_a_page);
    assert!(torn, "none of the last batches has many pages");
}

/// Cuts the power before a sync of the journal, and one page in the middle of what
/// was written is lost. Whether there were enough of them.
fn lost_a_page(sync: u64) -> bool {
    let disk = Disk::new(Names::Strict);
    let start = Start {
        folder: &disk.root,
        seed: 6,
        in_flight: 1,
        events: None,
        arm: None,
    };
    let mut command = start.command();
    command.env(LETTER_BYTES, "50000");
    disk.preload(&mut command);
    disk.crash(&mut command, "sync", ".jnl", sync);
    let ended = Writer::spawn(command).end();
    assert!(disk.fired());
    let mut memory = Memory::default();
    memory.add(&ended.told);
    let mut torn = false;
    let after = disk.after_power_cut_with(&mut |place, count| {
        torn |= count > 8;
        place != count / 2
    });
    verify(&after.root, &memory);
    torn
}

/// Without a disk that forgets the test above would prove nothing: what is
/// written and not synced must be gone.
#[test]
fn the_disk_does_forget() {
    let disk = Disk::new(Names::Strict);
    let mut memory = Memory::default();
    // The head is synced once a second at most: right after the start it is on
    // the real disk, and not on the one that forgets.
    let ended = run(&disk, 1, End::AnyTime(30));
    memory.add(&ended.told);
    let after = disk.after_power_cut(None);
    let real = std::fs::read(disk.root.join(HEAD_FILE)).unwrap();
    let kept = std::fs::read(after.root.join(HEAD_FILE)).unwrap();
    assert_eq!(real.len(), kept.len());
    assert!(real.iter().any(|byte| *byte != 0), "it was written");
    assert!(real != kept, "and is forgotten");
    verify(&after.root, &memory);
}

/// Flushes, compactions and new journals are fsyncs too: the places where tables
/// are written, synced, and named.
#[test]
fn nothing_acknowledged_is_lost_while_tables_are_written() {
    let points: &[(&str, &str, u64)] = &[
        ("write", "/tables/", 1),
        ("write", "/tables/", 7),
        ("sync", "/tables/", 1),
        ("synced", "/tables/", 1),
        ("sync", "/tables", 2),
        ("synced", "/tables", 2),
        ("sync", "/current", 1),
        ("synced", "/current", 1),
        ("sync", "/keyspaces/", 3),
        ("synced", "/keyspaces/", 9),
    ];
    let mut fired = vec![0; points.len()];
    for names in [Names::Strict, Names::Ordered] {
        let mut disk = Disk::new(names);
        let mut memory = Memory::default();
        disk = round(&disk, &mut memory, 1, End::AnyTime(20), false);
        for (seed, (event, part, count)) in points.iter().enumerate() {
            let start = Start {
                folder: &disk.root,
                seed: seed as u64,
                in_flight: 64,
                events: Some(600),
                arm: None,
            };
            let mut command = start.command();
            // Large enough to fill what is flushed.
            command.env(LETTER_BYTES, "200000");
            disk.preload(&mut command);
            disk.crash(&mut command, event, part, *count);
            let ended = Writer::spawn(command).end();
            assert_eq!(ended.error, None);
            fired[seed] += u32::from(disk.fired());
            memory.add(&ended.told);
            let torn = seed.is_multiple_of(2).then_some(Dice(seed as u64));
            let after = disk.after_power_cut(torn);
            verify(&after.root, &memory);
            disk = after;
        }
    }
    for (point, fired) in points.iter().zip(fired) {
        assert!(fired > 0, "{point:?} never came");
    }
}
