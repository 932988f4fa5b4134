//! `gapless-testnet`: runs a local AT network on loopback until Ctrl-C.
//!
//! The exit code is 0 after Ctrl-C or SIGTERM, 1 if the network cannot start, and 2 on
//! bad arguments.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use gapless_testnet::faults::CATALOGUE;
use gapless_testnet::load::{Load, LoadConfig, LoadError, LoadServer};
use gapless_testnet::{Config, Place, Spec, Testnet};
use serde_json::json;

/// Seconds between two lines of progress while there is traffic.
const PROGRESS_SECONDS: u64 = 5;

/// A small but real AT network on loopback: directory, PDSs, relay, Jetstream.
#[derive(Debug, Parser)]
#[command(name = "gapless-testnet", version, about)]
struct Arguments {
    /// Repositories, spread over the PDSs.
    #[arg(long, default_value_t = 100)]
    repos: usize,
    /// PDSs, each on its own port.
    #[arg(long, default_value_t = 3)]
    pds: usize,
    /// Records of every repository at the start.
    #[arg(long, default_value_t = 50)]
    records: usize,
    /// Determines keys, names, records and revs: the same seed gives the same network.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The first port; 0 takes free ports.
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// No relay in front of the PDSs, and no Jetstream server behind it.
    #[arg(long)]
    no_relay: bool,
    /// No Jetstream server.
    #[arg(long)]
    no_jetstream: bool,
    /// Commits per second in the background.
    #[arg(long, default_value_t = 0.0, value_name = "COMMITS_PER_S")]
    rate: f64,
    /// Take revs and times from the wall clock instead of the logical one.
    #[arg(long)]
    wall_clock: bool,
    /// No did:web accounts, so that no DID depends on a port.
    #[arg(long)]
    no_did_web: bool,
    /// The directory writes documents in the legacy form.
    #[arg(long)]
    legacy_documents: bool,
    /// Events that a PDS keeps for replay.
    #[arg(long, default_value_t = Config::default().window_events, value_name = "EVENTS")]
    window: usize,
    /// Events that a live subscriber may be behind before it is disconnected.
    #[arg(long, default_value_t = Config::default().buffer_events, value_name = "EVENTS")]
    buffer: u64,
    /// Prepare this many commits over --repos repositories of --records records, and send
    /// them on request, instead of running a network.
    #[arg(long, value_name = "COMMITS")]
    load: Option<u64>,
    /// A fault to set: NAME or NAME=KEY:VALUE,… (see --list-faults).
    #[arg(long = "fault", value_name = "NAME[=ARGS]")]
    faults: Vec<Spec>,
    /// List the faults and exit.
    #[arg(long)]
    list_faults: bool,
    /// Print lines of JSON instead of text.
    #[arg(long)]
    json: bool,
}

impl Arguments {
    fn config(&self) -> Config {
        Config {
            repos: self.repos,
            pds: self.pds,
            records: self.records,
            seed: self.seed,
            port: self.port,
            relay: !self.no_relay,
            jetstream: !self.no_relay && !self.no_jetstream,
            rate: self.rate,
            wall_clock: self.wall_clock,
            did_web: !self.no_did_web,
            legacy_documents: self.legacy_documents,
            window_events: self.window,
            buffer_events: self.buffer,
            faults: self.faults.clone(),
            ..Config::default()
        }
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.list_faults {
        list_faults();
        return ExitCode::SUCCESS;
    }
    // Listen from the start: a script may send Ctrl-C as soon as something is printed.
    let stop = match stop_signal() {
        Ok(stop) => stop,
        Err(error) => {
            eprintln!("gapless-testnet: cannot listen for Ctrl-C: {error}");
            return ExitCode::FAILURE;
        }
    };
    let run = async {
        match arguments.load {
            Some(commits) => serve_load(&arguments, commits).await,
            None => serve_network(&arguments).await,
        }
    };
    tokio::select! {
        code = run => code,
        () = stop => {
            if !arguments.json {
                eprintln!("stopping");
            }
            // A load may still be in preparation on its own thread.
            std::process::exit(0)
        }
    }
}

#[cfg(unix)]
fn stop_signal() -> std::io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => (),
            _ = terminate.recv() => (),
        }
    })
}

#[cfg(not(unix))]
fn stop_signal() -> std::io::Result<impl Future<Output = ()>> {
    Ok(async {
        let _ = tokio::signal::ctrl_c().await;
    })
}

/// Serves a network; returns only on an error.
async fn serve_network(arguments: &Arguments) -> ExitCode {
    let config = arguments.config();
    if let Err(error) = config.validate() {
        eprintln!("gapless-testnet: {error}");
        return ExitCode::from(2);
    }
    let testnet = match Testnet::start(config).await {
        Ok(testnet) => testnet,
        Err(error) => {
            eprintln!("gapless-testnet: {error}");
            return ExitCode::FAILURE;
        }
    };
    if arguments.json {
        println!("{}", json!({ "ready": true, "urls": testnet.urls() }))
    } else {
        show(&testnet)
    }
    progress(&testnet, arguments.json).await
}

async fn serve_load(arguments: &Arguments, commits: u64) -> ExitCode {
    let config = LoadConfig {
        repos: u32::try_from(arguments.repos).unwrap_or(u32::MAX),
        records: arguments.records,
        commits,
        seed: arguments.seed,
        port: arguments.port,
    };
    let prepared = tokio::task::spawn_blocking(|| Load::prepare(config)).await;
    let server = match prepared {
        Ok(Ok(load)) => LoadServer::start(load).await,
        Ok(Err(error)) => Err(error),
        Err(_) => return ExitCode::FAILURE,
    };
    let server = match server {
        Ok(server) => server,
        Err(error) => {
            eprintln!("gapless-testnet: {error}");
            return ExitCode::from(match error {
                LoadError::Bind { .. } => 1,
                _ => 2,
            });
        }
    };
    if arguments.json {
        let urls = json!({ "plc": server.plc_url, "pds": [server.pds_url] });
        println!("{}", json!({ "ready": true, "urls": urls }));
    } else {
        println!("{commits} commits are ready.\n");
        println!("  {:<10} {}", "directory", server.plc_url);
        println!("  {:<10} {}", "pds0", server.pds_url);
        println!("\nRelease them, all at once or at a pace:\n");
        let release = format!("{}/_load/release", server.pds_url);
        println!("  curl -X POST '{release}'");
        println!("  curl -X POST '{release}' -d '{{\"commits\":1000,\"per_second\":100}}'");
        println!("\nCtrl-C stops it.");
    }
    std::future::pending().await
}

fn list_faults() {
    println!("Faults. Each takes host:PLACE, did:DID and count:N, all optional:\n");
    for (name, effect) in CATALOGUE {
        println!("  {name:<18} {effect}");
    }
    println!("\nPlaces are pds0, pds1, … plc, relay and jetstream. Examples:\n");
    println!("  --fault drop=host:pds0,count:3");
    println!("  --fault http-error=status:429,retry-after:2,route:getRepo");
}

fn show(testnet: &Testnet) {
    let urls = testnet.urls();
    let (commits, events) = testnet.counts();
    let dids = testnet.truth().dids();
    println!(
        "An AT network with {} repositories on {} PDSs ({commits} commits, {events} events).\n",
        dids.len(),
        urls.pds.len(),
    );
    println!("  {:<10} {}", "directory", urls.plc);
    for (index, url) in urls.pds.iter().enumerate() {
        println!("  {:<10} {url}", Place::Pds(index).to_string());
    }
    for (name, url) in [("relay", &urls.relay), ("jetstream", &urls.jetstream)] {
        if let Some(url) = url {
            println!("  {name:<10} {url}");
        }
    }
    println!("  {:<10} {}", "control", urls.control);
    println!("\nTry:\n");
    let pds = urls.pds.first().map_or("", String::as_str);
    println!("  curl '{pds}/xrpc/com.atproto.sync.listRepos?limit=3'");
    // The last account is in the directory even if each host has a did:web.
    if let Some(did) = dids.last() {
        println!("  curl '{}/{did}'", urls.plc);
        println!("  curl '{}/_truth/repo/{did}'", urls.control);
    }
    println!("  curl '{}/_control/faults'", urls.control);
    println!(
        "  curl -X POST '{}/_control/drop' -d '{{\"host\":\"pds0\",\"count\":1}}'",
        urls.control
    );
    println!(
        "  curl -X POST '{}/_control/stir' -d '{{\"count\":10}}'",
        urls.control
    );
    println!("\nCtrl-C stops it.");
}

/// Prints a line every few seconds while there is traffic.
async fn progress(testnet: &Testnet, as_json: bool) -> ! {
    let mut ticks = tokio::time::interval(Duration::from_secs(PROGRESS_SECONDS));
    ticks.tick().await;
    let (mut commits_before, mut events_before) = testnet.counts();
    loop {
        ticks.tick().await;
        let repos = testnet.truth().dids().len();
        let (commits, events) = testnet.counts();
        let per_second = |now: u64, before: u64| (now - before) as f64 / PROGRESS_SECONDS as f64;
        let events_per_s = per_second(events, events_before);
        let commits_per_s = per_second(commits, commits_before);
        let moved = commits != commits_before;
        (commits_before, events_before) = (commits, events);
        match (moved, as_json) {
            (false, _) => (),
            (true, true) => println!(
                "{}",
                json!({
                    "repos": repos, "commits": commits, "events": events,
                    "commits_per_s": commits_per_s, "events_per_s": events_per_s,
                })
            ),
            (true, false) => println!(
                "{repos} repositories, {commits} commits ({commits_per_s:.0}/s), \
                 {events} events ({events_per_s:.0}/s)"
            ),
        }
    }
}
