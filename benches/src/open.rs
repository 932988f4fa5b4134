//! Opening a large store after kill -9 under load, against a limit of five seconds.
//!
//! A second process of this program writes until the folder is large enough and is killed in
//! the middle of a batch, with full journals. Then this process opens the store: lock,
//! journals, engine, frames.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use gapless_core::ledger::Held;
use gapless_store::change::RecordsKind;
use gapless_store::{Settings, Store};

use crate::report::{Figure, Report, Target};
use crate::store::{Account, Dice, fresh_record};

/// The argument that makes this program the writer.
pub(crate) const WRITER: &str = "--write-store";

const SECONDS: f64 = 5.0;
/// Large records, so that writing ten gigabytes takes a minute and not ten.
const RECORD_BYTES: usize = 16 << 10;
const RECORDS: usize = 200;

pub(crate) fn run(report: &mut Report) {
    let megabytes = if report.quick() { 64 } else { 10_240 };
    let folder = tempfile::tempdir().expect("a folder");
    let mut writer = start(folder.path());
    let told = wait_for(&mut writer, folder.path(), megabytes << 20);
    writer.kill().expect("it runs");
    writer.wait().expect("it was ours");
    let size = bytes_in(folder.path());
    let start = Instant::now();
    let store = Store::open(folder.path(), &Settings::default()).expect("it opens");
    let took = start.elapsed().as_secs_f64();
    assert!(
        store.durable_head().next_seq >= told,
        "what was acknowledged is there"
    );
    store.close().expect("it closes");
    report.print(&Figure {
        name: format!("open/{} MB", size >> 20),
        figure: took,
        limit: SECONDS,
        unit: "s",
        against: "after kill -9 under load",
        target: Target::AtMost(1.0),
    });
}

fn start(folder: &Path) -> Child {
    let program = std::env::current_exe().expect("this program");
    Command::new(program)
        .arg(WRITER)
        .arg(folder)
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts")
}

/// Waits until the folder has this many bytes. Returns the last acknowledged log number.
fn wait_for(writer: &mut Child, folder: &Path, bytes: u64) -> u64 {
    let lines = BufReader::new(writer.stdout.take().expect("piped")).lines();
    let mut told = 0;
    for line in lines {
        told = line.expect("a line").parse().expect("a number");
        if bytes_in(folder) >= bytes {
            break;
        }
    }
    told
}

fn bytes_in(folder: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return 0;
    };
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(data) if data.is_dir() => bytes_in(&entry.path()),
            Ok(data) => data.len(),
            // A compaction has removed the file meanwhile.
            Err(_) => 0,
        })
        .sum()
}

/// Runs the writer: writes repositories without end, and prints the next log number as they
/// become durable.
pub(crate) fn write(folder: &Path) {
    let store = Store::open(folder, &Settings::default()).expect("it opens");
    let mut dice = Dice(3);
    let mut out = std::io::stdout();
    let (tell, told) = std::sync::mpsc::sync_channel(8);
    for number in 0.. {
        let mut account = Account::new(number);
        let commit = dice.bytes(200);
        let head = account.head(&commit);
        let ops = (0..RECORDS)
            .map(|_| fresh_record(&mut account, dice.bytes(RECORD_BYTES)))
            .collect();
        let change = account.change(RecordsKind::Backfill, Held::Exactly(head), ops, commit);
        let tell = tell.clone();
        store.submit(change, move |answer| {
            tell.send(answer).expect("it listens");
        });
        for answer in told.try_iter() {
            let ack = answer.expect("it is durable");
            let next = ack.numbers.expect("records take numbers").end;
            // The reader is gone, and will kill this process.
            if number % 16 == 0 && writeln!(out, "{next}").and_then(|()| out.flush()).is_err() {
                return;
            }
        }
    }
}
