//! Runs the program and the test network as processes of their own, and reads their CPU time
//! and memory from the system.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The longest wait for any condition.
const PATIENCE: Duration = Duration::from_secs(900);
/// The ticks per second of the system's clock for processes.
const TICKS_PER_SECOND: f64 = 100.0;
/// The number of bytes of a response read at a time, and the longest head of a response.
const READ_BYTES: usize = 256 << 10;
const HEAD_BYTES: usize = 8 << 10;

/// The path of a program in the folder of this one.
fn program(name: &str) -> PathBuf {
    let here = std::env::current_exe().expect("this program");
    here.with_file_name(name)
}

pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("an address").port()
}

/// A process that is killed when this is dropped.
pub(crate) struct Process(pub Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The test network as a sender, with its load prepared.
pub(crate) struct Sender {
    _process: Process,
    pub plc: String,
    pub pds: String,
}

impl Sender {
    pub(crate) fn start(repos: u32, records: usize, commits: u64) -> Sender {
        let mut child = Command::new(program("gapless-testnet"))
            .args(["--json", "--repos", &repos.to_string()])
            .args(["--records", &records.to_string()])
            .args(["--load", &commits.to_string()])
            .stdout(Stdio::piped())
            .spawn()
            .expect("gapless-testnet was built");
        let out = child.stdout.take().expect("it was asked for");
        let mut line = String::new();
        BufReader::new(out)
            .read_line(&mut line)
            .expect("it says where it is");
        let url = |name: &str| {
            let from = line.find(name).expect("it names its addresses") + name.len();
            let rest = &line[from..];
            let from = rest.find("http").expect("an address");
            let end = rest[from..].find('"').expect("an end");
            rest[from..from + end].to_owned()
        };
        Sender {
            plc: url("\"plc\""),
            pds: url("\"pds\""),
            _process: Process(child),
        }
    }

    pub(crate) fn release(&self, body: &str) {
        post(&self.pds, "/_load/release", body);
    }
}

/// A running mirror.
pub(crate) struct Mirror {
    process: Process,
    pub url: String,
}

impl Mirror {
    pub(crate) fn start(data: &Path, plc: &str, pds: &str, more: &[&str]) -> Mirror {
        // A host on loopback need not be spared.
        let fast = "[fetch]\nrequests_per_second = 10000\nper_host = 8\n";
        Mirror::start_with(fast, data, plc, pds, more)
    }

    /// Starts a mirror with this configuration file.
    pub(crate) fn start_with(
        file: &str,
        data: &Path,
        plc: &str,
        pds: &str,
        more: &[&str],
    ) -> Mirror {
        let config = data.with_extension("toml");
        std::fs::write(&config, file).expect("a folder of ours");
        let port = free_port();
        let bind = format!("127.0.0.1:{port}");
        let child = Command::new(program("gapless"))
            .arg("run")
            .arg("--config")
            .arg(&config)
            .args(["--data", data.to_str().expect("a plain name")])
            .args(["--bind", &bind, "--plc", plc, "--allow-private"])
            .args(["--upstream", &format!("pds={pds}")])
            .args(more)
            .stderr(Stdio::null())
            .spawn()
            .expect("gapless was built");
        let mirror = Mirror {
            process: Process(child),
            url: format!("http://{bind}"),
        };
        let mut mirror = mirror;
        let began = Instant::now();
        while mirror.try_get("/health").is_none() {
            let ended = mirror.process.0.try_wait().expect("it was ours");
            assert!(ended.is_none(), "gapless ended at once: {ended:?}");
            assert!(began.elapsed() < PATIENCE, "gapless does not answer");
            std::thread::sleep(Duration::from_millis(100));
        }
        mirror
    }

    /// Waits for a condition, which is checked ten times a second.
    pub(crate) fn until(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let began = Instant::now();
        while !holds() {
            assert!(
                began.elapsed() < PATIENCE,
                "{what}: not within {PATIENCE:?}"
            );
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Kills the mirror and waits for its end.
    pub(crate) fn stop(self) {
        let Mirror { mut process, .. } = self;
        process.0.kill().expect("it runs");
        process.0.wait().expect("it was ours");
    }

    fn try_get(&self, path: &str) -> Option<String> {
        request(&self.url, &format!("GET {path} HTTP/1.1"), "")
    }

    pub(crate) fn get(&self, path: &str) -> String {
        self.try_get(path).expect("it answers")
    }

    /// A number in a response, by the text before it.
    pub(crate) fn number(&self, path: &str, before: &str) -> Option<f64> {
        number_after(&self.get(path), before)
    }

    /// The CPU seconds of all threads so far.
    pub(crate) fn cpu_seconds(&self) -> f64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.process.0.id()));
        let stat = stat.expect("it runs");
        // The process name, in brackets, may contain spaces.
        let rest = &stat[stat.rfind(')').expect("a name") + 2..];
        let fields: Vec<&str> = rest.split(' ').collect();
        let ticks = |at: usize| fields[at].parse::<f64>().expect("a number");
        (ticks(11) + ticks(12)) / TICKS_PER_SECOND
    }

    /// Waits until the mirror is idle, which compaction above all delays.
    pub(crate) fn until_idle(&self) {
        let (mut last, mut since) = (self.cpu_seconds(), Instant::now());
        while since.elapsed() < Duration::from_secs(3) {
            std::thread::sleep(Duration::from_millis(500));
            let now = self.cpu_seconds();
            if now - last > 0.05 {
                since = Instant::now();
            }
            last = now;
        }
    }

    /// The peak memory in megabytes.
    pub(crate) fn peak_megabytes(&self) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.0.id()));
        let peak = number_after(&status.expect("it runs"), "VmHWM:");
        peak.expect("the system tells") / 1024.0
    }

    /// Resets the peak memory, if the system permits it.
    pub(crate) fn forget_peak(&self) {
        let _ = std::fs::write(format!("/proc/{}/clear_refs", self.process.0.id()), "5");
    }
}

/// The number of bytes in the body of a response. The bytes are not kept: a reader that holds
/// a whole repository would take a core away from the sender.
pub(crate) fn body_bytes(url: &str, path: &str) -> usize {
    let mut stream = ask(url, &format!("GET {path} HTTP/1.1"), "").expect("it answers");
    let mut buffer = vec![0; READ_BYTES];
    let (mut head, mut all) = (Vec::new(), 0);
    loop {
        let read = stream.read(&mut buffer).expect("the answer goes on");
        if read == 0 {
            break;
        }
        if head.len() < HEAD_BYTES {
            head.extend_from_slice(&buffer[..read]);
        }
        all += read;
    }
    let end = head.windows(4).position(|four| four == b"\r\n\r\n");
    assert!(head.starts_with(b"HTTP/1.1 200"), "{path} is refused");
    all - end.expect("a head") - 4
}

pub(crate) fn number_after(text: &str, before: &str) -> Option<f64> {
    let from = text.find(before)? + before.len();
    let rest = text[from..].trim_start_matches([' ', ':', '\t']);
    let end = rest
        .find(|letter: char| !(letter.is_ascii_digit() || letter == '.'))
        .unwrap_or(rest.len());
    rest[..end].parse().ok()
}

fn post(url: &str, path: &str, body: &str) -> String {
    request(url, &format!("POST {path} HTTP/1.1"), body).expect("it answers")
}

/// Sends one request without an HTTP client, so that no client is part of the measurement.
fn request(url: &str, line: &str, body: &str) -> Option<String> {
    let answer = request_bytes(url, line, body)?;
    Some(String::from_utf8_lossy(&answer).into_owned())
}

fn request_bytes(url: &str, line: &str, body: &str) -> Option<Vec<u8>> {
    let mut answer = Vec::new();
    ask(url, line, body)?.read_to_end(&mut answer).ok()?;
    Some(answer)
}

fn ask(url: &str, line: &str, body: &str) -> Option<TcpStream> {
    let address = url.trim_start_matches("http://");
    let mut stream = TcpStream::connect(address.replace("localhost", "127.0.0.1")).ok()?;
    write!(
        stream,
        "{line}\r\nhost: {address}\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
    .ok()?;
    Some(stream)
}
