//! The real program in a process of its own, to be killed at any moment; and the
//! audit of what it leaves on the disk.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gapless::api::{RepoAnswer, Status};
use gapless_atp::frame;
use gapless_atp::syntax::Did;
use gapless_core::ledger::{Held, RepoId};
use gapless_store::contents::Contents;
use gapless_store::table::log::{FIRST_SEQ, LogRow};
use gapless_store::{Settings, Store};
use gapless_testnet::{Place, Testnet};
use serde::de::DeserializeOwned;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::common::{PATIENCE, World};

/// A running `gapless run`. Dropping it kills it.
pub struct Program {
    child: Child,
    port: u16,
    log: PathBuf,
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}

impl Program {
    /// Starts the program as the world's flags say. Does not wait for it.
    pub fn start(world: &World) -> Program {
        let (port, flags) = (free_port(), &world.flags);
        let folder = world.folder.path();
        let config = folder.join("gapless.toml");
        std::fs::write(&config, "[fetch]\nrequests_per_second = 10000.0\n").expect("a file");
        let log = folder.join("log");
        let out = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&log)
            .expect("a file");
        let mut command = Command::new(env!("CARGO_BIN_EXE_gapless"));
        command.arg("run").arg("--config").arg(&config);
        command.args(["--bind", &format!("127.0.0.1:{port}")]);
        command.args(["--data", flags.data.as_deref().expect("a folder")]);
        command.args(["--plc", flags.plc.as_deref().expect("a directory")]);
        command.args(["--sweep-every", flags.sweep_every.as_deref().expect("said")]);
        for upstream in &flags.upstream {
            command.args(["--upstream", upstream]);
        }
        command.arg("--allow-private");
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.stderr(out).spawn().expect("it starts");
        Program { child, port, log }
    }

    /// Ends it without a word of warning, and waits until it is gone.
    pub fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        // It may be gone already: then there is nothing to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// What it has said, for whoever reads a failure.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Asks over HTTP; nothing while it does not answer.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Option<T> {
        let mut socket = TcpStream::connect(("127.0.0.1", self.port)).await.ok()?;
        let request = format!(
            "GET {path} HTTP/1.0\r\nHost: 127.0.0.1:{}\r\n\r\n",
            self.port
        );
        socket.write_all(request.as_bytes()).await.ok()?;
        let mut answer = String::new();
        socket.read_to_string(&mut answer).await.ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        let fine = head.lines().next()?.contains(" 200 ");
        fine.then(|| serde_json::from_str(body).expect("as the contract has it"))
    }

    pub async fn status(&self) -> Option<Status> {
        self.get("/v1/status").await
    }

    pub async fn repo(&self, did: &Did) -> Option<RepoAnswer> {
        // A did:web may carry a percent sign of its own.
        let did = did.as_str().replace('%', "%25");
        self.get(&format!("/v1/repos/{did}")).await
    }

    /// Waits until its answer is as wanted, and returns that.
    pub async fn until_status(&mut self, what: &str, wanted: impl Fn(&Status) -> bool) -> Status {
        let began = std::time::Instant::now();
        loop {
            let status = self.status().await;
            if let Some(status) = status.clone().filter(&wanted) {
                return status;
            }
            let ended = self.child.try_wait().expect("it can be asked");
            if began.elapsed() > PATIENCE || ended.is_some() {
                panic!("{what}: {status:?} {ended:?}\n{}", self.log());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until all repositories of the network are complete.
    pub async fn until_complete(&mut self, net: &Testnet) -> Status {
        let repos = net.truth().dids().len() as u64;
        self.until_status("all complete", |status| status.repos.complete == repos)
            .await
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.end();
    }
}

/// Moments that nobody chose, from a seed that a failure shows.
pub struct Chance(u64);

impl Chance {
    pub fn new() -> Chance {
        let time = SystemTime::now().duration_since(UNIX_EPOCH);
        let seed = time.map_or(1, |time| time.as_nanos() as u64) | 1;
        eprintln!("the seed is {seed}");
        Chance(seed)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    /// Waits for a while that is different every time.
    pub async fn wait(&mut self, longest: Duration) {
        let micros = self.below(longest.as_micros() as u64);
        tokio::time::sleep(Duration::from_micros(micros)).await;
    }
}

/// What was seen of the log in earlier audits; it may only grow.
#[derive(Default)]
pub struct Audit {
    rows: BTreeMap<u64, LogRow>,
    /// Audits in which a large snapshot was found half written.
    pub applying: u64,
    /// States whose root was recomputed and compared with the truth.
    pub exact: u64,
    /// The number after the last one.
    pub log_next: u64,
}

impl Audit {
    /// Looks at everything that a killed program has left: every root, every
    /// record, every log number, and the cursor.
    pub fn look(&mut self, data: &Path, net: &Testnet) {
        let settings = Settings {
            min_free_disk_bytes: 0,
            ..Settings::default()
        };
        let store = Store::open(data, &settings).expect("it opens");
        let view = store.view();
        for row in view.repos(RepoId(0)) {
            let (id, _) = row.expect("it can be read");
            self.repo(&view, id, net);
        }
        self.log(&view);
        assert_eq!(store.durable_head().next_seq, self.log_next);
        cursor(&view, net);
        drop(view);
        store.close().expect("it closes");
    }

    fn repo(&mut self, view: &Contents, id: RepoId, net: &Testnet) {
        let repo = view.repo(id).expect("it can be read").expect("it is there");
        let head = match &repo.held {
            Held::Exactly(head) => head,
            Held::Nothing => return,
            Held::Applying { .. } => {
                self.applying += 1;
                return;
            }
            Held::Damaged { .. } => panic!("{}: damaged by a mere kill", repo.did),
        };
        let root = view.root(id).expect("the keys make a tree");
        assert_eq!(root, head.data, "{} at {}", repo.did, head.rev);
        let truth = net.truth().records_at(&repo.did, head.rev);
        let truth = truth.unwrap_or_else(|| panic!("nobody signed {} {}", repo.did, head.rev));
        let mut held = BTreeMap::new();
        for record in view.records(id) {
            let record = record.expect("it can be read");
            let path = String::from_utf8(record.path().to_vec()).expect("text");
            held.insert(path, record.bytes().expect("bytes are kept").to_vec());
        }
        let truth: BTreeMap<String, Vec<u8>> = truth
            .into_iter()
            .map(|(path, (_, bytes))| (path, bytes.to_vec()))
            .collect();
        assert!(held == truth, "{} at {}: other records", repo.did, head.rev);
        self.exact += 1;
    }

    /// Numbers are dense, and name what they named before.
    fn log(&mut self, view: &Contents) {
        let mut next = FIRST_SEQ;
        for row in view.log_from(FIRST_SEQ).expect("it can be read") {
            let (first, row) = row.expect("it can be read");
            assert_eq!(first, next, "the numbers are dense");
            next += row.numbers();
            match self.rows.get(&first) {
                Some(before) => assert_eq!(before, &row, "number {first} names something else"),
                None => {
                    assert!(first >= self.log_next, "number {first} was given before");
                    self.rows.insert(first, row);
                }
            }
        }
        assert!(next >= self.log_next, "{next}: numbers were lost");
        self.log_next = next;
    }
}

/// Nothing at or before a cursor is missing: it was applied, or something is owed.
fn cursor(view: &Contents, net: &Testnet) {
    let upstreams = view.upstreams().expect("they can be read");
    for (id, row) in upstreams {
        let urls = &net.urls().pds;
        let Some(host) = urls.iter().position(|url| *url == row.url) else {
            continue;
        };
        let cursor = view.cursor(id).expect("it can be read");
        let (Some(cursor), Some(first)) = (cursor, row.first_cursor_since_reset) else {
            continue;
        };
        for bytes in net.frames(Place::Pds(host)).expect("it is there") {
            let Ok(frame::Event::Commit(event)) = frame::decode(&bytes) else {
                continue;
            };
            // What came before the connection is for the sweep to find.
            if event.seq > cursor.seq || event.seq < first {
                continue;
            }
            let did = Did::parse(event.repo).expect("a DID");
            let found = view.repo_by_did(&did).expect("it can be read");
            let (id, repo) = found.unwrap_or_else(|| panic!("{did} is passed and unknown"));
            let held = repo.head().map(|head| head.rev.to_string());
            let parked = view.parked(id).expect("it can be read");
            assert!(
                held.as_deref() >= Some(event.rev) || !repo.debt.is_empty() || !parked.is_empty(),
                "{did}: the cursor {} has passed {} at {}, and {held:?} is held",
                cursor.seq,
                event.rev,
                event.seq
            );
        }
    }
}
