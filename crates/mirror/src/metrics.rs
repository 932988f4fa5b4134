//! The counters of the mirror, for Prometheus. Every name is in docs/metrics.md, and
//! `cargo xtask tidy` compares the two.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicU64, Ordering};

use gapless_core::ledger::Notice;
use gapless_core::ledger::notice::{DropReason, ResetReason};
use gapless_store::sync::Mutex;

/// A number that only increases.
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

/// The distribution of a duration.
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

/// Counters by reason, one for each reason that has occurred.
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
        self.0.lock()
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
        /// All counters.
        #[derive(Debug, Default)]
        pub struct Metrics {
            $(pub $field: Counter,)*
            pub refused_by_reason: ByReason,
            pub claims_passed: ByReason,
            pub hosts_over: ByReason,
            pub arrival_to_durable: Histogram,
        }

        impl Metrics {
            /// Appends all counters in the text format of Prometheus.
            pub fn write(&self, out: &mut String) {
                $(
                    head(out, $name, "counter", $help);
                    let _ = writeln!(out, concat!($name, " {}"), self.$field.get());
                )*
                self.refused_by_reason.write(
                    out,
                    "gapless_snapshots_refused_by_reason_total",
                    "Snapshots that failed a check, by the check.",
                );
                self.claims_passed.write(
                    out,
                    "gapless_claims_passed_total",
                    "Operations from a Jetstream that were not kept as claims, by reason.",
                );
                self.hosts_over.write(
                    out,
                    "gapless_hosts_over_quota_total",
                    "Host names refused because a quota is exhausted, by quota.",
                );
                self.arrival_to_durable.write(
                    out,
                    "gapless_arrival_to_durable_seconds",
                    "Time from reading an event until its effects are durable.",
                );
            }
        }

    };
}

counters! {
    frames: "gapless_frames_total", "Frames read from upstreams.";
    frame_bytes: "gapless_frame_bytes_total", "Bytes of frames read from upstreams.";
    events_applied: "gapless_events_applied_total", "Commits and syncs that moved the head of a repository.";
    operations_applied: "gapless_operations_applied_total", "Record operations applied from live commits.";
    events_replayed: "gapless_events_replayed_total", "Events that are not newer than the held state.";
    events_parked: "gapless_events_parked_total", "Events parked until the events before them arrive.";
    events_unparked: "gapless_events_unparked_total", "Parked events that were applied or judged.";
    events_skipped: "gapless_events_skipped_total", "Events of repositories that are not wanted.";
    parked_dropped: "gapless_parked_dropped_total", "Parked events that were dropped because they were superseded or there was no room for them.";
    unauthenticated: "gapless_unauthenticated_total", "Events that are not signed by the owner's key.";
    unresolved: "gapless_unresolved_total", "Events that arrived before the owner's DID document was read; Gapless parks and judges them later.";
    misrouted: "gapless_misrouted_total", "Events from a host on which the repository does not live.";
    forks: "gapless_forks_total", "Revs under which an owner's key signed two commits.";
    abandoned: "gapless_abandoned_total", "Commits of an abandoned lineage.";
    backward: "gapless_backward_frames_total", "Frames whose number was read before.";
    resets: "gapless_resets_total", "New epochs of upstreams.";
    dials: "gapless_dials_total", "Attempted connections to upstreams.";
    dial_failures: "gapless_dial_failures_total", "Connections to upstreams that were refused or failed.";
    moved: "gapless_moves_total", "Repositories found on another host.";
    old_documents: "gapless_old_documents_total", "DID documents from a directory that are older than the document known here.";
    account_changes: "gapless_account_changes_total", "Changes of account states.";
    vanished: "gapless_vanished_total", "Repositories that their host says it does not have.";
    host_behind: "gapless_host_behind_total", "Heads served by hosts that are older than the head held here.";
    adopted: "gapless_adopted_total", "Older states adopted from hosts.";
    snapshots_discarded: "gapless_snapshots_discarded_total", "Snapshots overtaken by a newer state before they were written.";
    snapshots_stale: "gapless_snapshots_stale_total", "Snapshots older than the head that the host had named.";
    snapshots_refused: "gapless_snapshots_refused_total", "Snapshots that failed a check.";
    fetches_too_large: "gapless_fetches_too_large_total", "Fetches of repositories above fetch.max_repo_bytes.";
    fetches_failed_here: "gapless_fetches_failed_here_total", "Fetches that failed because of the local disk, or because too many large fetches ran at once.";
    snapshots_written: "gapless_snapshots_written_total", "Snapshots written to the store.";
    differences_written: "gapless_differences_written_total", "Snapshots written from the held records and a difference instead of a whole repository.";
    records_fetched: "gapless_records_fetched_total", "Record operations that resulted from snapshots.";
    fetched_bytes: "gapless_fetched_bytes_total", "Bytes of getRepo responses read from hosts.";
    listing_bytes: "gapless_listing_bytes_total", "Bytes of listRepos responses read from hosts.";
    resolutions: "gapless_resolutions_total", "Resolutions of DIDs.";
    resolution_failures: "gapless_resolution_failures_total", "Resolutions of DIDs that got no answer.";
    heads_asked: "gapless_heads_asked_total", "Heads requested from hosts.";
    request_failures: "gapless_request_failures_total", "Failed requests to hosts.";
    sweeps: "gapless_sweeps_total", "Completed sweeps of hosts.";
    sweep_failures: "gapless_sweep_failures_total", "Sweeps of hosts that were cut short.";
    host_listings: "gapless_host_listings_total", "Relays' listings of hosts that were read to the end.";
    host_listing_failures: "gapless_host_listing_failures_total", "Relays' listings of hosts that were cut short.";
    hosts_refused: "gapless_hosts_refused_total", "Host names from others that were refused: no request may be sent there, or a quota is exhausted.";
    newcomers_passed: "gapless_newcomers_passed_total", "Events of unknown repositories that were skipped because too many DID documents of newcomers from the same upstream are unread; Gapless asks the directory first.";
    newcomers_known: "gapless_newcomers_known_total", "Unknown repositories of skipped events that the directory knew and that Gapless fetches.";
    collection_listings: "gapless_collection_listings_total", "Listings of the repositories with records in a collection that were read to the end.";
    collection_listing_failures: "gapless_collection_listing_failures_total", "Listings of the repositories with records in a collection that were cut short.";
    repos_found: "gapless_repos_found_total", "Repositories tracked because a collection of theirs was found.";
    found_unknown: "gapless_found_unknown_total", "Repositories that a collection named and that no directory knows.";
    found_dropped: "gapless_found_dropped_total", "Repositories that a collection named and that were dropped because too many candidates wait; listings name them again.";
    found_without: "gapless_found_without_total", "Repositories that a collection named, that hold no record in it, and that are no longer tracked.";
    suspects: "gapless_suspects_total", "Listed heads that differ from the held head.";
    claims_kept: "gapless_claims_kept_total", "Operations from a Jetstream that were kept as claims.";
    dead_letters: "gapless_dead_letters_total", "Frames that could not be used.";
    refused_changes: "gapless_refused_changes_total", "Changes that the store refused.";
    faults: "gapless_faults_total", "Internal faults, each confined to one event, decision or read of the store; such an event becomes a dead letter.";
    purged: "gapless_purged_total", "Purged repositories.";
    purged_frames: "gapless_purged_frames_total", "Redacted frames of purged repositories.";
    purges_finished: "gapless_purges_finished_total", "Purges of which nothing is left on the disk.";
    purges_put_off: "gapless_purges_put_off_total", "Postponements of removing purged bytes from the disk because of an open reader or a journal.";
    versions_expired: "gapless_versions_expired_total", "Superseded records deleted after their retention time.";
    log_trimmed: "gapless_log_trimmed_total", "Numbers trimmed from the front of the log after their retention time.";
    consumers_overrun: "gapless_consumers_overrun_total", "Consumers of the log that stopped for longer than their hold or held back too much on a disk that was almost full.";
    proven: "gapless_roots_recomputed_total", "Roots recomputed from the store.";
    damaged: "gapless_roots_differed_total", "Recomputed roots that differ from the signed root.";
    exports: "gapless_exports_total", "Whole repositories sent by getRepo.";
    export_bytes: "gapless_export_bytes_total", "Bytes sent by getRepo.";
    exports_cut: "gapless_exports_cut_total", "getRepo clients disconnected because they read too slowly.";
    exports_left: "gapless_exports_left_total", "getRepo clients that disconnected before the end.";
    trees_built: "gapless_trees_built_total", "Trees built from held keys for getRepo, proofs and blocks.";
    firehose_subscriptions: "gapless_firehose_subscriptions_total", "Accepted consumers of the firehose.";
    firehose_turned_away: "gapless_firehose_turned_away_total", "Consumers of the firehose refused because there were too many.";
    firehose_cut: "gapless_firehose_cut_total", "Consumers of the firehose disconnected because the window passed them or they did not read.";
    firehose_frames: "gapless_firehose_frames_total", "Frames sent to consumers of the firehose.";
    firehose_bytes: "gapless_firehose_bytes_total", "Bytes of frames sent to consumers of the firehose.";
    firehose_syncs: "gapless_firehose_syncs_total", "#sync frames sent to consumers of the firehose in place of changes that cannot be told one by one.";
    firehose_frames_missing: "gapless_firehose_frames_missing_total", "Commits whose frame is damaged or gone; consumers of the firehose get a #sync instead.";
    firehose_untold: "gapless_firehose_untold_total", "Changed repositories that the firehose could not announce because their signed commit is not held.";
    restarts: "gapless_task_restarts_total", "Tasks that ended unexpectedly and were restarted.";
}

/// Appends the HELP and TYPE lines of a metric.
pub fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

impl Metrics {
    /// Counts a notice of the ledger.
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
                // The event was parked until the owner's document was read.
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

/// Describes why an epoch ended, for the log.
pub(crate) fn reset_words(why: ResetReason) -> &'static str {
    match why {
        ResetReason::OutdatedCursor => "the host no longer has the events after the cursor",
        ResetReason::FutureCursor => "the cursor is higher than any number of the host",
        ResetReason::NoCursor => "there is no cursor to start from",
        ResetReason::OtherEvent => "the host has another event at the cursor",
        ResetReason::Silence => "the event at the cursor did not arrive",
        ResetReason::Backwards => "the numbers of the host went back",
        ResetReason::Overflow => "Gapless could not keep up with the stream",
        ResetReason::Stuck => "the events after the cursor cannot be read",
        ResetReason::Widened => "the stream was read for tracked repositories alone until now",
        ResetReason::StoreRepaired => "the store was repaired",
    }
}
