//! `gapless demo`: a network on this machine, a mirror of it, and faults, one after
//! another. It shows what broke and how the mirror repaired it, and compares every
//! record that the mirror holds with the truth all the while.
//!
//! It promises: no service, no network beyond loopback, free ports, and nothing left
//! behind unless it was asked for. It fails when a record differed, when a fault was
//! not repaired, and when a fault did not fire: that would prove nothing.

mod ending;
mod oracle;
mod play;
mod script;
mod stage;
mod story;
mod traffic;
mod view;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gapless_store::error::StoreError;
use serde_json::json;

use oracle::{Judge, Tally};
use script::LEAST_PER_HOST;
use stage::{HOSTS, Stage, Wanted};
use view::{Form, Standing, View};

/// Repositories, unless told otherwise.
pub const REPOS: usize = 60;
/// The script needs so many.
pub const LEAST_REPOS: usize = LEAST_PER_HOST * HOSTS;
/// History, and with it the truth of the past, is kept for many more; a picture of
/// more than so many tells nothing more.
pub const MOST_REPOS: usize = 5_000;
/// Nothing that is waited for takes longer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// How often everything is compared.
const JUDGE_EVERY: Duration = Duration::from_millis(200);
/// How often the view is redrawn, and the events of a second counted.
const DRAW_EVERY: Duration = Duration::from_secs(1);

/// What somebody wants to see.
#[derive(Debug, Clone)]
pub struct Options {
    /// Goes on after the script, until Ctrl-C.
    pub keep: bool,
    pub json: bool,
    pub repos: usize,
    /// A new folder for the data, which stays; else a temporary one, which goes.
    pub data: Option<PathBuf>,
    /// The first port of the network; 0 takes free ones.
    pub port: u16,
    pub bind: SocketAddr,
}

/// Why a demonstration did not get to its end.
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

impl From<StoreError> for DemoError {
    fn from(error: StoreError) -> DemoError {
        DemoError::Mirror(error.to_string())
    }
}

/// Runs it. True: everything broke as it should, was repaired, and nothing differed.
pub fn run(options: &Options) -> Result<bool, DemoError> {
    if !(LEAST_REPOS..=MOST_REPOS).contains(&options.repos) {
        return Err(DemoError::Usage(format!(
            "--repos must be {LEAST_REPOS} to {MOST_REPOS}, not {}",
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

/// Where the data is. A temporary folder goes with it.
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
                "{} has the data of an earlier demonstration, and its network is gone: remove it, or name another folder",
                given.display()
            )));
        }
        std::fs::create_dir_all(given).map_err(named)?;
        if std::fs::read_dir(given).map_err(named)?.next().is_some() {
            return Err(DemoError::Usage(format!(
                "{} is not empty, and nothing in it shall be written over: name a new folder",
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

/// The mirror's log goes beside its data: the screen is for the story.
fn log_to(path: &Path) -> Result<(), DemoError> {
    let file = std::fs::File::create(path)
        .map_err(|error| DemoError::Folder(path.display().to_string(), error))?;
    let builder = tracing_subscriber::fmt().with_ansi(false);
    // A second one in the same process, as in tests, changes nothing.
    let _ = builder.with_writer(std::sync::Mutex::new(file)).try_init();
    Ok(())
}

/// Everything that runs while the curtain is up.
struct Demo {
    stage: Arc<Stage>,
    judge: Arc<Judge>,
    view: View,
    began: Instant,
    /// The script has ended: nothing more is said of how things stand.
    quiet: AtomicBool,
    events_per_second: AtomicU64,
}

async fn demonstrate(options: &Options, folder: &Path) -> Result<bool, DemoError> {
    let stop = stop_signal()?;
    tokio::pin!(stop);
    let wanted = Wanted {
        repos: options.repos,
        port: options.port,
        bind: options.bind,
    };
    let built = tokio::select! {
        built = Stage::build(&wanted, folder) => built?,
        () = &mut stop => return Err(DemoError::Interrupted),
    };
    let stage = Arc::new(built);
    let demo = Arc::new(Demo {
        judge: Arc::new(Judge::new(stage.net.truth())),
        stage: stage.clone(),
        view: View::new(Form::wanted(options.json)),
        began: Instant::now(),
        quiet: AtomicBool::new(false),
        events_per_second: AtomicU64::new(0),
    });
    demo.introduce();
    let judging = tokio::spawn(judge_always(demo.clone()));
    let drawing = tokio::spawn(draw_always(demo.clone()));
    let played = tokio::select! {
        played = demo.play() => played,
        () = &mut stop => Err(DemoError::Interrupted),
    };
    demo.quiet.store(true, Ordering::Relaxed);
    drawing.abort();
    demo.view.settle();
    let ended = match played {
        Err(error) => {
            demo.tell_differences();
            Err(error)
        }
        Ok(repaired) => demo.sum_up(repaired).await,
    };
    if options.keep && !matches!(ended, Err(DemoError::Interrupted)) {
        demo.keep_on(&mut stop, folder, &ended).await;
    }
    judging.abort();
    // What is being compared at this moment lets go of the mirror first.
    let _ = judging.await;
    stage.take_down().await?;
    ended
}

/// Ctrl-C, and what the system sends when it wants us to end.
fn stop_signal() -> Result<impl Future<Output = ()>, DemoError> {
    use tokio::signal::unix::{SignalKind, signal};
    let heed = |kind| {
        let heeded = signal(kind);
        heeded.map_err(|error| DemoError::Mirror(format!("cannot heed signals: {error}")))
    };
    let mut terminate = heed(SignalKind::terminate())?;
    let mut interrupt = heed(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// Compares everything again and again, for as long as the mirror is up.
async fn judge_always(demo: Arc<Demo>) {
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
        tokio::time::sleep(JUDGE_EVERY).await;
    }
}

async fn draw_always(demo: Arc<Demo>) {
    let mut ticks = tokio::time::interval(DRAW_EVERY);
    let mut before = 0;
    loop {
        ticks.tick().await;
        let mirror = demo.stage.mirror();
        let frames = mirror.map_or(0, |mirror| mirror.services().metrics.frames.get());
        // A mirror that was started anew counts from zero.
        let events = frames.checked_sub(before).unwrap_or(frames);
        demo.events_per_second.store(events, Ordering::Relaxed);
        before = frames;
        let tally = demo.judge.tally();
        if !demo.quiet.load(Ordering::Relaxed) {
            demo.view.redraw(&demo.standing(&tally));
        }
    }
}

impl Demo {
    fn standing<'a>(&self, tally: &'a Tally) -> Standing<'a> {
        Standing {
            tally,
            events_per_second: self.events_per_second.load(Ordering::Relaxed),
            seconds: self.began.elapsed().as_secs(),
        }
    }

    fn introduce(&self) {
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
