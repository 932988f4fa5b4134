//! Tests `gapless demo`, run as in a shell.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value as Json;

use crate::EXE;

/// Runs it with a folder of its own for temporary files.
fn demo(arguments: &[&str]) -> (Option<i32>, String, String, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let output = Command::new(EXE)
        .arg("demo")
        .args(arguments)
        .env("TMPDIR", folder.path())
        .output()
        .expect("it starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (printed, complained) = (text(&output.stdout), text(&output.stderr));
    (output.status.code(), printed, complained, folder)
}

#[test]
fn everything_that_breaks_is_repaired_and_nothing_differs() {
    let (code, printed, complained, folder) = demo(&["--json"]);
    let events: Vec<Json> = printed
        .lines()
        .map(|line| serde_json::from_str(line).expect("one object a line"))
        .collect();
    assert_eq!(code, Some(0), "{printed}{complained}");
    let of = |name: &str| -> Vec<&Json> {
        let named = events.iter().filter(|event| event["event"] == name);
        named.collect()
    };
    let numbers = |name: &str| -> BTreeSet<u64> {
        let all = of(name).into_iter();
        all.filter_map(|event| event["number"].as_u64()).collect()
    };
    assert_eq!(numbers("broke"), (1..=11).collect());
    assert_eq!(numbers("repaired"), (1..=11).collect());
    for repaired in of("repaired") {
        assert!(
            !repaired["how"].as_str().expect("words").is_empty(),
            "{repaired}"
        );
        assert!(
            repaired["counted"]
                .as_object()
                .is_some_and(|all| !all.is_empty())
        );
    }
    // What it prints is what the mirror counted, fault by fault.
    let counted = |fault: &str, name: &str| {
        let all = of("repaired").into_iter();
        let mut ours = all.filter(|event| event["fault"] == fault);
        let event = ours
            .next()
            .unwrap_or_else(|| panic!("{fault} was not played"));
        let count = event["counted"][format!("gapless_{name}")].as_u64();
        count.unwrap_or(0)
    };
    assert!(counted("repository cut short", "snapshots_refused_total") > 0);
    let refused = "snapshots_refused_by_reason_total{reason=\"signature\"}";
    assert!(counted("repository signed by a stranger", refused) > 0);
    assert!(counted("stream refused", "dial_failures_total") > 0);
    assert!(counted("cursor window passed while down", "resets_total") > 0);
    assert!(counted("sequence restart", "resets_total") > 0);
    assert!(counted("directory down", "resolution_failures_total") > 0);
    assert!(counted("migration with missed events", "moves_total") > 0);
    let summary = events.last().expect("a last line");
    assert_eq!(summary["event"], "summary");
    assert_eq!(summary["differences"], 0);
    assert_eq!(summary["complete"], summary["repositories"]);
    assert_eq!(summary["proven"], summary["repositories"]);
    assert!(
        summary["records_compared"].as_u64() > Some(10_000),
        "{summary}"
    );
    let left = std::fs::read_dir(folder.path())
        .expect("it is there")
        .count();
    assert_eq!(left, 0, "nothing is left behind");
}

#[test]
fn what_cannot_be_shown_is_said_at_once() {
    let (code, _, complained, _) = demo(&["--repos", "5"]);
    assert_eq!(code, Some(2));
    assert!(complained.contains("--repos must be"), "{complained}");
    let (code, _, complained, _) = demo(&["--bind", "0.0.0.0:0"]);
    assert_eq!(code, Some(2));
    assert!(complained.contains("loopback"), "{complained}");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let (code, _, complained, _) = demo(&["--bind", &address]);
    assert_eq!(code, Some(1));
    assert!(
        complained.contains(&address) && complained.contains("--bind"),
        "{complained}"
    );
    let old = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(old.path().join("mirror")).expect("a folder");
    let path = old.path().display().to_string();
    let (code, _, complained, _) = demo(&["--data", &path]);
    assert_eq!(code, Some(2));
    assert!(
        complained.contains("an earlier demonstration"),
        "{complained}"
    );
    let full = tempfile::tempdir().expect("a folder");
    std::fs::write(full.path().join("log"), "precious").expect("a file");
    let path = full.path().display().to_string();
    let (code, _, complained, _) = demo(&["--data", &path]);
    assert_eq!(code, Some(2));
    assert!(complained.contains("not empty"), "{complained}");
    let kept = std::fs::read_to_string(full.path().join("log"));
    assert_eq!(kept.expect("it is there"), "precious");
}
