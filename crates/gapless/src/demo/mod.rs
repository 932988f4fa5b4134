//! `gapless demo`: starts a test network and a mirror of it on this machine, and injects
//! one fault after another. The demonstration shows what broke and how the mirror repaired
//! it, and compares every record that the mirror holds with the truth throughout.
//!
//! The demonstration needs no service and no network beyond loopback, uses free ports, and
//! leaves nothing behind unless `--data` is given. It fails if a record differed, if a
//! fault was not repaired, or if a fault did not fire.

pub mod acts;
mod ending;
pub mod log_observer;
pub mod oracle;
mod play;
mod stage;
mod story;
mod tally;
pub mod traffic;
mod view;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gapless_store::error::StoreError;
use gapless_store::log_reader::PageError;
use serde_json::json;

use acts::{HOSTS, MIN_ACCOUNTS_PER_HOST};
use stage::{Stage, StageOptions};
use tally::{Judge, OracleTally};
use view::{DemoStatus, DemoView, OutputForm};

/// The default number of repositories.
pub(crate) const DEFAULT_REPOS: usize = 60;
/// The number of repositories that the acts need.
pub const MIN_REPOS: usize = MIN_ACCOUNTS_PER_HOST * HOSTS;
/// The largest number of repositories. More repositories would show nothing new.
pub const MAX_REPOS: usize = 5_000;
/// How long any repair may take.
pub(crate) const REPAIR_TIMEOUT: Duration = Duration::from_secs(60);
/// The interval of the comparison of all records.
const COMPARE_INTERVAL: Duration = Duration::from_millis(200);
/// The interval at which the status is redrawn and the events are counted.
const REDRAW_INTERVAL: Duration = Duration::from_secs(1);

/// The options of `gapless demo`.
#[derive(Debug, Clone)]
pub struct Options {
    /// Keeps running after the script, until Ctrl-C.
    pub keep: bool,
    pub json: bool,
    pub repos: usize,
    /// A new folder for the data, which is kept; `None` uses a temporary one.
    pub data: Option<PathBuf>,
    /// The first port of the network; 0 takes free ones.
    pub port: u16,
    pub bind: SocketAddr,
}

/// Why a demonstration was not finished.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    #[error("{0}")]
    Usage(String),
    #[error("the network: {0}")]
    Network(String),
    #[error(
        "cannot listen on {0}: {1}. Another program uses the address; --bind names another, and without it a free port is taken"
    )]
    Bind(SocketAddr, std::io::Error),
    #[error("the mirror: {0}")]
    Mirror(String),
    #[error("the folder {0}: {1}")]
    Folder(String, std::io::Error),
    #[error("{0}")]
    Wrong(String),
    #[error("stopped before its end")]
    Interrupted,
}

impl From<PageError> for DemoError {
    fn from(error: PageError) -> DemoError {
        DemoError::Mirror(format!("the log: {error}"))
    }
}

impl From<StoreError> for DemoError {
    fn from(error: StoreError) -> DemoError {
        DemoError::Mirror(error.to_string())
    }
}

/// Runs the demonstration. Returns true if every fault fired and was repaired, and no
/// record differed.
pub fn run(options: &Options) -> Result<bool, DemoError> {
    if !(MIN_REPOS..=MAX_REPOS).contains(&options.repos) {
        return Err(DemoError::Usage(format!(
            "--repos must be {MIN_REPOS} to {MAX_REPOS}, not {}",
            options.repos
        )));
    }
    let folder = Folder::new(options.data.as_deref())?;
    log_to(&folder.path().join("log"))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| DemoError::Mirror(format!("cannot start the runtime: {error}")))?;
    let ended = runtime.block_on(demonstrate(options, folder.path()));
    runtime.shutdown_timeout(Duration::from_secs(1));
    ended
}

/// The folder of the data. Dropping it removes a temporary folder.
enum Folder {
    Given(PathBuf),
    Temporary(tempfile::TempDir),
}

impl Folder {
    fn new(given: Option<&Path>) -> Result<Folder, DemoError> {
        let Some(given) = given else {
            let made = tempfile::Builder::new().prefix("gapless-demo-").tempdir();
            return made
                .map(Folder::Temporary)
                .map_err(|error| DemoError::Folder("for temporary files".to_owned(), error));
        };
        let named = |error| DemoError::Folder(given.display().to_string(), error);
        if stage::data(given).exists() {
            return Err(DemoError::Usage(format!(
                "{} has the data of an earlier demonstration, whose network is gone: remove the folder, or name another one",
                given.display()
            )));
        }
        std::fs::create_dir_all(given).map_err(named)?;
        if std::fs::read_dir(given).map_err(named)?.next().is_some() {
            return Err(DemoError::Usage(format!(
                "{} is not empty: name a new folder, so that nothing is overwritten",
                given.display()
            )));
        }
        Ok(Folder::Given(given.to_owned()))
    }

    fn path(&self) -> &Path {
        match self {
            Folder::Given(path) => path,
            Folder::Temporary(folder) => folder.path(),
        }
    }
}

/// Writes the log into a file beside the data; the terminal shows the story.
fn log_to(path: &Path) -> Result<(), DemoError> {
    let file = std::fs::File::create(path)
        .map_err(|error| DemoError::Folder(path.display().to_string(), error))?;
    let builder = tracing_subscriber::fmt().with_ansi(false);
    // A second subscriber in one process, as in tests, has no effect.
    let _ = builder.with_writer(std::sync::Mutex::new(file)).try_init();
    Ok(())
}

/// A running demonstration.
struct Demo {
    stage: Arc<Stage>,
    judge: Arc<Judge>,
    view: DemoView,
    began: Instant,
    /// Whether the script has ended, after which no status is drawn.
    quiet: AtomicBool,
    events_per_second: AtomicU64,
}

async fn demonstrate(options: &Options, folder: &Path) -> Result<bool, DemoError> {
    let stop = stop_signal()?;
    tokio::pin!(stop);
    let stage_options = StageOptions {
        repos: options.repos,
        port: options.port,
        bind: options.bind,
    };
    let built = tokio::select! {
        built = Stage::build(&stage_options, folder) => built?,
        () = &mut stop => return Err(DemoError::Interrupted),
    };
    let stage = Arc::new(built);
    let demo = Arc::new(Demo {
        judge: Arc::new(Judge::new(stage.net.truth())),
        stage: stage.clone(),
        view: DemoView::new(OutputForm::choose(options.json)),
        began: Instant::now(),
        quiet: AtomicBool::new(false),
        events_per_second: AtomicU64::new(0),
    });
    demo.print_introduction();
    let comparing = tokio::spawn(compare_repeatedly(demo.clone()));
    let drawing = tokio::spawn(redraw_repeatedly(demo.clone()));
    let played = tokio::select! {
        played = demo.play() => played,
        () = &mut stop => Err(DemoError::Interrupted),
    };
    demo.quiet.store(true, Ordering::Relaxed);
    drawing.abort();
    demo.view.stop_redrawing();
    let ended = match played {
        Err(error) => {
            demo.tell_differences();
            Err(error)
        }
        Ok(repaired) => demo.print_summary(repaired).await,
    };
    if options.keep && !matches!(ended, Err(DemoError::Interrupted)) {
        demo.keep_running(&mut stop, folder, &ended).await;
    }
    comparing.abort();
    // The running comparison releases the mirror first.
    let _ = comparing.await;
    stage.take_down().await?;
    ended
}

/// Resolves on SIGINT or SIGTERM.
fn stop_signal() -> Result<impl Future<Output = ()>, DemoError> {
    use tokio::signal::unix::{SignalKind, signal};
    let handle = |kind| {
        let handled = signal(kind);
        handled.map_err(|error| DemoError::Mirror(format!("cannot handle signals: {error}")))
    };
    let mut terminate = handle(SignalKind::terminate())?;
    let mut interrupt = handle(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// Compares all records again and again while the mirror runs.
async fn compare_repeatedly(demo: Arc<Demo>) {
    loop {
        if let Some(mirror) = demo.stage.mirror() {
            let judge = demo.judge.clone();
            let passed = tokio::task::spawn_blocking(move || judge.pass(&mirror)).await;
            let failed = match passed {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(error.to_string()),
                Err(error) => Some(error.to_string()),
            };
            if let Some(failed) = failed {
                demo.judge.fail(failed);
            }
        }
        tokio::time::sleep(COMPARE_INTERVAL).await;
    }
}

async fn redraw_repeatedly(demo: Arc<Demo>) {
    let mut ticks = tokio::time::interval(REDRAW_INTERVAL);
    let mut before = 0;
    loop {
        ticks.tick().await;
        let mirror = demo.stage.mirror();
        let frames = mirror.map_or(0, |mirror| mirror.services().metrics.frames.get());
        // A restarted mirror counts from zero.
        let events = frames.checked_sub(before).unwrap_or(frames);
        demo.events_per_second.store(events, Ordering::Relaxed);
        before = frames;
        let tally = demo.judge.tally();
        if !demo.quiet.load(Ordering::Relaxed) {
            demo.view.redraw(&demo.status(&tally));
        }
    }
}

impl Demo {
    fn status<'a>(&self, tally: &'a OracleTally) -> DemoStatus<'a> {
        DemoStatus {
            tally,
            events_per_second: self.events_per_second.load(Ordering::Relaxed),
            seconds: self.began.elapsed().as_secs(),
        }
    }

    fn print_introduction(&self) {
        let urls = self.stage.net.urls();
        let mirror = format!("http://{}", self.stage.address());
        let repos = self.stage.net.truth().dids().len();
        let words = format!(
            "A network of {repos} repositories on {HOSTS} servers, and a mirror of it on {mirror}.\n"
        );
        let event = json!({
            "event": "started", "repositories": repos, "mirror": mirror, "network": urls,
        });
        self.view.tell(&words, &event);
    }
}
