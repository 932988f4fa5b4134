//! Kills the program at random moments while it purges repositories, trims the log, expires superseded
//! records and redacts. A consumer of the log that holds back what it needs follows between the
//! kills, and finds every number, every byte, and the state of the store.
//!
//! `PROGRAM_KILLS=N` kills it N times; the default is few.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use gapless_atp::crypto::Curve;
use gapless_core::retain::{Consumer, ConsumerClass, ConsumerKey, ConsumerNeeds, Hold, When};
use gapless_harness::audit::{Audit, Chance};
use gapless_harness::{Program, World, network};
use gapless_store::change::{Change, ConsumerChange};
use gapless_store::log_model::LogModel;
use gapless_store::log_reader::PageLimits;
use gapless_store::{Settings, Store, check};
use gapless_testnet::{Config as NetConfig, NewAccount, Status};

use crate::EXE;

/// Commits per second while the program is killed.
const LOAD: f64 = 100.0;
const KILLS: u64 = 12;
/// Records of an account that is deleted: its purge has several parts.
const RECORDS: usize = 2_500;
/// An account is deleted, and another one created, before each of so many starts.
const DELETE_EVERY: u64 = 4;

const HOLDER: ConsumerKey = ConsumerKey {
    class: ConsumerClass::Backup,
    id: 1,
    lane: 0,
};

/// A consumer that reads between the kills, sometimes not to the end, and holds back the rest.
struct Holder {
    model: LogModel,
    registered: bool,
}

impl Holder {
    fn read_on(&mut self, store: &Store, chance: &mut Chance) {
        let limits = PageLimits {
            rows: 64,
            operations: 4_096,
            ..PageLimits::default()
        };
        while chance.below(12) > 0 {
            let more = self.model.follow(&store.view(), limits);
            // Every number from the position on must be there.
            if !more.expect("what is held is there") {
                let different = self.model.difference(&store.view());
                assert_eq!(different.expect("it can be read"), None);
                break;
            }
        }
        assert_eq!(self.model.superseded, 0, "held bytes are gone");
        assert_eq!(self.model.spoilt, 0);
        self.report(store);
    }

    /// Tells the store how far the consumer is.
    fn report(&mut self, store: &Store) {
        let (key, next, at) = (HOLDER, self.model.next, When::default());
        let log = store
            .view()
            .ids()
            .expect("it can be read")
            .map(|ids| ids.log);
        let consumer = if std::mem::replace(&mut self.registered, true) {
            let holds_from = next;
            ConsumerChange::Move {
                key,
                next,
                holds_from,
                log,
                at,
            }
        } else {
            let consumer = Consumer {
                name: "holder".to_owned(),
                next,
                holds_from: next,
                registered: at,
                moved: at,
                hold: Hold::Always,
                needs: ConsumerNeeds::LogAndVersions,
                overrun: false,
            };
            ConsumerChange::Register { key, consumer, log }
        };
        let change = Change {
            consumer: Some(consumer),
            ..Change::default()
        };
        store.write(change).expect("its position is accepted");
    }
}

/// Opens what a killed program left, lets the consumer read on, and checks every row.
fn follow(data: &Path, holder: &mut Holder, chance: &mut Chance) -> (u64, u64) {
    let settings = Settings {
        min_free_disk_bytes: 0,
        ..Settings::default()
    };
    let store = Store::open(data, &settings).expect("it opens");
    holder.read_on(&store, chance);
    let view = store.view();
    let frames = store.frames().expect("on disk");
    let report = check::check_with_frames(&view, frames, &mut |_| {});
    let report = report.expect("it can be read");
    assert!(report.is_clean(), "{report:?}");
    let first = view.first_log_number().expect("it can be read");
    let over = view.purges(0).map(|row| row.expect("it can be read").1);
    let over = over.filter(|purge| purge.finished_at.is_some()).count();
    drop(view);
    store.close().expect("it closes");
    (first, over as u64)
}

#[tokio::test(flavor = "multi_thread")]
async fn kills_amid_purges_and_trims_take_nothing_from_a_consumer_that_holds() {
    let kills = std::env::var("PROGRAM_KILLS");
    let kills = kills.map_or(KILLS, |text| text.parse().expect("a number"));
    let mut world = World::quiet(NetConfig {
        did_web: false,
        ..network(6, 2)
    })
    .await;
    world.flags.sweep_every = Some("1s".to_owned());
    let brief = "purge_grace = \"1s\"\nkeep_versions = \"1s\"\nkeep_log = \"1s\"\n";
    world.toml = format!("{brief}{}\n[serve]\nwindow = \"1s\"\n", world.toml);
    // The event at the cursor may be one of an account that is deleted by now.
    world.expect("a new epoch begins");
    let (mut audit, mut chance) = (Audit::default(), Chance::new());
    let mut holder = Holder {
        model: LogModel::from_the_beginning(),
        registered: false,
    };
    // It registers before the first start, so that nothing is trimmed before.
    let mut found = follow(&world.data(), &mut holder, &mut chance);
    let mut large = None;
    let mut deleted = BTreeSet::new();
    let mut round = 0;
    // Beyond the kills that were asked for, until something was trimmed and purged.
    while round < kills || found.0 <= 1 || found.1 == 0 {
        assert!(
            round < kills + 60,
            "nothing was trimmed or purged: {found:?}"
        );
        if round % DELETE_EVERY == 0 {
            if let Some(gone) = large.take() {
                world
                    .net
                    .set_status(&gone, Status::Deleted)
                    .expect("it is active");
                deleted.insert(gone);
            }
            let account = NewAccount {
                host: 0,
                curve: Curve::K256,
                web: false,
                records: RECORDS,
            };
            large = Some(world.net.create_account(account).expect("a host"));
        }
        world.net.set_rate(LOAD).expect("a rate");
        let mut program = Program::start(&world, EXE);
        program.until_status("it answers", |_| true).await;
        chance.wait(Duration::from_millis(2_500)).await;
        program.kill();
        world.net.set_rate(0.0).expect("a rate");
        audit.check_data(&world.data(), &world.net);
        found = follow(&world.data(), &mut holder, &mut chance);
        round += 1;
    }
    eprintln!(
        "{round} kills, the log is trimmed up to {}, {} purges are over, {} states compared, {} \
         comparisons of models",
        found.0, found.1, audit.exact, audit.observer.checks,
    );
    let mut program = Program::start(&world, EXE);
    for did in world.net.truth().dids() {
        if !deleted.contains(&did) {
            program.until_complete(&did).await;
        }
    }
    program.kill();
    audit.check_data(&world.data(), &world.net);
}
