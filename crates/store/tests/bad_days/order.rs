//! Tests the order of writes with a recorder between the store and the disk: frames are durable
//! before the batch that names them is written, the batch before the acknowledged head, and all
//! of it before a change is acknowledged.

use std::collections::HashMap;

use crate::power::{Disk, Names};
use crate::truth::verify;
use crate::writer::{Memory, Start, Writer};

/// Which file a path is, of those whose order counts.
fn file(path: &str) -> Option<&'static str> {
    [(".seg", "frames"), (".jnl", "journal"), ("/head", "head")]
        .into_iter()
        .find(|(part, _)| path.ends_with(part))
        .map(|(_, name)| name)
}

#[test]
fn nothing_is_told_before_it_is_durable() {
    // One after the other, and groups that stand on one another.
    for in_flight in [1, 40] {
        told_after_durable(in_flight);
    }
}

fn told_after_durable(in_flight: usize) {
    let disk = Disk::new(Names::Strict);
    let start = Start {
        folder: &disk.root,
        seed: 4,
        in_flight,
        events: Some(300),
        arm: None,
    };
    let mut command = start.command();
    disk.preload(&mut command);
    disk.record(&mut command);
    let ended = Writer::spawn(command).end();
    assert!(ended.success && ended.told.len() == 300);
    let log = std::fs::read_to_string(disk.log_file()).unwrap();
    let mut unsynced: HashMap<&str, u32> = HashMap::new();
    let (mut told, mut batches, mut framed) = (0, 0, 0);
    // A batch is durable and the head does not say so yet.
    let mut unsaid = false;
    for line in log.lines() {
        let (event, rest) = line.split_once(' ').unwrap();
        match (event, file(rest)) {
            ("w", Some("journal")) => {
                let frames = unsynced.get("frames").copied().unwrap_or_default();
                assert_eq!(frames, 0, "a batch before the frames that it names");
                *unsynced.entry("journal").or_default() += 1;
            }
            ("w", Some("head")) => {
                let journal = unsynced.get("journal").copied().unwrap_or_default();
                assert_eq!(journal, 0, "the head before its batch");
                unsaid = false;
            }
            ("w", Some(name)) => *unsynced.entry(name).or_default() += 1,
            ("s", Some(name)) => {
                let wrote = unsynced.insert(name, 0).unwrap_or_default();
                let batch = name == "journal" && wrote > 0;
                batches += u32::from(batch);
                unsaid |= batch;
                framed += u32::from(name == "frames" && wrote > 0);
            }
            ("a", _) if rest.starts_with("ack ") => {
                told += 1;
                for name in ["frames", "journal"] {
                    let left = unsynced.get(name).copied().unwrap_or_default();
                    assert_eq!(left, 0, "'{rest}' was told before its {name} were synced");
                }
                // Written, synced or not: that happens once a second.
                assert!(!unsaid, "'{rest}' was told without being written down");
            }
            _ => {}
        }
    }
    assert_eq!(told, 300);
    let (least, most) = match in_flight {
        1 => (300, u32::MAX),
        _ => (300 / in_flight as u32, 299),
    };
    assert!(
        (least..=most).contains(&batches) && framed * 2 > batches,
        "{batches} batches, {framed} with frames"
    );
    let mut memory = Memory::default();
    memory.add(&ended.told);
    verify(&disk.root, &memory);
}
