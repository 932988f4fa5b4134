//! Firehose: a mirror sends verified commits from its disk to one consumer that is far
//! behind.
//!
//! Sender and mirror are processes of their own, as shipped; when the consumer connects, the
//! sender is idle. The consumer is a plain socket that finds the frames and does nothing with
//! them; one of the limits is an equal pair of sockets that carries as many zeros. Times are
//! wall times, because mirror and consumer run in parallel.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpStream;
use std::time::Instant;

use crate::program::{Mirror, Sender};
use crate::report::{Figure, Report, Target};
use crate::testnet::{bare_copy_seconds, subscribe};

const RECORDS: usize = 1_000;
const COMMITS_PER_SECOND: f64 = 50_000.0;
/// The first bytes of the frame of a commit.
const COMMIT: &[u8] = b"\xa2atg#commit";

pub(crate) fn run(report: &mut Report) {
    let (repos, commits) = if report.quick() {
        (5, 5_000)
    } else {
        (100, 300_000)
    };
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let sender = Sender::start(repos, RECORDS, commits);
    let mirror = Mirror::start(&data, &sender.plc, &sender.pds, &["--sweep-every", "24h"]);
    mirror.until("every repository is complete", || {
        mirror.number("/v1/status", "\"complete\"") == Some(f64::from(repos))
    });
    sender.release(&format!("{{\"commits\":{commits}}}"));
    mirror.until("the cursor has come to the end", || {
        mirror.number("/v1/upstreams", "\"cursor\"") >= Some(commits as f64)
    });
    mirror.until_idle();
    let address = mirror.url.trim_start_matches("http://").to_owned();
    let cpu = mirror.cpu_seconds();
    let began = Instant::now();
    let mut stream = subscribe(&address);
    let bytes = read_commits(&mut stream, commits);
    let seconds = began.elapsed().as_secs_f64();
    let cpu = mirror.cpu_seconds() - cpu;
    let rate = commits as f64 / seconds;
    report.print(&Figure {
        name: "firehose".to_owned(),
        figure: rate,
        limit: COMMITS_PER_SECOND,
        unit: "/s",
        against: "the target: commits per second to one consumer",
        target: Target::AtLeast(1.0),
    });
    report.print(&Figure {
        name: "firehose/socket".to_owned(),
        figure: rate,
        limit: commits as f64 / bare_copy_seconds(bytes),
        unit: "/s",
        against: "the same number of bytes through a bare socket; reported",
        target: Target::AtLeast(0.0),
    });
    report.print(&Figure {
        name: "firehose/bytes".to_owned(),
        figure: bytes as f64 / commits as f64,
        limit: 2_048.0,
        unit: "B",
        against: "bytes of a commit; reported",
        target: Target::AtLeast(0.0),
    });
    report.print(&Figure {
        name: "firehose/cpu".to_owned(),
        figure: cpu / commits as f64 * 1e6,
        limit: 1e6 / COMMITS_PER_SECOND,
        unit: "us",
        against: "CPU time of gapless per commit sent; reported",
        target: Target::AtLeast(0.0),
    });
    drop((mirror, sender));
}

/// Reads until this many commits have arrived. Returns the bytes of all frames.
fn read_commits(reader: &mut BufReader<TcpStream>, commits: u64) -> u64 {
    let (mut bytes, mut left) = (0, commits);
    while left > 0 {
        let mut head = [0; 2];
        reader.read_exact(&mut head).expect("a frame");
        let length = match head[1] {
            126 => {
                let mut length = [0; 2];
                reader.read_exact(&mut length).expect("a length");
                u64::from(u16::from_be_bytes(length))
            }
            127 => {
                let mut length = [0; 8];
                reader.read_exact(&mut length).expect("a length");
                u64::from_be_bytes(length)
            }
            short => u64::from(short),
        };
        bytes += length;
        // A ping has no payload.
        let mut begins = [0; COMMIT.len()];
        if length < COMMIT.len() as u64 {
            continue;
        }
        reader.read_exact(&mut begins).expect("a payload");
        left -= u64::from(begins == COMMIT);
        let mut rest = length as usize - COMMIT.len();
        while rest > 0 {
            let buffered = reader.fill_buf().expect("a payload").len();
            assert!(buffered > 0, "the stream ended early");
            let taken = buffered.min(rest);
            reader.consume(taken);
            rest -= taken;
        }
    }
    bytes
}
