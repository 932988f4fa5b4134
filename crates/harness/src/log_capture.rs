//! Captures the warnings and errors that mirrors log in tests. An unexpected one fails its test.
//!
//! All tests of a test program share one subscriber, and many mirrors run at once. A line belongs
//! to the test whose runtime logs it: each test has its own runtime, which includes its blocking
//! threads. Desks are threads outside any runtime, so each desk is registered by its thread. A
//! line of any other thread belongs to no test and is dropped.

use std::collections::HashMap;
use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::thread::ThreadId;

use gapless_testnet::Faults;
use tokio::runtime::{Handle, Id};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Record};
use tracing::{Event, Level, Metadata, Subscriber, span};

/// The warnings and errors of one test.
pub(crate) type Lines = Arc<Mutex<Vec<String>>>;

#[derive(Default)]
struct Routes {
    runtimes: HashMap<Id, Lines>,
    threads: HashMap<ThreadId, Lines>,
}

static ROUTES: Mutex<Option<Routes>> = Mutex::new(None);

fn routes() -> MutexGuard<'static, Option<Routes>> {
    ROUTES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Captures the warnings and errors of this runtime from now on.
pub(crate) fn listen() -> Lines {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| tracing::subscriber::set_global_default(Listener).expect("the only one"));
    let lines = Lines::default();
    let mut routes = routes();
    let routes = routes.get_or_insert_default();
    routes
        .runtimes
        .insert(Handle::current().id(), lines.clone());
    lines
}

/// Captures the warnings and errors of a thread into `lines` as well.
pub(crate) fn listen_to(thread: ThreadId, lines: &Lines) {
    let mut routes = routes();
    let routes = routes.get_or_insert_default();
    routes.threads.insert(thread, lines.clone());
}

struct Listener;

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN && metadata.target().starts_with("gapless")
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        let routes = routes();
        let Some(routes) = routes.as_ref() else {
            return;
        };
        let by_runtime = || {
            let runtime = Handle::try_current().ok()?;
            routes.runtimes.get(&runtime.id())
        };
        let thread = std::thread::current().id();
        let lines = routes.threads.get(&thread).or_else(by_runtime);
        if let Some(lines) = lines {
            let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
            lines.push(line.0);
        }
    }

    fn new_span(&self, _: &Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Writing into a string does not fail.
        let _ = match field.name() {
            "message" => write!(self.0, " {value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}

/// The lines of a program's log that are warnings or errors.
pub(crate) fn of_program(text: &str) -> Vec<String> {
    let worth = |line: &&str| line.contains(" WARN ") || line.contains("ERROR ");
    text.lines().filter(worth).map(str::to_owned).collect()
}

/// Log texts, each with the names of the faults that explain it.
const EXPLAINED: &[(&str, &[&str])] = &[
    (
        "dials again after the wait",
        &[
            "disconnect",
            "dial-error",
            "dial-silence",
            "no-pongs",
            "seq-restart",
            "relay-rollback",
            // These repeat a number or send an older one.
            "duplicate",
            "reorder",
        ],
    ),
    (
        "a new epoch",
        &[
            "window",
            "info",
            "seq-restart",
            "dial-silence",
            "relay-rollback",
        ],
    ),
    ("a sweep was cut short", &["stall", "http-error", "drip"]),
    (
        "refused; fetched again later",
        &[
            "car-cut",
            "car-minus-node",
            "car-minus-leaf",
            "car-non-canonical",
        ],
    ),
    ("not signed by its owner", &["car-other-key", "plc-stale"]),
    ("has an older state than ours", &["rev-rollback"]),
    ("adopted the host's older state", &["rev-rollback"]),
    (
        "it has no such repository",
        &["account", "lost-account", "migrate"],
    ),
];

/// The reason in the log when an upstream begins without a cursor.
const BEGINS: &str = "there is no cursor to start from";

/// Whether a line is explained by a fault that has fired, or by an upstream that begins without
/// a cursor.
pub(crate) fn explained(line: &str, faults: &Faults) -> bool {
    let fired = |names: &[&str]| names.iter().any(|name| faults.fired(name) > 0);
    let mut all = EXPLAINED.iter();
    line.contains(BEGINS) || all.any(|(text, names)| line.contains(text) && fired(names))
}
