//! Runs the fault script twice: with the streams of the hosts, and with the stream of a relay.

use crate::script::stage::{Layout, Script};

#[tokio::test(flavor = "multi_thread")]
async fn the_fault_script_by_the_streams_of_hosts() {
    let mut script = Script::begin(Layout::Hosts).await;
    script.play().await;
    script.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_fault_script_by_the_stream_of_a_relay() {
    let mut script = Script::begin(Layout::Relay).await;
    script.play().await;
    script.end().await;
}
