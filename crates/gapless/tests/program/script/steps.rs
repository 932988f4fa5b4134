//! The steps of the script: each breaks something, sees that it broke, heals it, and
//! waits until everything that it touched is complete at its owner's head.

use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use gapless_atp::crypto::Curve;
use gapless_atp::syntax::Did;
use gapless_harness::{PATIENCE, new_path, record};
use gapless_testnet::{Fault, NewAccount, Place, Spec, Write};

use crate::script::stage::{HOSTS, Script};

/// Commits per second in the background, where a step wants some.
const LOAD: f64 = 40.0;
/// The same while the program is killed.
const LOAD_AND_KILLS: f64 = 120.0;
const KILLED: i32 = 9;
/// Events that a stream keeps, unless a step says otherwise.
const WINDOW: usize = 50_000;

impl Script {
    fn load(&self, commits_per_second: f64) {
        self.world.net.set_rate(commits_per_second).expect("a rate");
    }

    /// A commit is lost, and the next one does not chain.
    fn break_chain(&self, did: &Did) {
        self.world.lose_commit(did);
        self.world.post(did);
    }

    /// CARs that are cut, signed by another, or old; a fetch that fails at first; a
    /// delete inside a gap. Each has a repository of its own, and all happen at once.
    pub async fn spoilt_fetches(&mut self) {
        let (status, retry_after) = (503, None);
        let route = Some("getRepo".to_owned());
        let fails = Fault::HttpError {
            status,
            retry_after,
            route,
        };
        let faults = [
            (Fault::CarCut {}, 2),
            (Fault::CarOtherKey {}, 2),
            (Fault::CarOld { commits: 1 }, 2),
            (fails, 2),
        ];
        let mut dids = Vec::new();
        for (number, (fault, times)) in faults.into_iter().enumerate() {
            let did = self.did(number);
            self.world.inject(Spec::new(fault).of(&did).times(times));
            self.break_chain(&did);
            dids.push(did);
        }
        let did = self.did(dids.len());
        let path = self.world.some_path(&did);
        let drop_it = Fault::Drop { unnumbered: false };
        self.world.inject(Spec::new(drop_it).of(&did).times(1));
        let deleted = path.clone();
        self.world.write(&did, &[Write::Delete { path }]);
        self.world.post(&did);
        let records = self.world.net.truth().records(&did).expect("it exists");
        assert!(!records.contains_key(&deleted), "it is deleted");
        dids.push(did);
        self.load(LOAD);
        for did in &dids {
            self.true_again(did).await;
        }
        self.load(0.0);
        for (fault, times) in [
            ("car-cut", 2),
            ("car-other-key", 2),
            ("car-old", 1),
            ("http-error", 2),
        ] {
            self.world.until_fired(fault, times).await;
        }
        self.all_true().await;
    }

    /// A commit is lost, and nothing follows it.
    pub async fn silence(&mut self) {
        self.all_true().await;
        let did = self.did(5);
        self.world.lose_commit(&did);
        self.true_again(&did).await;
    }

    /// The dial is answered with errors, while commits go on.
    pub async fn refused_dials(&mut self) {
        let (stream, fired) = (self.stream(), self.world.fired("dial-error"));
        for (status, times) in [(503, 2), (429, 1)] {
            let refused = Spec::new(Fault::DialError { status });
            self.world.inject(refused.on(stream).times(times));
        }
        self.world
            .inject(Spec::new(Fault::Disconnect {}).on(stream));
        self.world.net.stir(30);
        self.world.until_fired("dial-error", fired + 3).await;
        self.everybody_posts();
        self.all_true().await;
    }

    /// Down for longer than the stream's window.
    pub async fn window_passed(&mut self) {
        self.kill();
        self.world.net.stir(40);
        self.everybody_posts();
        let stream = self.stream();
        self.world
            .inject(Spec::new(Fault::Window { events: 1 }).on(stream));
        self.start(&[]).await;
        let events = WINDOW;
        self.world
            .inject(Spec::new(Fault::Window { events }).on(stream));
        self.all_true().await;
    }

    /// A stream that counts from the beginning again.
    pub async fn sequence_restart(&mut self) {
        let stream = self.stream();
        let url = self.world.url(stream);
        let epoch_of = move |status: &gapless_mirror::api::Status| {
            let mut all = status.upstreams.iter();
            all.find(|one| one.url == url).map(|one| one.epoch)
        };
        let before = self.program().status().await.expect("it answers");
        let before = epoch_of(&before);
        self.world
            .inject(Spec::new(Fault::SeqRestart { next: 1 }).on(stream));
        self.world.net.stir(20);
        self.program()
            .until_status("a new epoch", |status| epoch_of(status) > before)
            .await;
        self.world.net.stir(20);
        self.all_true().await;
    }

    /// A `#sync`, and a commit, while a fetch is on its way.
    pub async fn sync_during_a_fetch(&mut self) {
        let did = self.world.account(0, 4);
        let stalled = self.world.fired("stall");
        let held = self.world.stall(0, "getRepo", Some(&did));
        self.break_chain(&did);
        self.world.until_fired("stall", stalled + 1).await;
        self.world.inject(Spec::new(Fault::Sync {}).of(&did));
        self.world.post(&did);
        self.world.inject(Spec::new(Fault::Sync {}).of(&did));
        self.world.clear(held).await;
        self.true_again(&did).await;
    }

    /// An account moves; nothing that was said about it arrives.
    pub async fn migration(&mut self) {
        let did = self.did(8);
        let head = self.world.net.truth().head(&did).expect("it exists");
        let lost = self
            .world
            .inject(Spec::new(Fault::Drop { unnumbered: false }).of(&did));
        self.world.post(&did);
        let (to, import) = (Some((head.host + 1) % HOSTS), false);
        self.world
            .inject(Spec::new(Fault::Migrate { to, import }).of(&did));
        self.world.post(&did);
        self.world.clear(lost).await;
        self.true_again(&did).await;
        self.world.post(&did);
        self.true_again(&did).await;
    }

    /// Killed again and again under load: at any moment, and between two stages of an
    /// event's way to the disk.
    pub async fn kills(&mut self) {
        self.load(LOAD_AND_KILLS);
        for _ in 0..4 {
            self.kill();
            self.launch(&[]);
            self.program().until_status("it answers", |_| true).await;
            self.chance.wait(Duration::from_millis(400)).await;
        }
        for point in ["event.decided:30", "event.durable:25"] {
            self.kill();
            self.launch(&[("STOP_POINT", point)]);
            let ended = self.program().until_ended(PATIENCE).await;
            assert_eq!(ended.signal(), Some(KILLED), "{point}");
        }
        self.kill();
        self.load(0.0);
        self.start(&[]).await;
        self.everybody_posts();
        self.all_true().await;
    }

    /// The directory answers nobody, while a key changes and somebody is new.
    pub async fn directory_down(&mut self) {
        let down = self.world.inject(Spec::new(Fault::PlcDown {}));
        let did = self.did(9);
        self.world
            .inject(Spec::new(Fault::RotateKey { quiet: true }).of(&did));
        let unjudged = self.world.post(&did);
        let newcomer = self.world.net.create_account(NewAccount {
            host: 0,
            curve: Curve::P256,
            web: false,
            records: 12,
        });
        let newcomer = newcomer.expect("it is created");
        self.program()
            .until_repo(&did, "in doubt", |answer| !answer.complete)
            .await;
        self.world.until_fired("plc-down", 2).await;
        let answer = self.program().repo(&did).await.expect("it is known");
        assert_ne!(
            answer.rev,
            Some(unjudged.rev.to_string()),
            "nobody could judge it"
        );
        self.world.clear(down).await;
        self.true_again(&did).await;
        self.true_again(&newcomer).await;
    }

    /// No room on the disk, and room again.
    pub async fn disk_full(&mut self) {
        self.world
            .expect("nothing is written until there is room on the disk");
        self.world.expect("writes nothing until there is more");
        std::fs::write(self.room(), "0").expect("a file");
        self.program()
            .until_status("no room", |status| !status.store.writes)
            .await;
        let head = self.program().status().await.expect("it answers").log.head;
        self.world.net.stir(30);
        let (did, path) = (self.did(10), new_path());
        let text = record(&path);
        self.world
            .write(&did, &[Write::Create { path, record: text }]);
        self.program()
            .until_repo(&did, "unable to keep up", |answer| !answer.complete)
            .await;
        let then = self.program().status().await.expect("it answers").log.head;
        assert_eq!(then, head, "nothing was written");
        std::fs::remove_file(self.room()).expect("it is there");
        self.program()
            .until_status("room", |status| status.store.writes)
            .await;
        self.all_true().await;
    }

    /// What a relay leaves out, skips, and says again under other numbers.
    pub async fn relay_faults(&mut self) {
        let (silent, skipped) = (self.did(11), self.did(12));
        let omit = self
            .world
            .inject(Spec::new(Fault::RelayOmit {}).of(&silent));
        for _ in 0..3 {
            self.world.post(&silent);
        }
        self.world.clear(omit).await;
        self.world
            .inject(Spec::new(Fault::RelayGap {}).of(&skipped).times(1));
        self.world.post(&skipped);
        self.true_again(&silent).await;
        self.true_again(&skipped).await;
        self.world.net.stir(60);
        self.all_true().await;
        let relay = Place::Relay;
        let before = self.world.net.last_seq(relay).expect("it is there");
        self.world
            .inject(Spec::new(Fault::RelayRollback { events: 30 }).on(relay));
        self.world.inject(Spec::new(Fault::Disconnect {}).on(relay));
        assert!(self.world.net.last_seq(relay) < Some(before));
        // Other events under numbers that were given before, and then further ones.
        self.world.net.stir(15);
        self.all_true().await;
        self.world.net.stir(40);
        self.all_true().await;
        assert!(self.world.net.last_seq(relay) > Some(before));
    }

    /// Every fault of it has fired; those that waited for their moment are for
    /// the world to see to.
    pub fn all_fired(&self, names: &[&str]) {
        for name in names {
            assert!(self.world.fired(name) > 0, "{name} never fired");
        }
    }
}

/// The whole script, but for what only a relay does.
pub async fn play(script: &mut Script) {
    let began = std::time::Instant::now();
    let told = |step: &str| eprintln!("{:>6.1} s  {step}", began.elapsed().as_secs_f64());
    script.spoilt_fetches().await;
    told("spoilt fetches, a delete inside a gap");
    script.silence().await;
    told("a commit dropped, then silence");
    script.refused_dials().await;
    told("errors on the dial");
    script.window_passed().await;
    told("the window passed while down");
    script.sequence_restart().await;
    told("a sequence restart");
    script.sync_during_a_fetch().await;
    told("#sync during a fetch");
    script.migration().await;
    told("a migration with missed events");
    script.kills().await;
    told("kill -9, six times");
    script.directory_down().await;
    told("the directory down");
    script.disk_full().await;
    told("the disk full");
    script.all_fired(FAULTS);
}

/// What the script breaks.
const FAULTS: &[&str] = &[
    "car-cut",
    "car-other-key",
    "car-old",
    "http-error",
    "drop",
    "dial-error",
    "disconnect",
    "window",
    "seq-restart",
    "stall",
    "sync",
    "migrate",
    "plc-down",
    "rotate-key",
];
