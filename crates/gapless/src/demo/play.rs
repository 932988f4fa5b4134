//! The play: all acts, one after another. Each is watched from before something breaks
//! until everything is complete again, and what was seen becomes its story.

use std::time::{Duration, Instant};

use gapless_atp::syntax::Did;
use serde_json::json;

use crate::demo::script::{ACTS, Act};
use crate::demo::story::{Mark, Seen, Story};
use crate::demo::{Demo, DemoError, PATIENCE, traffic};

/// How often it is looked whether something is repaired.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// On a terminal, so long after each act, for whoever reads it.
const BEAT: Duration = Duration::from_secs(2);

impl Demo {
    /// Begins the traffic, plays all acts, ends the traffic. Returns how many were
    /// repaired.
    pub(super) async fn play(&self) -> Result<usize, DemoError> {
        let traffic = tokio::spawn(traffic::run(self.stage.clone()));
        let played = self.play_all().await;
        traffic.abort();
        let _ = traffic.await;
        played
    }

    async fn play_all(&self) -> Result<usize, DemoError> {
        let all = self.stage.net.truth().dids();
        let began = Instant::now();
        self.until_complete(&all, &mut Seen::default(), "at the beginning")
            .await?;
        let seconds = began.elapsed().as_secs_f64();
        let words = format!("All {} are complete after {seconds:.1} s.", all.len());
        let event = json!({ "event": "complete", "seconds": seconds });
        self.view.tell(&words, &event);
        for (index, act) in ACTS.iter().enumerate() {
            self.perform(index + 1, *act).await?;
        }
        Ok(ACTS.len())
    }

    async fn perform(&self, number: usize, act: Act) -> Result<(), DemoError> {
        let faults = self.stage.net.faults();
        let fired: Vec<u64> = act.faults().iter().map(|name| faults.fired(name)).collect();
        let mut mark = Mark::set(&*self.stage.running()?)?;
        let began = Instant::now();
        let mut seen = Seen::default();
        let broken = self.watching(&mut seen, act.play(&self.stage)).await?;
        if broken.restarted {
            mark = mark.anew();
        }
        let words = format!(
            "\n{number:>2}. {}\n    broke     {}",
            act.name(),
            broken.what
        );
        let event = json!({
            "event": "broke", "number": number, "fault": act.name(), "what": broken.what,
            "repositories": broken.dids.iter().map(Did::as_str).collect::<Vec<_>>(),
        });
        self.view.tell(&words, &event);
        let mending = act.mend(&self.stage, &broken);
        if let Some(mended) = self.watching(&mut seen, mending).await? {
            let words = format!("    meanwhile {}", mended.what);
            let event = json!({ "event": "meanwhile", "number": number, "what": mended.what });
            self.view.tell(&words, &event);
        }
        self.until_complete(&broken.dids, &mut seen, act.name())
            .await?;
        for (name, before) in act.faults().iter().zip(fired) {
            if faults.fired(name) <= before {
                let words = format!("{}: the fault {name} never fired", act.name());
                return Err(DemoError::Wrong(words));
            }
        }
        seen.keep(&broken.dids);
        let story = Story::of(&*self.stage.running()?, &mark, seen, &broken.dids)?;
        let (told, seconds) = (story.told(), began.elapsed().as_secs_f64());
        let words = format!("    repaired  after {seconds:.1} s: {told}");
        let event = json!({
            "event": "repaired", "number": number, "fault": act.name(), "seconds": seconds,
            "how": told, "reasons": story.seen.reasons(), "owed": story.seen.owed(),
            "counted": story.grown,
        });
        self.view.tell(&words, &event);
        let tally = self.judge.tally();
        self.view.line(&self.standing(&tally));
        // What else it did is over before the next one begins.
        let all = self.stage.net.truth().dids();
        self.until_complete(&all, &mut Seen::default(), act.name())
            .await?;
        if self.view.is_watched() {
            tokio::time::sleep(BEAT).await;
        }
        Ok(())
    }

    /// Looks at everybody while something is done.
    async fn watching<T>(
        &self,
        seen: &mut Seen,
        doing: impl Future<Output = Result<T, DemoError>>,
    ) -> Result<T, DemoError> {
        tokio::pin!(doing);
        loop {
            tokio::select! {
                done = &mut doing => return done,
                () = tokio::time::sleep(LOOK_EVERY) => {
                    if self.stage.mirror().is_some() {
                        self.look(&self.stage.net.truth().dids(), seen)?;
                    }
                }
            }
        }
    }

    fn look(&self, dids: &[Did], seen: &mut Seen) -> Result<(), DemoError> {
        let mirror = self.stage.running()?;
        for did in dids {
            seen.look(&mirror, did)?;
        }
        Ok(())
    }

    /// Waits until these repositories are complete at their owners' heads.
    pub(super) async fn until_complete(
        &self,
        dids: &[Did],
        seen: &mut Seen,
        when: &str,
    ) -> Result<(), DemoError> {
        let began = Instant::now();
        let mut waiting: Vec<Did> = dids.to_vec();
        while !waiting.is_empty() {
            self.look(&waiting, seen)?;
            let mirror = self.stage.running()?;
            let mut left = Vec::new();
            let mut first = None;
            for did in waiting {
                if let Some(why) = self.judge.behind(&mirror, &did)? {
                    first.get_or_insert_with(|| format!("{did}: {why}"));
                    left.push(did);
                }
            }
            let tally = self.judge.tally();
            if let Some(first) = tally.told.first().filter(|_| tally.differences > 0) {
                return Err(DemoError::Wrong(format!(
                    "{when}: what the mirror holds is not what was signed: {first}"
                )));
            }
            if began.elapsed() > PATIENCE {
                let many = left.len();
                let first = first.unwrap_or_default();
                return Err(DemoError::Wrong(format!(
                    "{when}: not repaired after {} s: {many} repositories, {first}",
                    PATIENCE.as_secs()
                )));
            }
            waiting = left;
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(())
    }
}
