//! Runs one suite on every engine, so that the engine on disk and the one in memory behave
//! alike.

#![cfg(feature = "engine")]

mod access;
mod consumers;
mod engine;
mod followers;
mod numbers;
mod owner;
mod purge_cleanup;
mod purges;
mod random;
mod refused;
mod rows;
mod story;
mod sync_writer;
mod told;
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
    purges::a_purge_deletes_everything_part_by_part_and_outlives_every_restart,
    purges::nothing_is_written_to_a_repository_that_is_being_purged,
    purges::a_part_of_a_purge_has_few_bytes,
    purges::a_purge_without_records_is_told_too,
    purges::rows_of_a_purge_keep_their_paths_until_everyone_who_holds_has_passed,
    purge_cleanup::what_a_purge_left_behind_goes_bit_by_bit,
    purge_cleanup::a_purge_of_an_earlier_format_is_finished,
    purge_cleanup::nothing_of_others_is_ever_redacted,
    purge_cleanup::superseded_records_expire_by_their_keys,
    numbers::the_cursor_is_never_ahead,
    numbers::a_cleared_cursor_stays_cleared,
    numbers::lost_numbers_are_covered_once,
    numbers::a_trim_covers_no_hole,
    rows::dead_letters_are_kept,
    numbers::ticks_are_remembered,
    told::a_repository_is_restated_when_it_is_exact_again_after_damage,
    told::a_snapshot_on_another_target_than_the_interrupted_one_is_restated,
    told::claims_that_are_withdrawn_are_told_once,
    told::a_claim_gives_way_only_when_everyone_who_holds_has_passed,
    told::stamps_begin_above_the_times_of_earlier_formats,
    consumers::a_hold_passes_by_the_time_lived_through_and_not_while_idle,
    consumers::a_position_and_its_effects_are_one_change,
    consumers::what_a_removed_consumer_held_may_go,
    consumers::a_position_moves_forward_and_survives,
    consumers::orders_about_consumers_are_recorded,
    consumers::a_consumer_of_another_log_is_refused_with_both_names,
    consumers::superseded_records_stay_for_a_consumer_that_needs_them,
    consumers::the_log_is_trimmed_below_everyone_who_holds,
    consumers::a_trim_takes_whole_rows_and_its_time_ascends,
    consumers::stamps_ascend_whatever_the_clock_does,
    consumers::records_know_the_number_that_put_them_there,
    consumers::lived_time_never_goes_back,
    consumers::an_identity_row_has_the_new_values_until_the_repository_is_purged,
    consumers::damaged_rows_about_consumers_are_found,
    followers::models_that_begin_at_any_moment_end_equal,
    followers::an_operation_has_its_bytes_or_says_why_not,
    followers::a_failed_row_is_read_again,
    followers::bytes_that_are_not_there_say_why,
    followers::a_page_below_a_trimmed_log_is_refused,
    followers::a_page_ends_at_its_limits_and_at_the_head,
    random::many_random_changes,
    random::the_size_of_groups_does_not_matter,
);
