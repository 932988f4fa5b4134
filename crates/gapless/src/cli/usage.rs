//! Reports an invalid command line: in clap's words for people, and as JSON like every
//! other error with `--json`.

use std::ffi::OsString;

use serde_json::json;

/// The beginning of clap's error texts.
const CLAP_PREFIX: &str = "error: ";

/// Whether the arguments, which clap could not parse, have `--json`.
pub(crate) fn wants_json(arguments: &[OsString]) -> bool {
    let said = arguments.iter().take_while(|one| *one != "--");
    said.into_iter().any(|one| one == "--json")
}

/// The error as one line of JSON.
pub(crate) fn to_json(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let text = text.strip_prefix(CLAP_PREFIX).unwrap_or(&text);
    json!({ "error": text.trim_end() }).to_string()
}

#[cfg(test)]
mod tests {
    use clap::{Command, CommandFactory, Parser};

    use super::*;
    use crate::cli::Cli;

    /// Collects the words of every command without subcommands.
    fn leaves(command: &Command, words: &[String], found: &mut Vec<Vec<String>>) {
        let mut is_leaf = true;
        for inner in command.get_subcommands() {
            is_leaf = false;
            let words = [words, &[inner.get_name().to_owned()]].concat();
            leaves(inner, &words, found);
        }
        if is_leaf {
            found.push(words.to_vec());
        }
    }

    #[test]
    fn every_command_tells_a_wrong_argument_as_json_when_it_was_asked_to() {
        let mut all = Vec::new();
        leaves(&Cli::command(), &["gapless".to_owned()], &mut all);
        assert!(all.len() > 20, "{all:?}");
        for mut words in all {
            words.extend(["--json".to_owned(), "--no-such-flag".to_owned()]);
            let arguments: Vec<OsString> = words.iter().map(OsString::from).collect();
            let error = Cli::try_parse_from(&arguments).expect_err("no command takes it");
            assert!(error.use_stderr(), "{words:?}");
            assert!(wants_json(&arguments), "{words:?}");
            let json: serde_json::Value = serde_json::from_str(&to_json(&error)).expect("JSON");
            let text = json["error"].as_str().unwrap_or_default();
            assert!(
                text.contains("--no-such-flag") || text.contains("--json"),
                "{text}"
            );
            assert!(
                !text.starts_with("error") && !text.contains('\u{1b}'),
                "{text}"
            );
        }
        let after = ["gapless", "repo", "--", "--json"].map(OsString::from);
        assert!(!wants_json(&after), "that is a name");
    }
}
