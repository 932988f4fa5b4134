//! Tests `gapless consumers`: the list, what `gapless status` says about consumers of the log, and
//! the removal of one, with and without a person at a terminal.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Command, Stdio};

use gapless_mirror::api::{ConsumerAnswer, HeldAlone, HeldNumbers, Status};
use rustix::fs::{Mode, OFlags};
use rustix::pty;

use crate::commands::status::status;
use crate::commands::{ends, err, json, out};
use crate::fake::Served;

fn consumer(name: &str, lane: u64) -> ConsumerAnswer {
    ConsumerAnswer {
        name: name.to_owned(),
        class: "recipient".to_owned(),
        id: 3,
        lane,
        next: 40,
        holds_from: 40,
        behind: 60,
        behind_seconds: Some(7260),
        holds_numbers: 60,
        needs: "log and versions".to_owned(),
        hold_seconds: Some(259_200),
        moved_at: Some("2026-01-02T03:04:05.000006Z".to_owned()),
        ..ConsumerAnswer::default()
    }
}

fn overrun(name: &str) -> ConsumerAnswer {
    ConsumerAnswer {
        overrun: true,
        holds_numbers: 0,
        ..consumer(name, 9)
    }
}

fn holder(name: &str) -> ConsumerAnswer {
    let numbers = || {
        Some(HeldNumbers {
            from: 40,
            to: 79,
            since: Some("2026-01-01T00:00:00.000000Z".to_owned()),
        })
    };
    ConsumerAnswer {
        holds_alone: HeldAlone {
            log: numbers(),
            versions: numbers(),
        },
        ..consumer(name, 1)
    }
}

fn with(consumers: &[ConsumerAnswer]) -> Served {
    let served = Served::start(false, true);
    served
        .fake
        .consumers
        .lock()
        .expect("no panic")
        .extend_from_slice(consumers);
    *served.fake.status.lock().expect("no panic") = Status {
        consumers: consumers.to_vec(),
        ..status(true)
    };
    served
}

fn left(served: &Served) -> Vec<String> {
    let consumers = served.fake.consumers.lock().expect("no panic");
    consumers.iter().map(ConsumerAnswer::full_name).collect()
}

/// The cells of the row of a consumer, which are at least two spaces apart.
fn row(text: &str, name: &str) -> Vec<String> {
    let line = text.lines().find(|line| line.starts_with(name));
    let line = line.unwrap_or_else(|| panic!("no {name}: {text}"));
    let cells = line.split("  ").map(str::trim);
    cells
        .filter(|cell| !cell.is_empty())
        .map(str::to_owned)
        .collect()
}

#[test]
fn consumers_are_listed_with_what_each_holds_back() {
    let served = with(&[holder("search\u{1b}[2J"), consumer("mail", 2)]);
    let text = out(&ends(&served.url(), &["consumers"], 0));
    assert!(text.starts_with("log  numbers 1 to 99\n"), "{text}");
    assert!(!text.contains('\u{1b}'), "an escape reached the terminal");
    let moved = "2026-01-02T03:04:05.000006Z";
    let holds = "60 of log and versions";
    assert_eq!(
        row(&text, "mail"),
        [
            "mail",
            "recipient",
            "3",
            "2",
            "40",
            "60",
            "2h",
            holds,
            moved,
            "behind"
        ]
    );
    let alone =
        "alone holds back:\n    rows of the log     numbers 40 to 79 (40), since 2026-01-01";
    assert!(text.contains(alone), "{text}");
    assert!(
        text.contains("superseded records  numbers 40 to 79 (40)"),
        "{text}"
    );
    assert!(
        text.contains("operator  old") && text.contains("removed at 7"),
        "{text}"
    );
    let list = json(&ends(&served.url(), &["consumers", "--json"], 0));
    assert_eq!(
        list["consumers"][1]["lane"], "2",
        "a string, because lanes are large"
    );
    let none = with(&[]);
    let text = out(&ends(&none.url(), &["consumers"], 0));
    assert!(text.contains("The log has no consumers."), "{text}");
}

#[test]
fn an_overrun_consumer_is_a_finding_and_the_status_names_it() {
    let served = with(&[consumer("mail", 2), overrun("search")]);
    for command in ["consumers", "status"] {
        let text = out(&ends(&served.url(), &[command], 1));
        let words = "search (recipient, id 3, lane 9), a consumer of the log, is overrun: its \
                     position is 60 numbers behind and has not moved since 2026-01-02";
        assert!(text.contains(words), "{text}");
        assert!(text.contains("gapless consumers remove search"), "{text}");
        let cells = row(&text, "search");
        assert_eq!(cells[7], "-", "it holds nothing");
        assert_eq!(cells.last().map(String::as_str), Some("overrun"));
        assert!(
            !text.contains("mail (recipient"),
            "only the overrun one: {text}"
        );
    }
    ends(&served.url(), &["consumers", "--json"], 1);
    let told = out(&ends(&with(&[consumer("mail", 2)]).url(), &["status"], 0));
    assert_eq!(row(&told, "mail")[5], "60");
    let none = out(&ends(&with(&[]).url(), &["status"], 0));
    assert!(!none.to_lowercase().contains("consumer"), "{none}");
}

#[test]
fn a_removal_without_a_terminal_needs_yes_and_says_what_was_let_go() {
    let served = with(&[holder("search"), consumer("mail", 2)]);
    let url = served.url();
    let refused = ends(&url, &["consumers", "remove", "search"], 2);
    assert!(err(&refused).contains("pass --yes"), "{}", err(&refused));
    let refused = ends(&url, &["consumers", "remove", "search", "--json"], 2);
    let error = json(&refused)["error"].to_string();
    assert!(error.contains("pass --yes"), "{error}");
    assert_eq!(left(&served).len(), 2);
    let gone = out(&ends(&url, &["consumers", "remove", "search", "--yes"], 0));
    assert!(
        gone.contains("search (recipient, id 3, lane 1) is removed"),
        "{gone}"
    );
    let held = "rows of the log     numbers 40 to 79 (40), since 2026-01-01";
    assert!(gone.contains(held), "{gone}");
    let again = ends(&url, &["consumers", "remove", "search", "--yes"], 1);
    let names = "no consumer search; the consumers are mail (recipient, id 3, lane 2)";
    assert!(err(&again).contains(names), "{}", err(&again));
    let gone = ends(&url, &["consumers", "remove", "mail", "--yes", "--json"], 0);
    let gone = json(&gone);
    assert_eq!(gone["removed"]["name"], "mail");
    assert_eq!(gone["let_go"]["log"], serde_json::Value::Null);
    assert!(left(&served).is_empty());
}

#[test]
fn a_name_of_several_consumers_removes_none_of_them() {
    let all = [
        consumer("mail", 1),
        consumer("mail", 2),
        consumer("mail", 3),
    ];
    let served = with(&all);
    let remove = ["consumers", "remove", "mail", "--yes"];
    let told = err(&ends(&served.url(), &remove, 2));
    for lane in 1..=3 {
        let name = format!("mail (recipient, id 3, lane {lane})");
        assert!(told.contains(&name), "{told}");
    }
    assert_eq!(left(&served).len(), 3);
    let lane = ["--class", "recipient", "--id", "3", "--lane", "2"];
    ends(&served.url(), &[&remove[..], &lane].concat(), 0);
    let rest = [
        "mail (recipient, id 3, lane 1)",
        "mail (recipient, id 3, lane 3)",
    ];
    assert_eq!(left(&served), rest);
}

/// Runs a command at a terminal of its own, where a person types an answer. Returns whether the
/// command succeeded, and what it printed there.
fn at_a_terminal(url: &str, arguments: &[&str], answer: &str) -> (bool, String) {
    let master =
        pty::openpt(pty::OpenptFlags::RDWR | pty::OpenptFlags::NOCTTY).expect("a terminal");
    pty::grantpt(&master).expect("granted");
    pty::unlockpt(&master).expect("unlocked");
    let name = pty::ptsname(&master, Vec::new()).expect("a name");
    let terminal = || {
        let opened = rustix::fs::open(&name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty());
        Stdio::from(opened.expect("the other end"))
    };
    let mut command = Command::new(env!("CARGO_BIN_EXE_gapless"));
    command.args(arguments).env("GAPLESS_URL", url);
    command.env_remove("GAPLESS_TOKEN");
    command
        .stdin(terminal())
        .stdout(terminal())
        .stderr(terminal());
    let mut child = command.spawn().expect("it starts");
    // So that the terminal is closed when the command ends.
    drop(command);
    let mut master = File::from(master);
    master.write_all(answer.as_bytes()).expect("typed");
    let mut shown = Vec::new();
    // A closed terminal is an error, not an end.
    let _ = master.read_to_end(&mut shown);
    let ended = child.wait().expect("it ends");
    (
        ended.success(),
        String::from_utf8_lossy(&shown).into_owned(),
    )
}

#[test]
fn a_person_is_told_what_will_be_let_go_and_asked() {
    let served = with(&[holder("search"), consumer("mail", 2)]);
    let remove = ["consumers", "remove", "search"];
    for no in ["n\n", "\n", "\u{4}"] {
        let (done, shown) = at_a_terminal(&served.url(), &remove, no);
        assert!(!done && shown.contains("the consumer stays"), "{shown}");
        assert!(
            shown.contains("numbers 40 to 79 (40), since 2026-01-01"),
            "{shown}"
        );
        assert!(shown.contains("Remove search? [y/N]"), "{shown}");
        assert_eq!(left(&served).len(), 2, "{no:?}");
    }
    let unknown = ["consumers", "remove", "mial"];
    let (done, shown) = at_a_terminal(&served.url(), &unknown, "y\n");
    assert!(
        !done && shown.contains("the consumers are search"),
        "{shown}"
    );
    let (done, shown) = at_a_terminal(&served.url(), &remove, "y\n");
    assert!(done && shown.contains("is removed"), "{shown}");
    assert_eq!(left(&served), ["mail (recipient, id 3, lane 2)"]);
    let (done, shown) = at_a_terminal(&served.url(), &["consumers", "remove", "mail"], "y\n");
    let nothing = "holds nothing back that no other consumer needs";
    assert!(done && shown.contains(nothing), "{shown}");
}
