//! Runs other programs, and defines how a command fails.
//!
//! Children inherit the terminal unless their output is read. The exit code of a child that
//! fails is passed on; a child killed by a signal counts as 1.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

/// Why a command ended: the text for a person and the exit code.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub code: u8,
    pub message: String,
}

impl Failure {
    /// A check that did not hold.
    pub(crate) fn check(message: impl Into<String>) -> Self {
        Failure {
            code: 1,
            message: message.into(),
        }
    }

    /// Wrong arguments, or a missing tool.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Failure {
            code: 2,
            message: message.into(),
        }
    }
}

/// The root of the workspace, determined at run time, so that a build folder may be moved to
/// another clone.
pub(crate) fn root() -> PathBuf {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    match manifest.as_deref().and_then(Path::parent) {
        Some(parent) => parent.to_path_buf(),
        None => PathBuf::from("."),
    }
}

/// The target folder of cargo.
pub(crate) fn target() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(folder) => root().join(folder),
        None => root().join("target"),
    }
}

/// The cargo that started xtask, at the root of the workspace.
pub(crate) fn cargo() -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.current_dir(root());
    command
}

/// A program other than cargo, at the root of the workspace.
pub(crate) fn program(name: &str) -> Command {
    let mut command = Command::new(name);
    command.current_dir(root());
    command
}

/// Prints a command and runs it on the terminal of xtask. Fails with the command's exit code.
pub(crate) fn run(command: &mut Command) -> Result<(), Failure> {
    let line = shown(command);
    eprintln!("$ {line}");
    let status = command.status().map_err(|e| not_started(&line, &e))?;
    succeeded(&line, status)
}

/// Runs a command silently and returns its standard output.
pub(crate) fn output_of(command: &mut Command) -> Result<String, Failure> {
    let line = shown(command);
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|e| not_started(&line, &e))?;
    succeeded(&line, output.status)?;
    String::from_utf8(output.stdout)
        .map_err(|_| Failure::check(format!("`{line}` wrote something that is not UTF-8")))
}

/// Every file that git tracks or would track, a zero byte after each path.
pub(crate) fn project_listing() -> Result<String, Failure> {
    output_of(program("git").args([
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ]))
}

/// Whether the program starts and succeeds. Its output is discarded.
pub(crate) fn works(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Turns the exit status of a child into the result of a command.
pub(crate) fn succeeded(line: &str, status: ExitStatus) -> Result<(), Failure> {
    if status.success() {
        return Ok(());
    }
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Err(Failure {
        code: code.unwrap_or(1),
        message: format!("`{line}` failed ({status})"),
    })
}

/// The command as a person would type it.
pub(crate) fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let mut words = vec![
        program
            .file_name()
            .unwrap_or(program.as_os_str())
            .to_string_lossy()
            .into_owned(),
    ];
    words.extend(
        command
            .get_args()
            .map(|argument| argument.to_string_lossy().into_owned()),
    );
    words.join(" ")
}

fn not_started(line: &str, error: &std::io::Error) -> Failure {
    Failure::usage(format!("`{line}` could not be started: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_childs_exit_code_becomes_ours() {
        let failure = run(program("sh").args(["-c", "exit 7"])).unwrap_err();
        assert_eq!(failure.code, 7);
        assert!(failure.message.contains("sh -c exit 7"));
    }

    #[test]
    fn a_child_killed_by_a_signal_is_a_failure() {
        let failure = run(program("sh").args(["-c", "kill -9 $$"])).unwrap_err();
        assert_eq!(failure.code, 1);
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let failure = run(&mut program("no-such-program-here")).unwrap_err();
        assert_eq!(failure.code, 2);
        assert!(failure.message.contains("no-such-program-here"));
    }

    #[test]
    fn the_root_is_the_workspace() {
        assert!(root().join("Cargo.lock").exists());
    }
}
