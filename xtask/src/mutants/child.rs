//! Runs a child process that cannot outlive its run.
//!
//! The child runs in its own process group, together with a watch that reads from a pipe whose
//! other end xtask holds. When the pipe closes (the deadline has passed, the child has ended, or
//! xtask itself was stopped) the watch kills the whole group, so a mutant that hangs and its
//! children do not stay behind. At least the last megabyte of output and errors is kept.

use crate::process::{Failure, shown};
use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const OUTPUT_BYTES: usize = 1 << 20;
const POLL: Duration = Duration::from_millis(10);
/// How long to wait for the end of the output after the group has ended. Only a process that has
/// left the group can still hold the output open.
const OUTPUT_GRACE: Duration = Duration::from_secs(5);

/// The shell script of the watch. A shell gives background jobs an empty standard input, so the
/// watch reads the pipe as descriptor 3.
const WATCHED: &str = "exec 3<&0\n\
    { read -r _ <&3; kill -9 0; } >/dev/null 2>&1 &\n\
    exec \"$@\" </dev/null 3<&- 2>&1";

/// How a child ended.
pub(super) struct Ended {
    /// `None` if the child was stopped at the deadline.
    pub status: Option<ExitStatus>,
    pub output: String,
    pub seconds: f64,
}

impl Ended {
    pub(super) fn succeeded(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }
}

/// Creates a command for [`run`]. The caller may add arguments, a folder and environment
/// variables.
pub(super) fn watched(program: &OsStr) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", WATCHED, "sh"]).arg(program);
    command
}

/// Runs a [`watched`] command until it ends or the deadline has passed.
pub(super) fn run(command: &mut Command, deadline: Option<Duration>) -> Result<Ended, Failure> {
    let start = Instant::now();
    let mut child = command
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| Failure::usage(format!("`{}` could not be started: {e}", shown(command))))?;
    let leash = child.stdin.take();
    let output = child.stdout.take().map(Output::follow);
    let status = wait(&mut child, start, deadline)?;
    let seconds = start.elapsed().as_secs_f64();
    drop(leash);
    if status.is_none() {
        let _ = child.wait();
    }
    Ok(Ended {
        status,
        output: output.map_or(String::new(), Output::finish),
        seconds,
    })
}

fn wait(
    child: &mut Child,
    start: Instant,
    deadline: Option<Duration>,
) -> Result<Option<ExitStatus>, Failure> {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(Some(status)),
            Ok(None) if deadline.is_some_and(|deadline| start.elapsed() >= deadline) => {
                return Ok(None);
            }
            Ok(None) => std::thread::sleep(POLL),
            Err(e) => return Err(Failure::check(format!("a child was lost: {e}"))),
        }
    }
}

/// The output of a child, read by a thread so that the child never has to wait.
struct Output {
    kept: Arc<Mutex<Vec<u8>>>,
    end: Receiver<()>,
}

impl Output {
    fn follow(mut from: ChildStdout) -> Output {
        let kept = Arc::new(Mutex::new(Vec::new()));
        let (at_end, end) = sync_channel(1);
        let keep = Arc::clone(&kept);
        std::thread::spawn(move || {
            let mut piece = [0; 16 * 1024];
            while let Ok(count @ 1..) = from.read(&mut piece) {
                let Ok(mut kept) = keep.lock() else { return };
                kept.extend_from_slice(&piece[..count]);
                if kept.len() > 2 * OUTPUT_BYTES {
                    let excess = kept.len() - OUTPUT_BYTES;
                    kept.drain(..excess);
                }
            }
            let _ = at_end.send(());
        });
        Output { kept, end }
    }

    fn finish(self) -> String {
        let _ = self.end.recv_timeout(OUTPUT_GRACE);
        match self.kept.lock() {
            Ok(kept) => String::from_utf8_lossy(&kept).into_owned(),
            Err(_) => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = watched(OsStr::new("sh"));
        command.args(["-c", script]);
        command
    }

    /// Whether a process is there and not merely waiting to be buried.
    fn alive(pid: &str) -> bool {
        std::fs::read_to_string(format!("/proc/{pid}/stat"))
            .is_ok_and(|stat| !stat.contains(") Z "))
    }

    fn gone_soon(pid: &str) -> bool {
        let until = Instant::now() + Duration::from_secs(10);
        while alive(pid) && Instant::now() < until {
            std::thread::sleep(POLL);
        }
        !alive(pid)
    }

    #[test]
    fn output_errors_and_exit_code_arrive() {
        let ended = run(&mut shell("echo out; echo err >&2; exit 7"), None).unwrap();
        assert_eq!(ended.status.and_then(|status| status.code()), Some(7));
        assert_eq!(ended.output, "out\nerr\n");
        assert!(!ended.succeeded());
    }

    #[test]
    fn at_the_deadline_a_child_and_its_children_die() {
        let deadline = Some(Duration::from_millis(300));
        let ended = run(&mut shell("sleep 600 & echo $!; echo $$; wait"), deadline).unwrap();
        assert_eq!(ended.status, None);
        assert!(ended.seconds < 60.0);
        let pids: Vec<&str> = ended.output.lines().collect();
        assert_eq!(pids.len(), 2);
        for pid in pids {
            assert!(gone_soon(pid), "{pid}");
        }
    }

    #[test]
    fn what_a_child_leaves_behind_dies_with_it() {
        let ended = run(&mut shell("sleep 600 & echo $!"), None).unwrap();
        assert!(ended.succeeded());
        assert!(gone_soon(ended.output.trim()));
    }

    #[test]
    fn endless_output_is_cut_to_its_end() {
        let script = "head -c 5000000 /dev/zero | tr '\\0' x; echo; echo last";
        let ended = run(&mut shell(script), None).unwrap();
        assert!(ended.output.len() <= 2 * OUTPUT_BYTES);
        assert!(ended.output.ends_with("x\nlast\n"));
    }
}
