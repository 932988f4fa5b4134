//! Tests the store on bad days: kill -9, power cuts, full disks, failing disks, damage. After
//! each event the whole store is checked, and compared with everything that was acknowledged to
//! its writer.
//!
//! `GAPLESS_BAD_DAYS=20` takes twenty times as many rounds of everything that is repeated; the
//! default fits into a minute or two on two cores.

#![cfg(feature = "engine")]

mod checks;
mod damage;
mod faults;
mod formats;
mod kill;
mod load;
mod lost_log;
mod order;
#[path = "../power/mod.rs"]
mod power;
mod power_loss;
mod repairs;
mod sample;
mod truth;
mod writer;

/// Rounds of a loop: as many as given, times what the environment says.
fn rounds(least: u64) -> u64 {
    let times = std::env::var("GAPLESS_BAD_DAYS").map_or(1, |text| text.parse().unwrap_or(1));
    least * times
}
