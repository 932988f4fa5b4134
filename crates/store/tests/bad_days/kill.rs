//! Tests kill -9 under load, many times, on one store.

use crate::power::Dice;
use crate::rounds;
use crate::truth::verify;
use crate::writer::{Memory, Start, Writer};

#[test]
fn nothing_acknowledged_is_lost_or_changed_by_kill_9() {
    let folder = tempfile::tempdir().unwrap();
    let mut memory = Memory::default();
    let mut dice = Dice(7);
    for round in 0..rounds(8) {
        let start = Start {
            folder: folder.path(),
            seed: round,
            in_flight: 256,
            events: None,
            arm: None,
        };
        let mut writer = Writer::spawn(start.command());
        // Now and then before anything was told, or opened.
        let more = [0, 1, 50, 1500][dice.below(4) as usize];
        assert!(writer.listen(more + dice.below(200) as usize), "it runs on");
        let ended = writer.kill();
        assert_eq!(ended.error, None);
        memory.add(&ended.told);
        let report = verify(folder.path(), &memory);
        assert!(report.proven > 0 || memory.newest < 50);
    }
    assert!(memory.newest > 500, "there was load: {}", memory.newest);
}
