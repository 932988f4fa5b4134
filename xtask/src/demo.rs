//! `cargo xtask demo`: an AT network on this machine and a mirror of it, with a
//! look at it every few seconds, until Ctrl-C.

use crate::process::{Failure, cargo, run as run_program, target};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The network's first port: directory, control, three PDSs.
const PORT: u16 = 2580;
const PDS: u16 = 3;
const MIRROR: &str = "127.0.0.1:7070";
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Ends with the demo.
struct Started(&'static str, Child);

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.1.kill();
        let _ = self.1.wait();
    }
}

impl Started {
    fn is_running(&mut self) -> Result<(), Failure> {
        match self.1.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(Failure::check(format!(
                "{} has ended ({status}). Ports {PORT} to {} and {MIRROR} must be free",
                self.0,
                PORT + 6
            ))),
            Err(error) => Err(Failure::check(format!("{}: {error}", self.0))),
        }
    }
}

pub fn run(_arguments: &[String]) -> Result<(), Failure> {
    run_program(cargo().args([
        "build",
        "--release",
        "-p",
        "gapless",
        "-p",
        "gapless-testnet",
    ]))?;
    let data = target().join("demo-data");
    if data.exists() {
        std::fs::remove_dir_all(&data)
            .map_err(|error| Failure::check(format!("{}: {error}", data.display())))?;
    }
    let mut network = start("gapless-testnet", |command| {
        command.args(["--repos", "100", "--pds", &PDS.to_string(), "--rate", "5"]);
        command.args(["--wall-clock", "--port", &PORT.to_string()]);
    })?;
    std::thread::sleep(Duration::from_secs(1));
    network.is_running()?;
    let mut mirror = start("gapless", |command| {
        command.arg("run").arg("--data").arg(&data);
        command.args(["--bind", MIRROR, "--allow-private", "--sweep-every", "10s"]);
        command.args(["--plc", &format!("http://localhost:{PORT}")]);
        for pds in 0..PDS {
            let url = format!("pds=http://localhost:{}", PORT + 2 + pds);
            command.args(["--upstream", &url]);
        }
    })?;
    println!(
        "An AT network with commits coming in, and a mirror of it on http://{MIRROR}. Ctrl-C ends both."
    );
    loop {
        std::thread::sleep(LOOK_EVERY);
        network.is_running()?;
        mirror.is_running()?;
        println!();
        // Its exit code says whether a person is needed; here it is for looking at.
        let _ = Command::new(program("gapless"))
            .args(["status", "--url", &format!("http://{MIRROR}")])
            .status();
    }
}

fn program(name: &str) -> PathBuf {
    target().join("release").join(name)
}

fn start(name: &'static str, arguments: impl FnOnce(&mut Command)) -> Result<Started, Failure> {
    let mut command = Command::new(program(name));
    arguments(&mut command);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    match command.spawn() {
        Ok(child) => Ok(Started(name, child)),
        Err(error) => Err(Failure::check(format!("cannot start {name}: {error}"))),
    }
}
