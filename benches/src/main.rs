//! The benches: `cargo xtask bench [NAME…] [--json] [--quick]` prints figures and their
//! limits.
//!
//! Every figure is printed with a limit. Most limits are measured in the same run, because
//! absolute times say little on a shared machine. If one thread does the work, the figure is
//! its CPU time, the best of many rounds, with figure and limit measured in turns.

mod backfill;
mod car;
mod corpus;
mod discovery;
mod export;
mod firehose;
mod ingest;
mod ledger;
mod log;
mod measure;
mod open;
mod program;
mod report;
mod reset;
mod root;
mod store;
mod testnet;
mod verify;

use std::process::ExitCode;

use report::Report;

/// The allocator that the mirror itself uses.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// A bench: its name, what it measures, and the function that runs it.
struct Bench {
    name: &'static str,
    about: &'static str,
    run: fn(&mut Report),
}

const BENCHES: &[Bench] = &[
    Bench {
        name: "verify",
        about: "a live commit with every check, in bare signature checks",
        run: verify::run,
    },
    Bench {
        name: "car",
        about: "a repository's CAR with every check, against bare SHA-256",
        run: car::run,
    },
    Bench {
        name: "root",
        about: "a root from its keys, against hashing the same bytes",
        run: root::run,
    },
    Bench {
        name: "ledger",
        about: "decisions per second and core, and the rows that a reset of a large host writes",
        run: ledger::run,
    },
    Bench {
        name: "store",
        about: "durable commits and records, against the bare engine writing the same bytes",
        run: store::run,
    },
    Bench {
        name: "log",
        about: "the log read by a consumer, and trims and purges beside the mirror, against bare reads",
        run: log::run,
    },
    Bench {
        name: "open",
        about: "opening a store of ten gigabytes after kill -9 under load",
        run: open::run,
    },
    Bench {
        name: "ingest",
        about: "live commits through the whole program, verified and durable, in bare signature checks",
        run: ingest::run,
    },
    Bench {
        name: "backfill",
        about: "records from CARs into the store, through the whole program",
        run: backfill::run,
    },
    Bench {
        name: "export",
        about: "repositories sent by getRepo, against a bare scan of the same records",
        run: export::run,
    },
    Bench {
        name: "reset",
        about: "a host of a million repositories after a reset, one in a hundred changed",
        run: reset::run,
    },
    Bench {
        name: "discovery",
        about: "a million unknown repositories, found by listRepos",
        run: discovery::run,
    },
    Bench {
        name: "firehose",
        about: "kept commits to one consumer, through the whole program",
        run: firehose::run,
    },
    Bench {
        name: "testnet",
        about: "prepared commits leaving a socket, against bare bytes through one",
        run: testnet::run,
    },
];

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_some_and(|first| first == open::WRITER) {
        open::write(arguments.next().expect("a folder").as_ref());
        return ExitCode::SUCCESS;
    }
    let (mut json, mut quick, mut names) = (false, false, Vec::new());
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "--json" => json = true,
            "--quick" => quick = true,
            "--help" | "-h" => {
                usage();
                return ExitCode::SUCCESS;
            }
            name => names.push(name.to_owned()),
        }
    }
    if let Some(unknown) = names
        .iter()
        .find(|name| BENCHES.iter().all(|bench| bench.name != **name))
    {
        eprintln!("bench: there is no bench '{unknown}'");
        usage();
        return ExitCode::from(2);
    }
    let mut report = Report::new(json, quick);
    for bench in BENCHES {
        if names.is_empty() || names.iter().any(|name| name == bench.name) {
            report.begin(bench.name, bench.about);
            (bench.run)(&mut report);
        }
    }
    match report.missed() {
        0 => ExitCode::SUCCESS,
        missed => {
            eprintln!("bench: {missed} target(s) missed");
            ExitCode::FAILURE
        }
    }
}

fn usage() {
    eprintln!("usage: cargo xtask bench [NAME…] [--json] [--quick]");
    for bench in BENCHES {
        eprintln!("  {:<9} {}", bench.name, bench.about);
    }
    eprintln!("Without a name, all benches run. --quick takes few rounds and judges no target.");
}
