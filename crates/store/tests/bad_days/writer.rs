//! The process that writes until it is killed. It is this test binary once more:
//! a test of its own that does nothing unless it is told to by its environment.
//! On its standard output it says what was acknowledged to it.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::sync_channel;

use gapless_store::frames::FramesSettings;
use gapless_store::{Settings, Store};

use crate::load::{BegunPurges, Load};

const FOLDER: &str = "GAPLESS_TEST_WRITER";
const SEED: &str = "GAPLESS_TEST_SEED";
/// Events that may be on their way at once.
const IN_FLIGHT: &str = "GAPLESS_TEST_IN_FLIGHT";
/// A file to make before the event with this number: `PATH` after so many.
const ARM: &str = "GAPLESS_TEST_ARM";
/// Ends by itself after so many events.
const EVENTS: &str = "GAPLESS_TEST_EVENTS";

/// A dead letter of this size with each event.
pub(crate) const LETTER_BYTES: &str = "GAPLESS_TEST_LETTER_BYTES";

/// Small, so that segments rotate and fall out of the window.
pub(crate) fn settings() -> Settings {
    let mut settings = Settings {
        min_free_disk_bytes: 0,
        frames: FramesSettings {
            segment_bytes: 256 << 10,
            ..FramesSettings::default()
        },
        ..Settings::default()
    };
    settings.engine.cache_bytes = 8 << 20;
    settings
}

/// What the writer was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Told {
    pub event: u64,
    pub first_seq: u64,
    pub end_seq: u64,
    pub ops: u32,
    pub has_frame: bool,
}

impl Told {
    fn line(&self) -> String {
        let Told {
            event,
            first_seq,
            end_seq,
            ops,
            has_frame,
        } = self;
        format!(
            "ack {event} {first_seq} {end_seq} {ops} {}\n",
            u8::from(*has_frame)
        )
    }

    fn parse(line: &str) -> Option<Told> {
        let mut parts = line
            .strip_prefix("ack ")?
            .split(' ')
            .map(|part| part.parse::<u64>().ok());
        let mut part = || parts.next().flatten();
        Some(Told {
            event: part()?,
            first_seq: part()?,
            end_seq: part()?,
            ops: part()? as u32,
            has_frame: part()? == 1,
        })
    }
}

/// Not a test: the writer, when the environment asks for it.
#[test]
fn writer_process() {
    let Ok(folder) = std::env::var(FOLDER) else {
        return;
    };
    let number = |name: &str, default: u64| {
        std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
    };
    let told = write_on(
        Path::new(&folder),
        number(SEED, 1),
        number(IN_FLIGHT, 256) as usize,
        number(EVENTS, u64::MAX),
    );
    if let Err(error) = told {
        say(&format!("error {error}\n"));
        std::process::exit(3);
    }
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // Whole lines, each in one write, so that a kill cuts none.
    out.write_all(line.as_bytes()).expect("somebody listens");
    out.flush().expect("somebody listens");
}

fn write_on(
    folder: &Path,
    seed: u64,
    in_flight: usize,
    events: u64,
) -> Result<(), gapless_store::error::StoreError> {
    let store = Store::open(folder, &settings())?;
    let mut load = Load::resume(&store, seed);
    load.letter_bytes = std::env::var(LETTER_BYTES).map_or(0, |text| text.parse().unwrap_or(0));
    let arm = std::env::var(ARM).ok();
    let (failed, failure) = sync_channel(1);
    let (done, room) = sync_channel(in_flight.max(1));
    for count in 0..events {
        if count == 20
            && let Some(arm) = &arm
        {
            std::fs::write(arm, "").expect("the arm file");
        }
        let event = load.event();
        let (number, ops, has_frame) = (event.number, event.ops, event.has_frame);
        store.begin(crate::load::UPSTREAM, 0, number);
        let last = event.changes.len() - 1;
        for (place, change) in event.changes.into_iter().enumerate() {
            let (failed, done) = (failed.clone(), done.clone());
            let begun = BegunPurges::begun_by(&change).map(|did| (did, load.purges.clone()));
            store.submit(change, move |answer| match answer {
                Ok(ack) if place == last => {
                    let numbers = ack.numbers.expect("every event is in the log");
                    if let Some((did, purges)) = begun {
                        purges.note(did, numbers.start);
                    }
                    say(&Told {
                        event: number,
                        first_seq: numbers.start,
                        end_seq: numbers.end,
                        ops,
                        has_frame,
                    }
                    .line());
                    let _ = done.send(());
                }
                Ok(_) => {}
                Err(error) => {
                    let _ = failed.try_send(error);
                    let _ = done.try_send(());
                }
            });
        }
        // Waits while too many are on their way.
        if count + 1 >= in_flight as u64 {
            let _ = room.recv();
        }
        if let Ok(error) = failure.try_recv() {
            return Err(error);
        }
    }
    store.close()
}

/// A writer that runs.
pub(crate) struct Writer {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
    /// Everything it was told so far.
    pub told: Vec<Told>,
    /// What it said about its end.
    pub error: Option<String>,
}

/// How to start one.
pub(crate) struct Start<'s> {
    pub folder: &'s Path,
    pub seed: u64,
    pub in_flight: usize,
    pub events: Option<u64>,
    pub arm: Option<&'s Path>,
}

impl Start<'_> {
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(std::env::current_exe().expect("this binary"));
        command
            .args(["--exact", "writer::writer_process", "--nocapture", "-q"])
            .env(FOLDER, self.folder)
            .env(SEED, self.seed.to_string())
            .env(IN_FLIGHT, self.in_flight.to_string())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if let Some(events) = self.events {
            command.env(EVENTS, events.to_string());
        }
        if let Some(arm) = self.arm {
            command.env(ARM, arm);
        }
        command
    }
}

impl Writer {
    pub(crate) fn spawn(mut command: Command) -> Writer {
        let mut child = command.spawn().expect("the writer starts");
        let out = child.stdout.take().expect("its output");
        Writer {
            child,
            lines: BufReader::new(out).lines(),
            told: Vec::new(),
            error: None,
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Reads on until it was told of `more` events more, or ended. Whether it
    /// still runs.
    pub(crate) fn listen(&mut self, more: usize) -> bool {
        let enough = self.told.len() + more;
        while self.told.len() < enough {
            if !self.line() {
                return false;
            }
        }
        true
    }

    fn line(&mut self) -> bool {
        let Some(Ok(line)) = self.lines.next() else {
            return false;
        };
        self.told.extend(Told::parse(&line));
        if let Some(error) = line.strip_prefix("error ") {
            self.error = Some(error.to_owned());
        }
        true
    }

    /// Kills it, at whatever it is doing, and hears it out.
    pub(crate) fn kill(mut self) -> Ended {
        // It may have ended by itself.
        let _ = self.child.kill();
        self.end()
    }

    /// Waits for its own end.
    pub(crate) fn end(mut self) -> Ended {
        while self.line() {}
        let status = self.child.wait().expect("a child of ours");
        let mut complaint = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            let _ = std::io::Read::read_to_string(&mut stderr, &mut complaint);
        }
        assert!(
            !complaint.contains("panicked"),
            "the writer panicked: {complaint}"
        );
        Ended {
            told: self.told,
            error: self.error,
            success: status.success(),
        }
    }
}

/// What is left of a writer.
pub(crate) struct Ended {
    pub told: Vec<Told>,
    pub error: Option<String>,
    pub success: bool,
}

/// Everything that was acknowledged, over all lives of a store.
#[derive(Default)]
pub(crate) struct Memory {
    pub events: HashMap<u64, Told>,
    pub newest: u64,
}

impl Memory {
    pub(crate) fn add(&mut self, told: &[Told]) {
        for told in told {
            let before = self.events.insert(told.event, *told);
            assert_eq!(before, None, "event {} was acknowledged twice", told.event);
            self.newest = self.newest.max(told.event);
        }
    }
}
