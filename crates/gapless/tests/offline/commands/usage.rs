//! Tests the usage of the commands: how invalid arguments are refused, and what the help says.

use std::process::Command;

use crate::commands::{code, ends, err, gapless, json, out};
use crate::fake::{COMPLETE, TOKEN, UNKNOWN};

#[test]
fn invalid_arguments_are_refused_before_any_request() {
    let no_server = "http://127.0.0.1:1";
    let refused = |arguments: &[&str], words: &[&str]| {
        let text = err(&ends(no_server, arguments, 2));
        for word in words {
            assert!(text.contains(word), "{arguments:?}, {word}: {text}");
        }
    };
    refused(&["repo", "alice.example"], &["alice.example", "did:"]);
    refused(&["verify", "did:web:"], &["did:web:", "DID"]);
    refused(&["resync", "did:plc:a b"], &["did:plc:a b", "DID"]);
    refused(&["track", "add", UNKNOWN, "x"], &["\"x\""]);
    refused(
        &["upstream", "add", "jet", "https://a"],
        &["jet", "pds URL"],
    );
    refused(&["upstream", "add", "pds", "a b"], &["a b", "http(s)://"]);
    refused(&["verify"], &["DID|--all"]);
    refused(&["verify", UNKNOWN, "--all"], &["cannot be used with"]);
    refused(&["dead", "resolve"], &["NUMBER|--all"]);
    refused(&["consumers", "remove", "index"], &["pass --yes"]);
    refused(&["consumers", "remove"], &["NAME"]);
}

/// With `--json`, an error about invalid arguments is JSON too.
#[test]
fn a_wrong_argument_is_told_as_json_where_that_was_asked_for() {
    let no_server = "http://127.0.0.1:1";
    let wrong: [&[&str]; 10] = [
        &["purges", "--limit", "abc"],
        &["gaps", "--limit", "0"],
        &["hosts", "--limit", "-1"],
        &["dead", "list", "--limit", ""],
        &["dead", "resolve", "x"],
        &["consumers", "remove", "a", "--id", "x"],
        &["verify"],
        &["repo"],
        &["store", "check"],
        &["upstream", "add", "pds"],
    ];
    for arguments in wrong {
        let told = ends(no_server, &[arguments, &["--json"]].concat(), 2);
        let text = json(&told)["error"].as_str().unwrap_or_default().to_owned();
        assert!(!text.is_empty() && !text.starts_with("error:"), "{text}");
        assert!(err(&told).contains("error: "), "and for people as before");
        let silent = ends(no_server, arguments, 2);
        assert_eq!(out(&silent), "");
    }
}

#[test]
fn only_an_ordinary_file_is_written_over_or_read() {
    let no_server = "http://127.0.0.1:1";
    let folder = tempfile::tempdir().expect("a folder");
    let (link, target) = (folder.path().join("link"), folder.path().join("target"));
    std::fs::write(&target, "precious").expect("a file");
    std::os::unix::fs::symlink(&target, &link).expect("a link");
    for place in [link.as_path(), folder.path()] {
        let place = place.display().to_string();
        let refused = ends(no_server, &["export", COMPLETE, "--out", &place], 2);
        assert!(
            err(&refused).contains("not a regular file"),
            "{}",
            err(&refused)
        );
    }
    let kept = std::fs::read_to_string(&link).expect("it is there");
    assert_eq!(kept, "precious");
    let place = folder.path().display().to_string();
    let refused = ends(no_server, &["import", &place], 2);
    assert!(
        err(&refused).contains("is not a regular file"),
        "{}",
        err(&refused)
    );
}

#[test]
fn config_show_and_run_read_the_same_configuration() {
    let here = tempfile::tempdir().expect("a folder");
    let gapless = |arguments: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_gapless"))
            .args(arguments)
            .current_dir(here.path())
            .env("GAPLESS_LIVE_GRACE", "5s")
            .output()
            .expect("it starts")
    };
    std::fs::write(here.path().join("gapless.toml"), "contact = \"me\"").expect("written");
    let shown = gapless(&["config", "show", "--token", TOKEN]);
    assert_eq!(code(&shown), 0, "{}", err(&shown));
    let text = out(&shown);
    assert!(
        text.contains("contact = \"me\"  # ./gapless.toml"),
        "{text}"
    );
    assert!(
        text.contains("live_grace = \"5s\"  # environment GAPLESS_LIVE_GRACE"),
        "{text}"
    );
    assert!(
        text.contains("# token = \"(redacted)\"  # flag --token"),
        "{text}"
    );
    let shown = gapless(&["config", "show", "--json", "--upstream", "pds=http://a"]);
    assert_eq!(json(&shown)["upstream"]["value"][0]["url"], "http://a");
    let nothing = gapless(&["run"]);
    assert_eq!(code(&nothing), 2);
    assert!(
        err(&nothing).contains("--upstream") && err(&nothing).contains("--dids"),
        "{}",
        err(&nothing)
    );
    for command in ["run", "config show"] {
        let arguments: Vec<&str> = command.split(' ').chain(["--bind", "0.0.0.0:1"]).collect();
        let open = gapless(&arguments);
        assert_eq!(code(&open), 2);
        assert!(err(&open).contains("no token is set"), "{}", err(&open));
    }
}

#[test]
fn help_says_what_the_codes_mean() {
    let help = gapless("", &["status", "--help"]);
    assert_eq!(code(&help), 0);
    let text = out(&help);
    assert!(
        text.contains("dead letters") && text.contains("an upstream that is down"),
        "{text}"
    );
    let help = out(&gapless("", &["--help"]));
    assert!(help.contains("3 no Gapless server"), "{help}");
}
