//! Tests the commands of the real binary against the real HTTP interface, with a fake mirror
//! that gives the answers that a test wants.

mod consumers;
mod gaps;
mod orders;
mod servers;
mod status;
mod usage;

use std::process::{Command, Output};

use serde_json::Value;

fn gapless(url: &str, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gapless"))
        .args(arguments)
        .env_remove("GAPLESS_TOKEN")
        .env("GAPLESS_URL", url)
        // A proxy of the machine is none of ours.
        .env("HTTP_PROXY", "http://127.0.0.1:1")
        .output()
        .expect("it starts")
}

fn code(output: &Output) -> i32 {
    output.status.code().expect("it ended by itself")
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}{}", out(output), err(output)))
}

/// Runs it, and expects an end with this code.
fn ends(url: &str, arguments: &[&str], expected: i32) -> Output {
    let output = gapless(url, arguments);
    let text = format!("{}{}", out(&output), err(&output));
    assert_eq!(code(&output), expected, "{arguments:?}: {text}");
    output
}
