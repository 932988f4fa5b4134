//! Tests the schedule of repair with more debts than fit into memory.

use gapless_atp::syntax::Did;
use gapless_core::ledger::debt::{self, DebtKind};
use gapless_core::ledger::{DebtReason, HostId, Lived, Now, Repo, Tick, Time};
use gapless_mirror::schedule::{Schedule, SlotLimits};

fn owing(number: u32, host: u32, at: u64) -> Repo {
    let did = Did::parse(&format!("did:web:r{number}.test")).expect("a DID");
    let mut repo = Repo::new(did);
    repo.host = Some(HostId(host));
    let now = Now {
        time: Time(1),
        tick: Tick(1),
        lived: Lived::default(),
    };
    debt::owe(now, &mut repo, DebtKind::Compare, DebtReason::Operator);
    repo.debt.next_try = Time(at);
    repo
}

/// One host that does not answer, with more repositories than fit, and another one
/// that would.
#[test]
fn a_host_with_endless_debts_does_not_block_other_hosts() {
    const HOUR: u64 = 3_600_000_000;
    let schedule = Schedule::default();
    for number in 0..400_000 {
        schedule.note(Time(10), &owing(number, 1, HOUR));
    }
    schedule.note(Time(10), &owing(1_000_000, 2, 10));
    // The hosts do not answer: what is owed stays owed.
    let slots = SlotLimits {
        directory: 4,
        web: 4,
        asks: 4,
        fetches: 4,
        per_host: 4,
    };
    let found = schedule.take(Time(10), &slots).expect("it is due");
    assert_eq!(found.did.as_str(), "did:web:r1000000.test");
    // What had to give way is read again after a while, and not at once for ever.
    assert!(schedule.should_reload(Time(10)) && !schedule.should_reload(Time(11)));
    schedule.note(Time(10), &owing(2_000_000, 3, 10));
    assert!(!schedule.should_reload(Time(HOUR / 10)));
    assert!(schedule.should_reload(Time(HOUR)));
}
