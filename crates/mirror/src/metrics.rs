//! What is counted, for Prometheus. Every name is in docs/metrics.md, and
//! `cargo xtask tidy` compares the two.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use gapless_core::ledger::Notice;
use gapless_core::ledger::notice::{DropReason, ResetReason};

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub fn inc(&self) {
        self.add(1);
    }

    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Upper bounds of the buckets of arrival to durable, in microseconds.
const LATENCY_BOUNDS: [u64; 12] = [
    1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 5_000_000,
    30_000_000,
];

/// How long something took.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [Counter; LATENCY_BOUNDS.len() + 1],
    sum_micros: Counter,
}

impl Histogram {
    pub fn observe(&self, micros: u64) {
        let place = LATENCY_BOUNDS.partition_point(|bound| *bound < micros);
        self.buckets[place].inc();
        self.sum_micros.add(micros);
    }

    fn write(&self, out: &mut String, name: &str, help: &str) {
        head(out, name, "histogram", help);
        let mut count = 0;
        for (place, bucket) in self.buckets.iter().enumerate() {
            count += bucket.get();
            let _ = match LATENCY_BOUNDS.get(place) {
                Some(bound) => {
                    let bound = *bound as f64 / 1e6;
                    writeln!(out, "{name}_bucket{{le=\"{bound}\"}} {count}")
                }
                None => writeln!(out, "{name}_bucket{{le=\"+Inf\"}} {count}"),
            };
        }
        let sum = self.sum_micros.get() as f64 / 1e6;
        let _ = writeln!(out, "{name}_sum {sum}\n{name}_count {count}");
    }
}

/// Numbers that only grow, one for each reason that has come up.
#[derive(Debug, Default)]
pub struct ByReason(Mutex<BTreeMap<&'static str, u64>>);

impl ByReason {
    pub fn inc(&self, reason: &'static str) {
        *self.lock().entry(reason).or_default() += 1;
    }

    pub fn get(&self, reason: &str) -> u64 {
        self.lock().get(reason).copied().unwrap_or(0)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<&'static str, u64>> {
        // Nothing in here can panic half way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, out: &mut String, name: &str, help: &str) {
        head(out, name, "counter", help);
        for (reason, count) in &*self.lock() {
            let _ = writeln!(out, "{name}{{reason=\"{reason}\"}} {count}");
        }
    }
}

macro_rules! counters {
    ($($field:ident: $name:literal, $help:literal;)*) => {
        /// Everything that is counted as it happens.
        #[derive(Debug, Default)]
        pub struct Metrics {
            $(pub $field: Counter,)*
            pub refused_by_reason: ByReason,
            pub claims_passed: ByReason,
            pub hosts_over: ByReason,
            pub arrival_to_durable: Histogram,
        }

        impl Metrics {
            /// As Prometheus reads it.
            pub fn write(&self, out: &mut String) {
                $(
                    head(out, $name, "counter", $help);
                    let _ = writeln!(out, concat!($name, " {}"), self.$field.get());
                )*
                self.refused_by_reason.write(
                    out,
                    "gapless_snapshots_refused_by_reason_total",
                    "Snapshots that failed a check, by what was wrong.",
                );
                self.claims_passed.write(
                    out,
                    "gapless_claims_passed_total",
                    "Operations told by a Jetstream that were not kept as claims, by why not.",
                );
                self.hosts_over.write(
                    out,
                    "gapless_hosts_over_quota_total",
                    "Of the names of hosts that were refused: those that were too many, by which limit.",
                );
                self.arrival_to_durable.write(
                    out,
                    "gapless_arrival_to_durable_seconds",
                    "From reading an event to its effects being durable.",
                );
            }
        }

    };
}

counters! {
    frames: "gapless_frames_total", "Frames read from upstreams.";
    frame_bytes: "gapless_frame_bytes_total", "Their bytes.";
    events_applied: "gapless_events_applied_total", "Commits and syncs that moved a head.";
    operations_applied: "gapless_operations_applied_total", "Operations of live commits that were applied.";
    events_replayed: "gapless_events_replayed_total", "Events that were not newer than what is held.";
    events_parked: "gapless_events_parked_total", "Events that wait for what comes before them.";
    events_unparked: "gapless_events_unparked_total", "Parked events that were applied or judged.";
    events_skipped: "gapless_events_skipped_total", "Events of repositories that are not wanted.";
    parked_dropped: "gapless_parked_dropped_total", "Parked events that were dropped: superseded, or no room.";
    unauthenticated: "gapless_unauthenticated_total", "Events that the owner did not sign.";
    unresolved: "gapless_unresolved_total", "Events that came before the owner's document could be read; they wait, and are judged then.";
    misrouted: "gapless_misrouted_total", "Events from a host that the repository does not live on.";
    forks: "gapless_forks_total", "Revs under which an owner's key signed two commits.";
    abandoned: "gapless_abandoned_total", "Commits of a lineage that was given up.";
    backward: "gapless_backward_frames_total", "Frames with a number that was read before.";
    resets: "gapless_resets_total", "New epochs of upstreams.";
    dials: "gapless_dials_total", "Connections that were tried.";
    dial_failures: "gapless_dial_failures_total", "Connections that were refused or failed.";
    moved: "gapless_moves_total", "Repositories that were found on another host.";
    old_documents: "gapless_old_documents_total", "Answers of a directory that was behind.";
    account_changes: "gapless_account_changes_total", "Changes of an account's state.";
    vanished: "gapless_vanished_total", "Repositories that their host says it does not have.";
    host_behind: "gapless_host_behind_total", "Hosts' heads that are older than ours.";
    adopted: "gapless_adopted_total", "Older states that were taken over.";
    snapshots_discarded: "gapless_snapshots_discarded_total", "Snapshots that were overtaken before they were written.";
    snapshots_stale: "gapless_snapshots_stale_total", "Snapshots older than the head that the host had named.";
    snapshots_refused: "gapless_snapshots_refused_total", "Snapshots that failed a check.";
    fetches_too_large: "gapless_fetches_too_large_total", "Fetches of repositories that have more bytes than are taken of one.";
    fetches_failed_here: "gapless_fetches_failed_here_total", "Fetches that our own disk, or too many large ones at once, made fail.";
    snapshots_written: "gapless_snapshots_written_total", "Snapshots that were written.";
    differences_written: "gapless_differences_written_total", "Of these: made from what is held and what is new.";
    records_fetched: "gapless_records_fetched_total", "Operations that snapshots led to.";
    fetched_bytes: "gapless_fetched_bytes_total", "Bytes of getRepo.";
    listing_bytes: "gapless_listing_bytes_total", "Bytes of listRepos.";
    resolutions: "gapless_resolutions_total", "DIDs that were asked about.";
    resolution_failures: "gapless_resolution_failures_total", "Of these: without an answer.";
    heads_asked: "gapless_heads_asked_total", "Heads that hosts were asked for.";
    request_failures: "gapless_request_failures_total", "Requests to hosts that failed.";
    sweeps: "gapless_sweeps_total", "Sweeps that went through.";
    sweep_failures: "gapless_sweep_failures_total", "Sweeps that were cut short.";
    host_listings: "gapless_host_listings_total", "Listings of the hosts that a relay knows, read to their end.";
    host_listing_failures: "gapless_host_listing_failures_total", "Such listings that were cut short.";
    hosts_refused: "gapless_hosts_refused_total", "Names of hosts, told by others, that nobody may be sent to, or that are too many.";
    newcomers_passed: "gapless_newcomers_passed_total", "Events of repositories that nobody had heard of, passed over because the upstream has told of too many whose documents could not be read; the directory is asked first.";
    newcomers_known: "gapless_newcomers_known_total", "Of these repositories: those that the directory knew, and that are fetched.";
    collection_listings: "gapless_collection_listings_total", "Listings of who has records in a collection, read to their end.";
    collection_listing_failures: "gapless_collection_listing_failures_total", "Such listings that were cut short.";
    repos_found: "gapless_repos_found_total", "Repositories that are tracked since a collection of theirs was found.";
    found_unknown: "gapless_found_unknown_total", "Repositories that were said to have a collection and that no directory knows.";
    found_dropped: "gapless_found_dropped_total", "Repositories that were found and passed over because too many waited; listings find them again.";
    found_without: "gapless_found_without_total", "Repositories that were found by a collection, hold nothing in it, and are tracked no more.";
    suspects: "gapless_suspects_total", "Listed heads that were not ours.";
    claims_kept: "gapless_claims_kept_total", "Operations told by a Jetstream that were kept as claims.";
    dead_letters: "gapless_dead_letters_total", "Frames that could not be used.";
    refused_changes: "gapless_refused_changes_total", "Changes that the store refused.";
    faults: "gapless_faults_total", "Faults of Gapless that one event, one decision or one read of the store brought out; the others go on. Such an event becomes a dead letter.";
    purged: "gapless_purged_total", "Repositories that were purged.";
    purged_frames: "gapless_purged_frames_total", "Frames of purged repositories that were redacted.";
    purges_finished: "gapless_purges_finished_total", "Purges of which nothing is left on the disk.";
    purges_put_off: "gapless_purges_put_off_total", "Times that the bytes of purges could not be taken off the disk yet, because of a reader or a journal.";
    versions_expired: "gapless_versions_expired_total", "Superseded records that were kept long enough.";
    proven: "gapless_roots_recomputed_total", "Roots recomputed from the store.";
    damaged: "gapless_roots_differed_total", "Of these: not the signed one.";
    exports: "gapless_exports_total", "Whole repositories that were sent by getRepo.";
    export_bytes: "gapless_export_bytes_total", "Bytes that getRepo sent.";
    exports_cut: "gapless_exports_cut_total", "Readers of getRepo that were too slow, and were cut.";
    exports_left: "gapless_exports_left_total", "Readers of getRepo that went away before the end.";
    trees_built: "gapless_trees_built_total", "Trees that were built from held keys, for getRepo, proofs and blocks.";
    firehose_subscriptions: "gapless_firehose_subscriptions_total", "Consumers of the firehose that were taken in.";
    firehose_turned_away: "gapless_firehose_turned_away_total", "Consumers that were turned away because there were too many.";
    firehose_cut: "gapless_firehose_cut_total", "Consumers that were cut: the window passed them, or they did not read.";
    firehose_frames: "gapless_firehose_frames_total", "Frames that were sent to consumers.";
    firehose_bytes: "gapless_firehose_bytes_total", "Their bytes.";
    firehose_syncs: "gapless_firehose_syncs_total", "Of the frames: those that say where a repository is now, because how it got there cannot be told.";
    firehose_frames_missing: "gapless_firehose_frames_missing_total", "Commits whose frame is damaged or gone; where the repository is now is said instead.";
    firehose_untold: "gapless_firehose_untold_total", "Repositories that moved and of which the signed commit is not held, so that nothing could be said.";
    restarts: "gapless_task_restarts_total", "Tasks that ended unexpectedly and were started again.";
}

/// The lines before a metric.
pub fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

impl Metrics {
    /// Counts what the ledger noticed.
    pub fn notice(&self, notice: &Notice) {
        match notice {
            Notice::Reset(_) => self.resets.inc(),
            Notice::Backward => self.backward.inc(),
            Notice::Fork { .. } => self.forks.inc(),
            Notice::Unauthenticated => self.unauthenticated.inc(),
            Notice::Unresolved => self.unresolved.inc(),
            Notice::Misrouted => self.misrouted.inc(),
            Notice::Abandoned { .. } => self.abandoned.inc(),
            Notice::ParkedDropped { why, .. } => {
                self.parked_dropped.inc();
                // It waited for the owner's document, and is judged now.
                if *why == DropReason::Forged {
                    self.unauthenticated.inc();
                }
            }
            Notice::Moved { .. } => self.moved.inc(),
            Notice::OldDocument => self.old_documents.inc(),
            Notice::Account(_) => self.account_changes.inc(),
            Notice::Vanished { .. } => self.vanished.inc(),
            Notice::HidingSuspended { .. } => {}
            Notice::HostBehind { .. } => self.host_behind.inc(),
            Notice::Adopted { .. } => self.adopted.inc(),
            Notice::SnapshotDiscarded => self.snapshots_discarded.inc(),
            Notice::SnapshotStale => self.snapshots_stale.inc(),
        }
    }
}

/// Why an epoch ended, in words.
pub fn reset_words(why: ResetReason) -> &'static str {
    match why {
        ResetReason::OutdatedCursor => "the host no longer has the events after our cursor",
        ResetReason::FutureCursor => "the host knows no number as high as our cursor",
        ResetReason::NoCursor => "there was no cursor to start from",
        ResetReason::OtherEvent => "the host has another event at our cursor",
        ResetReason::Silence => "the event at our cursor did not come",
        ResetReason::Backwards => "the host's numbers went back",
        ResetReason::Overflow => "we could not keep up",
        ResetReason::Stuck => "what follows our cursor cannot be read",
        ResetReason::Widened => "it was read for tracked repositories alone until now",
        ResetReason::StoreRepaired => "the store was repaired",
    }
}
