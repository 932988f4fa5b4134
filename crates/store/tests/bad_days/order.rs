//! The order of things, as a recorder between the store and the disk sees it:
//! frames are durable before the batch that names them is written, the batch
//! before the acknowledged head, and all of it before anybody is told.

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
    let disk = Disk::new(Names::Strict);
    let start = Start {
        folder: &disk.root,
        seed: 4,
        // One after the other: whatever is unsynced belongs to what comes next.
        in_flight: 1,
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
    let (mut told, mut batches, mut framed, mut heads) = (0, 0, 0, 0);
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
                heads += 1;
            }
            ("w", Some(name)) => *unsynced.entry(name).or_default() += 1,
            ("s", Some(name)) => {
                let wrote = unsynced.insert(name, 0).unwrap_or_default();
                batches += u32::from(name == "journal" && wrote > 0);
                framed += u32::from(name == "frames" && wrote > 0);
            }
            ("a", _) if rest.starts_with("ack ") => {
                told += 1;
                for name in ["frames", "journal"] {
                    let left = unsynced.get(name).copied().unwrap_or_default();
                    assert_eq!(left, 0, "'{rest}' was told before its {name} were synced");
                }
                // Synced or not: that happens once a second.
                assert!(heads > 0 || told == 1, "told without being written down");
                heads = 0;
            }
            _ => {}
        }
    }
    assert_eq!(told, 300);
    assert!(
        batches >= 300 && framed > 250,
        "{batches} batches, {framed} with frames"
    );
    let mut memory = Memory::default();
    memory.add(&ended.told);
    verify(&disk.root, &memory);
}
