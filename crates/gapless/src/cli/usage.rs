//! A command line that is none: for people as clap words it, and for programs that
//! asked for JSON as every other error is told.

use std::ffi::OsString;

use serde_json::json;

/// How the words begin.
const BEGINS: &str = "error: ";

/// Whether JSON was asked for, as far as that can be seen in what was said.
pub fn wants_json(arguments: &[OsString]) -> bool {
    let said = arguments.iter().take_while(|one| *one != "--");
    said.into_iter().any(|one| one == "--json")
}

/// The error as one line of JSON.
pub fn as_json(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let text = text.strip_prefix(BEGINS).unwrap_or(&text);
    json!({ "error": text.trim_end() }).to_string()
}
