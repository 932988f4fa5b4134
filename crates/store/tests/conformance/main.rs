//! Runs one suite on every engine, so that the engine on disk and the one in memory behave
//! alike.

#![cfg(feature = "engine")]

mod access;
mod engine;
mod numbers;
mod owner;
mod purge_cleanup;
mod random;
mod refused;
mod rows;
mod sync_writer;
mod weights;
mod world;

use world::{Disk, Memory};

/// Makes one test per engine from each function.
macro_rules! on_every_engine {
    ($($module:ident :: $test:ident),* $(,)?) => {
        mod memory {
            use super::*;
            $(#[test] fn $test() { $module::$test(&Memory::fresh()); })*
        }
        mod disk {
            use super::*;
            $(#[test] fn $test() { $module::$test(&Disk::fresh()); })*
        }
    };
}

on_every_engine!(
    engine::a_batch_is_seen_whole,
    engine::the_later_of_two_writes_counts,
    engine::views_do_not_change,
    engine::ranges_go_both_ways_and_meet,
    engine::prefixes_of_any_bytes,
    engine::an_empty_batch_is_nothing,
    engine::like_ordered_maps,
    engine::what_was_committed_is_there_again,
    sync_writer::a_live_commit_in_full,
    sync_writer::updates_and_deletes_keep_what_they_replace,
    sync_writer::a_snapshot_in_chunks,
    sync_writer::changes_of_one_group_see_each_other,
    refused::a_refused_change_fails_alone,
    refused::contradictions_are_refused,
    refused::what_was_refused_is_not_read_back,
    refused::a_name_without_a_row_is_refused_and_leaves_nothing,
    refused::a_live_commit_on_half_a_snapshot_is_refused,
    refused::an_upstream_never_goes_back,
    rows::names_get_one_number_each,
    rows::debts_and_hosts_follow_the_row,
    rows::parked_frames_come_and_go,
    rows::claims_go_when_a_proof_covers_them,
    rows::a_host_goes_only_when_nothing_refers_to_it,
    rows::what_is_shown_again_is_said_to_be_where_it_is,
    rows::a_purge_leaves_nothing_but_the_log,
    purge_cleanup::what_a_purge_left_behind_goes_bit_by_bit,
    purge_cleanup::nothing_of_others_is_ever_redacted,
    purge_cleanup::superseded_records_expire_by_their_keys,
    numbers::the_cursor_is_never_ahead,
    numbers::a_cleared_cursor_stays_cleared,
    numbers::lost_numbers_are_covered_once,
    rows::dead_letters_are_kept,
    numbers::ticks_are_remembered,
    random::many_random_changes,
    random::the_size_of_groups_does_not_matter,
);
