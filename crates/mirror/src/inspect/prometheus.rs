//! What is measured, as Prometheus reads it: counters as they stand, gauges counted
//! from the store.

use std::fmt::Write;
use std::sync::atomic::Ordering;

use crate::api::{ApiError, UpstreamAnswer};
use crate::inspect::Inspector;
use crate::metrics::head;

impl Inspector {
    pub(crate) fn metrics_text(&self) -> Result<String, ApiError> {
        let mut out = String::new();
        self.services.metrics.write(&mut out);
        let counted = self.count()?;
        let counts = counted.counts;
        let (changes, bytes) = self.services.store.queue_depth();
        let gauges: [(&str, &str, u64); 18] = [
            (
                "gapless_repos",
                "Repositories that are known.",
                counts.total,
            ),
            (
                "gapless_repos_complete",
                "Of these: complete.",
                counts.complete,
            ),
            (
                "gapless_repos_proven",
                "Of these: complete, and the root was recomputed.",
                counts.proven,
            ),
            (
                "gapless_repos_incomplete",
                "Neither complete nor hidden.",
                counts.incomplete,
            ),
            (
                "gapless_repos_hidden",
                "Deactivated, suspended, taken down or deleted.",
                counts.hidden,
            ),
            (
                "gapless_debts",
                "Repositories for which something is owed.",
                counted.debts,
            ),
            (
                "gapless_debt_oldest_seconds",
                "How long the oldest debt has been owed.",
                counted.oldest_debt.unwrap_or(0),
            ),
            ("gapless_parked", "Frames that wait.", counted.parked),
            (
                "gapless_parked_bytes",
                "Their bytes.",
                self.services.totals.parked_bytes.load(Ordering::Relaxed),
            ),
            (
                "gapless_repos_not_recomputable",
                "Not all keys are held, so that the root cannot be recomputed.",
                counts.not_recomputable,
            ),
            (
                "gapless_claims",
                "Paths of which unproven sources say something that is not proven yet.",
                self.services.totals.claims.count(),
            ),
            (
                "gapless_store_full",
                "1 while there is no room on the disk and nothing is written.",
                u64::from(self.services.disk.shortage().is_some()),
            ),
            (
                "gapless_dead_letters",
                "Dead letters that nobody has settled.",
                self.services.totals.dead_letters.load(Ordering::Relaxed),
            ),
            (
                "gapless_hosts_failing",
                "Hosts whose last sweep failed.",
                self.sweeps.failing_count() as u64,
            ),
            (
                "gapless_log_head",
                "The newest log number.",
                self.services
                    .store
                    .durable_head()
                    .next_seq
                    .saturating_sub(1),
            ),
            (
                "gapless_at_work",
                "Repositories that are asked about or fetched now.",
                self.services.schedule.at_work() as u64,
            ),
            (
                "gapless_queue_changes",
                "Changes that wait to be written.",
                changes as u64,
            ),
            ("gapless_queue_bytes", "Their bytes.", bytes as u64),
        ];
        for (name, help, value) in gauges {
            head(&mut out, name, "gauge", help);
            let _ = writeln!(out, "{name} {value}");
        }
        self.upstream_metrics(&mut out)?;
        Ok(out)
    }

    fn upstream_metrics(&self, out: &mut String) -> Result<(), ApiError> {
        let upstreams = self.upstream_answers()?;
        type Column = fn(&UpstreamAnswer) -> Option<f64>;
        let gauges: [(&str, &str, Column); 4] = [
            (
                "gapless_upstream_connected",
                "Whether an upstream is connected.",
                |one| Some(f64::from(u8::from(one.connected))),
            ),
            (
                "gapless_upstream_open",
                "Whether its epoch is open.",
                |one| Some(f64::from(u8::from(one.open))),
            ),
            (
                "gapless_upstream_cursor",
                "The last event whose effects are durable.",
                |one| one.cursor.map(|cursor| cursor as f64),
            ),
            (
                "gapless_upstream_lag_seconds",
                "How old the last applied commit was when it was durable.",
                |one| one.lag_seconds,
            ),
        ];
        for (name, help, read) in gauges {
            head(out, name, "gauge", help);
            for one in &upstreams {
                if let Some(value) = read(one) {
                    let _ = writeln!(out, "{name}{{upstream=\"{}\"}} {value}", one.url);
                }
            }
        }
        self.source_metrics(out, &upstreams);
        let name = "gapless_upstream_sweep_age_seconds";
        head(out, name, "gauge", "How long ago its host was last swept.");
        for (url, age) in self.sweep_ages() {
            let _ = writeln!(out, "{name}{{upstream=\"{url}\"}} {age}");
        }
        Ok(())
    }
}
