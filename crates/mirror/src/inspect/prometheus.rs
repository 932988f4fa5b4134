//! Writes the metrics in the text format of Prometheus: the counters as they are, and
//! gauges from the last count of the repositories and from the state of the mirror.

use std::fmt::Write;
use std::sync::atomic::Ordering;

use crate::api::{ApiError, ConsumerAnswer, Inspect as _, UpstreamAnswer};
use crate::desk::totals::DeskTotals;
use crate::inspect::Inspector;
use crate::inspect::counts::CountResult;
use crate::inspect::ready::hosts::sweep_ages;
use crate::inspect::source_report::source_metrics;
use crate::metrics::head;
use crate::services::Services;
use crate::sweep::queue::Sweeps;

/// A gauge without labels: name, HELP text and value.
type Gauge = (&'static str, &'static str, u64);

impl Inspector {
    /// All metrics in the text format of Prometheus.
    pub(crate) fn metrics_text(&self) -> Result<String, ApiError> {
        let mut out = String::new();
        self.services.metrics.write(&mut out);
        let counted = self.counter.count()?;
        let gauges = count_gauges(self.desks.totals(), &counted).into_iter();
        let state = state_gauges(&self.services, self.desks.totals(), &self.sweeps);
        for (name, help, value) in gauges.chain(state) {
            head(&mut out, name, "gauge", help);
            let _ = writeln!(out, "{name} {value}");
        }
        consumer_metrics(&self.consumers()?.consumers, &mut out);
        upstream_metrics(&self.services, &self.upstream_answers()?, &mut out);
        Ok(out)
    }
}

/// Gauges of repositories, debts and parked frames.
fn count_gauges(totals: &DeskTotals, counted: &CountResult) -> [Gauge; 10] {
    let counts = counted.counts;
    [
        ("gapless_repos", "Known repositories.", counts.total),
        (
            "gapless_repos_complete",
            "Repositories that are complete.",
            counts.complete,
        ),
        (
            "gapless_repos_proven",
            "Complete repositories whose root was recomputed from the store.",
            counts.proven,
        ),
        (
            "gapless_repos_incomplete",
            "Repositories that are neither complete nor hidden.",
            counts.incomplete,
        ),
        (
            "gapless_repos_hidden",
            "Repositories that are deactivated, suspended, taken down or deleted.",
            counts.hidden,
        ),
        ("gapless_debts", "Repositories with a debt.", counted.debts),
        (
            "gapless_debt_oldest_seconds",
            "Age of the oldest debt.",
            counted.oldest_debt.unwrap_or(0),
        ),
        ("gapless_parked", "Parked frames.", counted.parked),
        (
            "gapless_parked_bytes",
            "Bytes of parked frames.",
            totals.parked_bytes.load(Ordering::Relaxed),
        ),
        (
            "gapless_repos_not_recomputable",
            "Repositories whose root cannot be recomputed because not all keys are held.",
            counts.not_recomputable,
        ),
    ]
}

/// Gauges of the store, the hosts and the work in progress.
fn state_gauges(services: &Services, totals: &DeskTotals, sweeps: &Sweeps) -> [Gauge; 8] {
    let (changes, bytes) = services.store.queue_depth();
    let log_head = services.store.durable_head().next_seq;
    [
        (
            "gapless_claims",
            "Paths with a claim from an unproven source that is not proven yet.",
            totals.claims.count(),
        ),
        (
            "gapless_store_full",
            "1 while the disk is full and nothing is written, otherwise 0.",
            u64::from(services.disk.shortage().is_some()),
        ),
        (
            "gapless_dead_letters",
            "Unresolved dead letters.",
            totals.dead_letters.load(Ordering::Relaxed),
        ),
        (
            "gapless_hosts_failing",
            "Hosts whose last sweep failed.",
            sweeps.failing_count() as u64,
        ),
        (
            "gapless_log_head",
            "Newest number of the log.",
            log_head.saturating_sub(1),
        ),
        (
            "gapless_at_work",
            "Repositories that are being checked or fetched.",
            services.schedule.at_work() as u64,
        ),
        (
            "gapless_queue_changes",
            "Changes that wait to be written.",
            changes as u64,
        ),
        (
            "gapless_queue_bytes",
            "Bytes of changes that wait to be written.",
            bytes as u64,
        ),
    ]
}

/// Appends the metrics that have labels for the consumer of the log.
fn consumer_metrics(consumers: &[ConsumerAnswer], out: &mut String) {
    type ConsumerColumn = fn(&ConsumerAnswer) -> u64;
    let gauges: [(&str, &str, ConsumerColumn); 3] = [
        (
            "gapless_consumer_behind",
            "Log numbers that the consumer of the log has not processed.",
            |one| one.behind,
        ),
        (
            "gapless_consumer_overrun",
            "1 while the consumer of the log is overrun and holds nothing, otherwise 0.",
            |one| u64::from(one.overrun),
        ),
        (
            "gapless_consumer_holds",
            "Log numbers that the consumer of the log holds back.",
            |one| one.holds_numbers,
        ),
    ];
    for (name, help, read) in gauges {
        head(out, name, "gauge", help);
        for one in consumers {
            let (consumer, class) = (escape_label(&one.name), &one.class);
            let (id, lane, value) = (one.id, one.lane, read(one));
            let _ = writeln!(
                out,
                "{name}{{consumer=\"{consumer}\",class=\"{class}\",id=\"{id}\",lane=\"{lane}\"}} {value}"
            );
        }
    }
}

/// Escapes the value of a label.
fn escape_label(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('"', "\\\"");
    text.replace('\n', "\\n")
}

/// Appends the metrics that have a label for the upstream.
fn upstream_metrics(services: &Services, upstreams: &[UpstreamAnswer], out: &mut String) {
    type UpstreamColumn = fn(&UpstreamAnswer) -> Option<f64>;
    let gauges: [(&str, &str, UpstreamColumn); 4] = [
        (
            "gapless_upstream_connected",
            "1 while the upstream is connected, otherwise 0.",
            |one| Some(f64::from(u8::from(one.connected))),
        ),
        (
            "gapless_upstream_open",
            "1 while the upstream's epoch is open, otherwise 0.",
            |one| Some(f64::from(u8::from(one.open))),
        ),
        (
            "gapless_upstream_cursor",
            "Number of the last event of the upstream whose effects are durable.",
            |one| one.cursor.map(|cursor| cursor as f64),
        ),
        (
            "gapless_upstream_lag_seconds",
            "Age of the last applied commit of the upstream when the commit was durable.",
            |one| one.lag_seconds,
        ),
    ];
    for (name, help, read) in gauges {
        head(out, name, "gauge", help);
        for one in upstreams {
            if let Some(value) = read(one) {
                let _ = writeln!(out, "{name}{{upstream=\"{}\"}} {value}", one.url);
            }
        }
    }
    source_metrics(services, out, upstreams);
    let name = "gapless_upstream_sweep_age_seconds";
    head(
        out,
        name,
        "gauge",
        "Time since the upstream's host was last swept.",
    );
    for (url, age) in sweep_ages(services) {
        let _ = writeln!(out, "{name}{{upstream=\"{url}\"}} {age}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_consumer_cannot_break_the_text_format() {
        let one = ConsumerAnswer {
            name: "a\"b\\c\nd".to_owned(),
            class: "recipient".to_owned(),
            id: 7,
            lane: 9,
            behind: 12,
            holds_numbers: 3,
            ..ConsumerAnswer::default()
        };
        let mut out = String::new();
        consumer_metrics(&[one], &mut out);
        let labels = r#"{consumer="a\"b\\c\nd",class="recipient",id="7",lane="9"}"#;
        for line in [
            format!("gapless_consumer_behind{labels} 12"),
            format!("gapless_consumer_overrun{labels} 0"),
            format!("gapless_consumer_holds{labels} 3"),
        ] {
            assert!(out.lines().any(|of| of == line), "{line}: {out}");
        }
    }
}
