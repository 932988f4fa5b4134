//! Plays the shared acts against the real program, and after them the acts that need its
//! process: kills, and a disk without room.

use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use gapless::demo::DemoError;
use gapless::demo::acts::network::MirroredNetwork;
use gapless::demo::acts::{ACTS, Act, Breakage, FURTHER_ACTS, RELAY_ACTS};
use gapless_atp::syntax::Did;
use gapless_harness::PATIENCE;
use gapless_mirror::api::{RepoAnswer, Status};
use gapless_testnet::{Place, Testnet};

use crate::script::stage::{Layout, Script};

/// Commits per second in the background, while several acts are repaired.
const LOAD: f64 = 40.0;
/// Commits per second in the background, while the program is killed.
const LOAD_AND_KILLS: f64 = 120.0;
const KILLED: i32 = 9;

/// Whether an act is played at once with others: acts that fail the fetch of one repository.
fn is_at_once(act: &Act) -> bool {
    matches!(
        act.breakage,
        Breakage::LostDelete | Breakage::SpoiltFetch(..)
    )
}

impl MirroredNetwork for Script {
    fn net(&self) -> &Testnet {
        &self.world.net
    }

    fn stream(&self, host: usize) -> Place {
        match self.layout {
            Layout::Hosts => Place::Pds(host),
            Layout::Relay => Place::Relay,
        }
    }

    async fn repo(&mut self, did: &Did) -> Result<Option<RepoAnswer>, DemoError> {
        Ok(self.program().repo(did).await)
    }

    async fn status(&mut self) -> Result<Status, DemoError> {
        Ok(self.program().until_status("it answers", |_| true).await)
    }

    async fn stop_mirror(&mut self) -> Result<(), DemoError> {
        self.kill();
        Ok(())
    }

    async fn start_mirror(&mut self) -> Result<(), DemoError> {
        self.start().await;
        Ok(())
    }
}

impl Script {
    /// Plays all acts.
    pub(crate) async fn play(&mut self) {
        // The mirror reports the host that is wiped.
        self.world
            .expect("too many repositories vanished at once, so none is hidden");
        let relayed = match self.layout {
            Layout::Hosts => &[],
            Layout::Relay => RELAY_ACTS,
        };
        let all = ACTS.iter().chain(FURTHER_ACTS).chain(relayed);
        let (at_once, in_turn): (Vec<&Act>, Vec<&Act>) = all.partition(|act| is_at_once(act));
        self.play_at_once(&at_once).await;
        for act in in_turn {
            self.play_at_once(&[act]).await;
        }
        self.kills().await;
        self.disk_full().await;
    }

    /// Plays acts without waiting for a repair in between, then waits until everything is
    /// complete again, under load if there are several acts.
    async fn play_at_once(&mut self, acts: &[&Act]) {
        let mut played = Vec::new();
        for act in acts {
            let before = act.fired(&self.world.net);
            let broken = act.play(self).await;
            played.push((act, before, self.expect_played(act, broken)));
        }
        self.load(if acts.len() > 1 { LOAD } else { 0.0 });
        for (act, before, broken) in played {
            let mended = act.mend(self, &broken).await;
            self.expect_played(act, mended);
            for did in &broken {
                self.program().until_complete(did).await;
            }
            let fired = act.check_fired(&self.world.net, &before);
            self.expect_played(act, fired);
            self.log_time(act.name);
        }
        self.load(0.0);
        // What comes after a repair is followed too.
        self.post_to_all();
        self.all_true().await;
    }

    fn expect_played<T>(&mut self, act: &Act, played: Result<T, DemoError>) -> T {
        let log = self.program().log();
        played.unwrap_or_else(|error| panic!("{}: {error}\n{log}", act.name))
    }

    fn load(&self, commits_per_second: f64) {
        self.world.net.set_rate(commits_per_second).expect("a rate");
    }

    /// Killed again and again under load: at any moment, and between two stages of an
    /// event's way to the disk.
    async fn kills(&mut self) {
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
        self.start().await;
        self.post_to_all();
        self.all_true().await;
        self.log_time("kill -9, six times");
    }

    /// No room on the disk, and room again.
    async fn disk_full(&mut self) {
        self.world
            .expect("nothing is written until there is room on the disk");
        self.world.expect("writes nothing until there is more");
        std::fs::write(self.room(), "0").expect("a file");
        self.program()
            .until_status("no room", |status| !status.store.writes)
            .await;
        let head = self.program().status().await.expect("it answers").log.head;
        self.world.net.stir(30);
        let did = self.world.did(0);
        self.world.post(&did);
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
        self.log_time("the disk full");
    }
}
