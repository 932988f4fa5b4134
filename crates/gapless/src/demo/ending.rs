//! The end of the demonstration: the last comparison, the summary and, with `--keep`, a
//! network and a mirror that keep running.

use std::path::Path;

use serde_json::json;

use crate::demo::story::{Observations, read_counters};
use crate::demo::{Demo, DemoError, traffic};
use gapless_mirror::api::Inspect as _;

impl Demo {
    /// After the traffic: waits until every repository is complete, compares all records
    /// with the truth once more, recomputes every root and prints the summary.
    pub(super) async fn print_summary(&self, repaired: usize) -> Result<bool, DemoError> {
        let all = self.stage.net.truth().dids();
        self.until_complete(&all, &mut Observations::default(), "at the end")
            .await?;
        let mirror = self.stage.running()?;
        let judge = self.judge.clone();
        let (before, last) = (self.judge.tally(), mirror.clone());
        let judged = tokio::task::spawn_blocking(move || judge.pass(&last)).await;
        judged.map_err(|error| DemoError::Wrong(error.to_string()))??;
        let tally = self.judge.tally();
        let proof =
            tokio::task::spawn_blocking(move || mirror.inspector().verify_all(&|_| true)).await;
        let proof = proof
            .map_err(|error| DemoError::Wrong(error.to_string()))?
            .map_err(|error| DemoError::Mirror(error.to_string()))?;
        self.tell_differences();
        let seconds = self.began.elapsed().as_secs_f64();
        let fine = tally.differences == 0
            && tally.log_differences == 0
            && tally.failed.is_none()
            && tally.complete == tally.repos
            && proof.proven == tally.repos
            && proof.mismatches == 0;
        let at_the_end = tally.records - before.records;
        let words = format!(
            "\n{repaired} faults, {repaired} repaired, in {seconds:.0} s.\n\
             gaps: {} opened, {} closed. Complete at the end: {} of {}; roots recomputed and equal to the signed ones: {}.\n\
             Compared with the truth: {} records in {} checks during the run, and all {at_the_end} at the end.\n\
             The log, read to number {} and by {} consumers that began with a walk: compared with the store {} times, differences: {}\n\
             records that differ from the truth in repositories called complete: {}\n\
             records that differ from the truth at the stated rev, complete or not: {}",
            tally.gaps_opened,
            tally.gaps_closed,
            tally.complete,
            tally.repos,
            proof.proven,
            tally.records - at_the_end,
            tally.checks,
            tally.log_upto,
            tally.log_walks,
            tally.log_checks,
            tally.log_differences,
            tally.differences_in_complete,
            tally.differences,
        );
        let event = json!({
            "event": "summary", "fine": fine, "seconds": seconds,
            "faults": repaired, "repaired": repaired,
            "repositories": tally.repos, "complete": tally.complete, "proven": proof.proven,
            "gaps_opened": tally.gaps_opened, "gaps_closed": tally.gaps_closed,
            "checks": tally.checks, "records_compared": tally.records,
            "records_at_the_end": at_the_end,
            "log_upto": tally.log_upto, "log_walks": tally.log_walks,
            "log_checks": tally.log_checks, "log_differences": tally.log_differences,
            "differences": tally.differences,
            "differences_in_complete": tally.differences_in_complete,
            "told": tally.told, "failed": tally.failed, "counted": read_counters(&*self.stage.running()?),
        });
        self.view.tell(&words, &event);
        Ok(fine)
    }

    /// Prints the differences that the comparisons found, record by record.
    pub(super) fn tell_differences(&self) {
        let tally = self.judge.tally();
        for what in &tally.told {
            let event = json!({ "event": "difference", "what": what });
            self.view.tell(&format!("DIFFERS   {what}"), &event);
        }
        if let Some(why) = &tally.failed {
            let event = json!({ "event": "not compared", "why": why });
            let words = format!("FAILED    a comparison was not finished: {why}");
            self.view.tell(&words, &event);
        }
    }

    /// Keeps the network and the mirror running until Ctrl-C.
    pub(super) async fn keep_running(
        &self,
        stop: &mut (impl Future<Output = ()> + Unpin),
        folder: &Path,
        ended: &Result<bool, DemoError>,
    ) {
        let traffic = tokio::spawn(traffic::run(self.stage.clone()));
        let urls = self.stage.net.urls();
        let mirror = format!("http://{}", self.stage.address());
        if let Err(error) = ended {
            self.view.tell(
                &format!("\nThe demonstration failed: {error}"),
                &json!({ "event": "failed", "error": error.to_string() }),
            );
        }
        let words = format!(
            "\nThe network and the mirror run until Ctrl-C.\n\
             mirror     {mirror}\n\
             servers    {}\n\
             directory  {}\n\
             control    {}\n\
             log        {}\n\n\
             Look at it:   gapless status --url {mirror}\n\
             \x20             gapless gaps --url {mirror}\n\
             Break it:     curl -X POST {}/_control/drop -d '{{\"count\":5}}'\n\
             \x20             curl {}/_control/catalogue    # everything that can be broken",
            urls.pds.join(" "),
            urls.plc,
            urls.control,
            folder.join("log").display(),
            urls.control,
            urls.control,
        );
        let event = json!({ "event": "kept", "mirror": mirror, "network": urls });
        self.view.tell(&words, &event);
        stop.await;
        traffic.abort();
    }
}
