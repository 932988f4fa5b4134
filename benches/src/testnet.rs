//! The test network: prepared commits through a socket, against an equal number of plain
//! bytes.
//!
//! The test network must never be the bottleneck of a measurement. The reader is a plain
//! blocking socket that finds the frames and does nothing with them; the limit is an equal
//! pair of sockets that carries as many zeros. Times are wall times, because sender and
//! reader run in parallel.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Instant;

use gapless_testnet::load::{Load, LoadConfig, LoadServer};

use crate::report::{Figure, Report, Target};

const COMMITS_PER_SECOND: f64 = 50_000.0;
const READ_BYTES: usize = 1 << 20;

pub(crate) fn run(report: &mut Report) {
    let commits = if report.quick() { 20_000 } else { 200_000 };
    let config = LoadConfig {
        repos: 1_000,
        records: 1_000,
        commits,
        ..LoadConfig::default()
    };
    let load = Load::prepare(config).expect("a load within its limits");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    let server = runtime
        .block_on(LoadServer::start(load))
        .expect("free ports on loopback");
    let address = server.pds_url.trim_start_matches("http://").to_owned();
    let mut stream = subscribe(&address);
    let start = Instant::now();
    server.release(commits);
    let bytes = read_frames(&mut stream, commits);
    let figure = commits as f64 / start.elapsed().as_secs_f64();
    let limit = commits as f64 / bare_copy_seconds(bytes);
    report.print(&Figure {
        name: "testnet".to_owned(),
        figure,
        limit,
        unit: "commits/s",
        against: "the same number of bytes through a bare socket",
        target: Target::AtLeast(COMMITS_PER_SECOND / limit),
    });
}

/// Opens a WebSocket without a client library, so that reading costs as little as possible.
pub(crate) fn subscribe(address: &str) -> BufReader<TcpStream> {
    let mut stream = TcpStream::connect(address).expect("the server listens");
    let path = "/xrpc/com.atproto.sync.subscribeRepos?cursor=0";
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    .expect("the server reads");
    let mut reader = BufReader::with_capacity(READ_BYTES, stream);
    let mut line = String::new();
    reader.read_line(&mut line).expect("the server answers");
    assert!(line.contains(" 101 "), "no WebSocket: {line}");
    while line != "\r\n" {
        line.clear();
        reader.read_line(&mut line).expect("the server answers");
    }
    reader
}

/// Reads whole frames and returns their bytes.
fn read_frames(reader: &mut BufReader<TcpStream>, count: u64) -> u64 {
    let mut bytes = 0;
    for _ in 0..count {
        let mut head = [0; 2];
        reader.read_exact(&mut head).expect("a frame");
        assert_eq!(head[0], 0x82, "a whole binary message");
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
        let mut left = length as usize;
        while left > 0 {
            let buffered = reader.fill_buf().expect("a payload").len();
            assert!(buffered > 0, "the stream ended early");
            let taken = buffered.min(left);
            reader.consume(taken);
            left -= taken;
        }
        bytes += length + 4;
    }
    bytes
}

/// The wall seconds for `bytes` zeros from one thread to another over loopback.
pub(crate) fn bare_copy_seconds(bytes: u64) -> f64 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    let start = Instant::now();
    let sender = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a reader");
        let piece = vec![0; READ_BYTES];
        let mut left = bytes;
        while left > 0 {
            let taken = left.min(READ_BYTES as u64);
            stream
                .write_all(&piece[..taken as usize])
                .expect("a reader");
            left -= taken;
        }
    });
    let mut stream = TcpStream::connect(address).expect("a sender");
    let mut buffer = vec![0; READ_BYTES];
    while stream.read(&mut buffer).expect("a sender") > 0 {}
    sender.join().expect("a sender that ends");
    start.elapsed().as_secs_f64()
}
