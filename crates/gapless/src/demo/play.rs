//! Plays all acts, one after another. Each act is observed from before its fault until
//! every repository is complete again, and the observations become its story.

use std::time::{Duration, Instant};

use gapless_atp::syntax::Did;
use serde_json::json;

use crate::demo::acts::{ACTS, Act};
use crate::demo::stage::Stage;
use crate::demo::story::{Mark, Observations, Story};
use crate::demo::{Demo, DemoError, REPAIR_TIMEOUT, traffic};

/// How often the repositories are checked.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// The pause after each act on a terminal, for a person who reads along.
const PAUSE_AFTER_ACT: Duration = Duration::from_secs(2);

impl Demo {
    /// Starts the traffic, plays all acts and stops the traffic. Returns the number of
    /// repaired faults.
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
        self.until_complete(&all, &mut Observations::default(), "at the beginning")
            .await?;
        let seconds = began.elapsed().as_secs_f64();
        let words = format!("All {} are complete after {seconds:.1} s.", all.len());
        let event = json!({ "event": "complete", "seconds": seconds });
        self.view.tell(&words, &event);
        for (index, act) in ACTS.iter().enumerate() {
            self.perform(index + 1, act).await?;
        }
        Ok(ACTS.len())
    }

    async fn perform(&self, number: usize, act: &Act) -> Result<(), DemoError> {
        let mut stage: &Stage = &self.stage;
        let fired = act.fired(&stage.net);
        let mut mark = Mark::take(&*self.stage.running()?)?;
        let began = Instant::now();
        let mut seen = Observations::default();
        let broken = self.watching(&mut seen, act.play(&mut stage)).await?;
        if act.restarts_mirror() {
            mark = mark.after_restart();
        }
        let words = format!("\n{number:>2}. {}\n    broke     {}", act.name, act.what);
        let event = json!({
            "event": "broke", "number": number, "fault": act.name, "what": act.what,
            "repositories": broken.iter().map(Did::as_str).collect::<Vec<_>>(),
        });
        self.view.tell(&words, &event);
        let mending = act.mend(&mut stage, &broken);
        if let Some(mended) = self.watching(&mut seen, mending).await? {
            let words = format!("    meanwhile {mended}");
            let event = json!({ "event": "meanwhile", "number": number, "what": mended });
            self.view.tell(&words, &event);
        }
        self.until_complete(&broken, &mut seen, act.name).await?;
        act.check_fired(&self.stage.net, &fired)?;
        seen.retain(&broken);
        let story = Story::of(&*self.stage.running()?, &mark, seen, &broken)?;
        let (told, seconds) = (story.summary(), began.elapsed().as_secs_f64());
        let words = format!("    repaired  after {seconds:.1} s: {told}");
        let event = json!({
            "event": "repaired", "number": number, "fault": act.name, "seconds": seconds,
            "how": told, "reasons": story.seen.reasons(), "owed": story.seen.owed(),
            "counted": story.growth,
        });
        self.view.tell(&words, &event);
        let tally = self.judge.tally();
        self.view.line(&self.status(&tally));
        // Side effects of this act end before the next one begins.
        let all = self.stage.net.truth().dids();
        self.until_complete(&all, &mut Observations::default(), act.name)
            .await?;
        if self.view.is_watched() {
            tokio::time::sleep(PAUSE_AFTER_ACT).await;
        }
        Ok(())
    }

    /// Observes all repositories until `doing` is done.
    async fn watching<T>(
        &self,
        seen: &mut Observations,
        doing: impl Future<Output = Result<T, DemoError>>,
    ) -> Result<T, DemoError> {
        tokio::pin!(doing);
        loop {
            tokio::select! {
                done = &mut doing => return done,
                () = tokio::time::sleep(POLL_INTERVAL) => {
                    if self.stage.mirror().is_some() {
                        self.observe(&self.stage.net.truth().dids(), seen)?;
                    }
                }
            }
        }
    }

    fn observe(&self, dids: &[Did], seen: &mut Observations) -> Result<(), DemoError> {
        let mirror = self.stage.running()?;
        for did in dids {
            seen.observe(&mirror, did)?;
        }
        Ok(())
    }

    /// Waits until these repositories are complete at the heads of their owners.
    pub(super) async fn until_complete(
        &self,
        dids: &[Did],
        seen: &mut Observations,
        when: &str,
    ) -> Result<(), DemoError> {
        let began = Instant::now();
        let mut waiting: Vec<Did> = dids.to_vec();
        while !waiting.is_empty() {
            self.observe(&waiting, seen)?;
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
            let differences = tally.differences + tally.log_differences;
            if let Some(first) = tally.told.first().filter(|_| differences > 0) {
                return Err(DemoError::Wrong(format!(
                    "{when}: what the mirror holds is not what was signed: {first}"
                )));
            }
            if began.elapsed() > REPAIR_TIMEOUT {
                let many = left.len();
                let first = first.unwrap_or_default();
                return Err(DemoError::Wrong(format!(
                    "{when}: not repaired after {} s: {many} repositories, {first}",
                    REPAIR_TIMEOUT.as_secs()
                )));
            }
            waiting = left;
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }
}
