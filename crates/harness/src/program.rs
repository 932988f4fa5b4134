//! The real program in its own process. A test can query it, run commands against it, and kill it
//! at any moment. Every answer about a repository is compared with the truth.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use gapless_atp::syntax::Did;
use gapless_mirror::api::{RepoAnswer, Status, UpstreamAnswer};
use gapless_testnet::Truth;
use serde::de::DeserializeOwned;

use crate::oracle::{self, RecordScope};
use crate::{LOG, PATIENCE, World, http};

/// A running `gapless run`. Dropping this kills the process.
pub struct Program {
    exe: PathBuf,
    child: Child,
    port: u16,
    log: PathBuf,
    truth: Truth,
    scope: RecordScope,
}

/// A port that was free when the function checked. Another process may take it.
fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}

impl Program {
    /// Starts the program with the world's flags and does not wait until it is ready. `exe` is its
    /// executable, which only tests of the package `gapless` know, as `CARGO_BIN_EXE_gapless`.
    pub fn start(world: &World, exe: impl AsRef<Path>) -> Program {
        Program::start_with(world, exe, &[])
    }

    /// Starts the program like [`Program::start`], with these environment variables.
    pub fn start_with(world: &World, exe: impl AsRef<Path>, variables: &[(&str, &str)]) -> Program {
        let (port, flags) = (free_port(), &world.flags);
        let folder = world.folder.path();
        let config = folder.join("gapless.toml");
        std::fs::write(&config, &world.toml).expect("a file");
        let log = folder.join(LOG);
        let mut out = std::fs::OpenOptions::new();
        let out = out.create(true).append(true).open(&log).expect("a file");
        let mut command = Command::new(exe.as_ref());
        command.arg("run").arg("--config").arg(&config);
        command.args(["--bind", &format!("127.0.0.1:{port}")]);
        for (flag, value) in [
            ("--data", &flags.data),
            ("--plc", &flags.plc),
            ("--sweep-every", &flags.sweep_every),
            ("--dids", &flags.dids),
            ("--collections", &flags.collections),
            ("--keep-keys", &flags.keep_keys),
        ] {
            if let Some(value) = value {
                command.args([flag, value]);
            }
        }
        for upstream in &flags.upstream {
            command.args(["--upstream", upstream]);
        }
        command.arg("--allow-private").current_dir(folder);
        command.envs(variables.iter().copied());
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.stderr(out).spawn().expect("it starts");
        Program {
            exe: exe.as_ref().to_owned(),
            child,
            port,
            log,
            truth: world.net.truth(),
            scope: world.scope(),
        }
    }

    /// The port of the program's HTTP interface on this machine.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Kills the process with SIGKILL and waits for its end.
    pub fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Sends SIGINT to the process, as Ctrl-C does.
    pub fn interrupt(&self) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args(["-INT", &id]).status();
        assert!(sent.is_ok_and(|sent| sent.success()), "it runs");
    }

    /// Waits until the process has ended by itself.
    pub async fn until_ended(&mut self, within: Duration) -> ExitStatus {
        let began = Instant::now();
        loop {
            if let Some(ended) = self.ended() {
                return ended;
            }
            if began.elapsed() > within {
                panic!("still running after {within:?}\n{}", self.log());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// The exit status of the process; `None` while it runs.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("it can be asked")
    }

    /// What the program has logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Runs a `gapless` command against the program.
    pub async fn command(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(&self.exe);
        command.args(arguments);
        command.args(["--url", &format!("http://127.0.0.1:{}", self.port)]);
        let output = tokio::task::spawn_blocking(move || command.output());
        output.await.expect("no panic").expect("it starts")
    }

    /// Runs a command that must succeed. Returns its standard output.
    pub async fn run_command(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments).await;
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        let complained = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {told}{complained}");
        told
    }

    /// Sends a GET request and parses the answer; `None` unless the status is 200.
    async fn get<T: DeserializeOwned>(&self, path: &str) -> Option<T> {
        let (status, answer) = self.ask(path).await?;
        let answer = (status == 200).then_some(answer)?;
        Some(serde_json::from_value(answer).expect("as the contract has it"))
    }

    /// Sends a GET request. Returns the status and the JSON; `None` without a complete answer.
    pub async fn ask(&self, path: &str) -> Option<(u16, serde_json::Value)> {
        let (status, body) = http::ask(self.port, "GET", path).await?;
        Some((status, serde_json::from_slice(&body).expect("it is JSON")))
    }

    pub async fn status(&self) -> Option<Status> {
        self.get("/v1/status").await
    }

    /// The program's answer about a repository, compared with the truth.
    pub async fn repo(&self, did: &Did) -> Option<RepoAnswer> {
        // A did:web may contain a percent sign.
        let did = did.as_str().replace('%', "%25");
        let answer = self.get(&format!("/v1/repos/{did}")).await?;
        let compared = oracle::compare(&self.truth, &self.scope, &answer, None);
        compared.expect("no store is read").expect_true();
        Some(answer)
    }

    /// Waits until the program's answer about a repository is as wanted. Returns the answer.
    pub async fn until_repo(
        &mut self,
        did: &Did,
        what: &str,
        wanted: impl Fn(&RepoAnswer) -> bool,
    ) -> RepoAnswer {
        let began = Instant::now();
        loop {
            let answer = self.repo(did).await;
            if let Some(answer) = answer.clone().filter(&wanted) {
                return answer;
            }
            self.still_waits(began, &format!("{did} {what}: {answer:?}"))
                .await;
        }
    }

    /// Waits until the status of the program is as wanted. Returns the status.
    pub async fn until_status(&mut self, what: &str, wanted: impl Fn(&Status) -> bool) -> Status {
        let began = Instant::now();
        loop {
            let status = self.status().await;
            if let Some(status) = status.clone().filter(&wanted) {
                return status;
            }
            self.still_waits(began, &format!("{what}: {status:?}"))
                .await;
        }
    }

    /// Waits until the program's only upstream is as wanted. A program that has just started
    /// answers before it follows any upstream.
    pub async fn until_upstream(
        &mut self,
        what: &str,
        wanted: impl Fn(&UpstreamAnswer) -> bool,
    ) -> Status {
        self.until_status(
            what,
            |status| matches!(&status.upstreams[..], [only] if wanted(only)),
        )
        .await
    }

    async fn still_waits(&mut self, began: Instant, seen: &str) {
        let ended = self.ended();
        if began.elapsed() > PATIENCE || ended.is_some() {
            panic!("{seen} {ended:?}\n{}", self.log());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }

    /// Waits until a repository is complete at the truth's head.
    pub async fn until_complete(&mut self, did: &Did) -> RepoAnswer {
        let truth = self.truth.clone();
        let wanted = |answer: &RepoAnswer| {
            let head = truth.head(did).map(|head| head.rev.to_string());
            answer.complete && answer.rev == head
        };
        self.until_repo(did, "complete at its head", wanted).await
    }

    /// Waits until all repositories of the network are complete at their heads.
    pub async fn until_all_complete(&mut self) -> Status {
        let dids = self.truth.dids();
        for did in &dids {
            self.until_complete(did).await;
        }
        let repos = dids.len() as u64;
        self.until_status("all complete", |status| status.repos.complete == repos)
            .await
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.end();
    }
}
