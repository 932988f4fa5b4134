//! Tests `gapless store`: the real binary on sound and damaged data folders, on folders of
//! other programs, and on folders that do not exist.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use gapless_atp::cid::Cid;
use gapless_atp::mst;
use gapless_atp::syntax::{Did, Rev};
use gapless_core::ledger::{Head, Held, Repo, Tick, Time};
use gapless_store::change::{
    Change, EntryContent, LogEntry, RecordOp, RecordValue, Records, RecordsKind, RepoChange,
    Subject,
};
use gapless_store::{ENGINE_FOLDER, Settings, Store};

fn gapless(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gapless"))
        .args(arguments)
        .output()
        .expect("it starts")
}

fn on(folder: &Path, arguments: &[&str]) -> Output {
    let data = folder.to_str().expect("a plain name");
    let all: Vec<&str> = [arguments, &["--data", data]].concat();
    gapless(&all)
}

fn json(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(output)))
}

fn text(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    format!(
        "{}{}",
        String::from_utf8_lossy(out),
        String::from_utf8_lossy(err)
    )
}

fn code(output: &Output) -> i32 {
    output.status.code().expect("it ended by itself")
}

/// A repository of one record, in one batch of its own.
fn repository(number: usize) -> Change {
    let digit = |place: u32| char::from(b'a' + (number / 10_usize.pow(place) % 10) as u8);
    let name: String = (0..24).map(|place| digit(place.min(4))).collect();
    let did = Did::parse(&format!("did:plc:{name}")).expect("a DID");
    let bytes = format!("record {number} {}", "x".repeat(2000)).into_bytes();
    let path = b"app.bsky.feed.post/3jzfcijpj2z2a".to_vec();
    let cid = Cid::dag_cbor(&bytes);
    let head = Head {
        rev: Rev::from_micros(1_700_000_000_000_000 + number as u64, 0),
        data: mst::root([(path.as_slice(), cid)]).expect("one key"),
        commit: Cid::dag_cbor(did.as_str().as_bytes()),
    };
    let mut repo = Repo::new(did.clone());
    repo.held = Held::Exactly(head);
    Change {
        tick: Tick(number as u64 + 1),
        repo: Some(RepoChange {
            subject: Subject::Did(did),
            row: Some(repo),
            entry: Some(LogEntry {
                at: Time(1),
                source: None,
                what: EntryContent::Records(Records {
                    kind: RecordsKind::Backfill,
                    before: Held::Nothing,
                    ops: vec![RecordOp {
                        path,
                        put: Some(RecordValue {
                            cid,
                            bytes: Some(bytes),
                        }),
                        fresh: true,
                    }],
                    commit: Vec::new(),
                }),
                frame: None,
            }),
            park: Vec::new(),
            unpark: Vec::new(),
        }),
        ..Change::default()
    }
}

fn settings() -> Settings {
    Settings {
        min_free_disk_bytes: 0,
        ..Settings::default()
    }
}

fn filled() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let store = Store::open(folder.path(), &settings()).expect("it opens");
    for number in 0..40 {
        store.write(repository(number)).expect("it is durable");
    }
    store.close().expect("it closes");
    folder
}

/// The largest journal of the engine.
fn journal(folder: &Path) -> PathBuf {
    let mut files = Vec::new();
    let mut folders = vec![folder.join(ENGINE_FOLDER)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("it is there") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path)
            } else {
                files.push(path)
            }
        }
    }
    files.retain(|path| path.extension().is_some_and(|end| end == "jnl"));
    files.sort_by_key(|path| fs::metadata(path).map_or(0, |data| data.len()));
    files.pop().expect("a journal")
}

#[test]
fn nonsense_is_refused_with_two_and_says_what_is_known() {
    for arguments in [
        &[][..],
        &["stor"],
        &["store"],
        &["store", "check"],
        &["store", "repair", "--data"],
        &["store", "check", "--data", "x", "--fix"],
    ] {
        let output = gapless(arguments);
        assert_eq!(code(&output), 2, "{arguments:?}: {}", text(&output));
        assert!(text(&output).contains("help"), "{}", text(&output));
    }
    assert_eq!(code(&gapless(&["--help"])), 0);
    assert_eq!(code(&gapless(&["--version"])), 0);
}

#[test]
fn a_folder_that_is_not_there_is_not_made() {
    let folder = tempfile::tempdir().expect("a folder");
    let missing = folder.path().join("nothing");
    for command in ["check", "repair"] {
        let output = on(&missing, &["store", command]);
        assert_eq!(code(&output), 1);
        assert!(
            text(&output).contains("there is no folder"),
            "{}",
            text(&output)
        );
        assert!(!missing.exists());
    }
}

#[test]
fn a_folder_that_is_empty_stays_empty() {
    let folder = tempfile::tempdir().expect("a folder");
    for command in ["check", "repair"] {
        let output = on(folder.path(), &["store", command]);
        assert_eq!(code(&output), 1);
        let said = text(&output);
        assert!(said.contains("not a gapless data folder"), "{said}");
        let left = fs::read_dir(folder.path()).expect("it is there");
        assert_eq!(left.count(), 0, "{command}");
    }
}

#[test]
fn a_folder_of_others_is_left_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("thesis.tex"), "mine").expect("it writes");
    for command in ["check", "repair"] {
        let output = on(folder.path(), &["store", command, "--json"]);
        assert_eq!(code(&output), 1);
        assert!(json(&output)["error"].is_string(), "{}", text(&output));
    }
    let left = fs::read_dir(folder.path()).expect("it is there");
    let names: Vec<_> = left.flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(names, ["thesis.tex"]);
}

#[test]
fn a_sound_store_is_said_to_be_sound() {
    let folder = filled();
    let output = on(folder.path(), &["store", "check", "--json"]);
    assert_eq!(code(&output), 0, "{}", text(&output));
    let found = json(&output);
    assert_eq!(found["clean"], true);
    assert_eq!(found["repos"], 40);
    assert_eq!(found["proven"], 40);
    assert_eq!(found["log"]["numbers"], 40);
    let words = text(&on(folder.path(), &["store", "check"]));
    assert!(words.contains("40 repositories"), "{words}");
    let output = on(folder.path(), &["store", "repair", "--json"]);
    assert_eq!(code(&output), 0, "{}", text(&output));
    assert_eq!(json(&output)["nothing_to_do"], true, "{}", text(&output));
}

#[test]
fn output_that_cannot_be_written_is_no_panic() {
    let folder = filled();
    let data = folder.path().to_str().expect("a plain name");
    for arguments in [
        &["store", "check", "--data", data][..],
        &["store", "check", "--json", "--data", data],
        &["store", "repair", "--dry-run", "--data", data],
    ] {
        let full = fs::File::options().write(true).open("/dev/full");
        let output = Command::new(env!("CARGO_BIN_EXE_gapless"))
            .args(arguments)
            .stdout(full.expect("the device is there"))
            .output()
            .expect("it starts");
        assert_eq!(code(&output), 0, "{}", text(&output));
    }
}

#[test]
fn a_mirror_whose_log_cannot_be_written_starts_and_stops() {
    let folder = tempfile::tempdir().expect("a folder");
    let (data, dids) = (folder.path().join("data"), folder.path().join("dids"));
    fs::write(&dids, "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa\n").expect("it writes");
    let full = fs::File::options().write(true).open("/dev/full");
    let mut mirror = Command::new(env!("CARGO_BIN_EXE_gapless"))
        .args([
            "run",
            "--plc",
            "http://127.0.0.1:1",
            "--bind",
            "127.0.0.1:0",
        ])
        .arg("--data")
        .arg(&data)
        .arg("--dids")
        .arg(&dids)
        .stderr(full.expect("the device is there"))
        .spawn()
        .expect("it starts");
    // The mirror makes this folder once it runs; each of its first lines cannot be written.
    while !data.join("tmp").exists() {
        let ended = mirror.try_wait().expect("it can be asked");
        assert_eq!(ended, None, "it ended by itself");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let stop = Command::new("kill").arg(mirror.id().to_string()).status();
    assert!(stop.expect("kill runs").success());
    let ended = mirror.wait().expect("it ends");
    assert_eq!(ended.code(), Some(0));
}

#[test]
fn a_store_in_use_names_who_uses_it() {
    let folder = filled();
    let _open = Store::open(folder.path(), &settings()).expect("it opens");
    for command in ["check", "repair"] {
        let output = on(folder.path(), &["store", command]);
        assert_eq!(code(&output), 1);
        let pid = std::process::id().to_string();
        assert!(text(&output).contains(&pid), "{}", text(&output));
    }
}

#[test]
fn a_damaged_journal_is_named_repaired_and_then_sound() {
    let folder = filled();
    let journal = journal(folder.path());
    let mut bytes = fs::read(&journal).expect("it reads");
    let used = bytes
        .iter()
        .rposition(|byte| *byte != 0)
        .expect("it is not empty");
    let middle = used / 2;
    for byte in &mut bytes[middle..middle + 64] {
        *byte ^= 0x55;
    }
    fs::write(&journal, bytes).expect("it writes");

    let refused = on(folder.path(), &["store", "check"]);
    assert_eq!(code(&refused), 1);
    assert!(
        text(&refused).contains("gapless store repair"),
        "{}",
        text(&refused)
    );
    let dry = on(folder.path(), &["store", "repair", "--dry-run", "--json"]);
    assert_eq!(code(&dry), 1, "{}", text(&dry));
    assert!(json(&dry)["lost"].is_string());

    let repaired = on(folder.path(), &["store", "repair", "--json"]);
    assert_eq!(code(&repaired), 0, "{}", text(&repaired));
    // The hole, and a number above all that were given: a reader that has read them all meets it.
    let lost = &json(&repaired)["lost_numbers"];
    let rows = lost.as_array().map(Vec::len);
    assert_eq!(rows, Some(2), "one lost row covers each: {lost}");
    assert!(lost[0]["last"].as_u64().is_some_and(|last| last < 40));
    assert_eq!(lost[1], serde_json::json!({ "first": 41, "last": 41 }));
    let again = on(folder.path(), &["store", "repair", "--json"]);
    assert_eq!(json(&again)["nothing_to_do"], true, "{}", text(&again));
    let check = on(folder.path(), &["store", "check", "--json"]);
    assert_eq!(code(&check), 0, "{}", text(&check));

    // It goes on, above every number that was ever given out.
    let store = Store::open(folder.path(), &settings()).expect("it opens");
    let ack = store.write(repository(99)).expect("it writes");
    assert!(ack.numbers.expect("a record takes one").start > 40);
    store.close().expect("it closes");
}
