//! `cargo xtask`: the project's own commands, one file each.
//!
//! The program depends on nothing but the standard library, so it compiles in seconds on a fresh
//! clone. Exit codes: 0 for success, 1 for a failed check, 2 for wrong usage or a missing tool.
//! A command that only forwards to cargo exits with cargo's code.

mod bench;
mod check;
mod ci;
mod demo;
mod foreign;
mod fuzz;
mod licences;
mod mutants;
mod npm;
mod process;
mod realnet;
mod spdx;
mod steps;
mod test;
mod tidy;
mod walls;

use process::Failure;
use std::process::ExitCode;

struct Command {
    name: &'static str,
    arguments: &'static str,
    about: &'static str,
    run: fn(&[String]) -> Result<(), Failure>,
}

const COMMANDS: &[Command] = &[
    Command {
        name: "demo",
        arguments: "[--keep] [--json] [--repos N] [--data DIR]",
        about: "start a local AT network, mirror it, break it, and see it repaired",
        run: demo::run,
    },
    Command {
        name: "test",
        arguments: "[CARGO TEST ARGUMENTS]",
        about: "run every test of the workspace with all features",
        run: test::run,
    },
    Command {
        name: "bench",
        arguments: "[NAME] [--json] [--quick]",
        about: "run one bench, or all of them, in release mode; quick: dev build, not judged",
        run: bench::run,
    },
    Command {
        name: "check",
        arguments: "",
        about: "fmt, tidy and walls: the check before every commit",
        run: check::run,
    },
    Command {
        name: "tidy",
        arguments: "",
        about: "check headers, sizes, names, leftover marks, links, named tests and mutants",
        run: tidy::run,
    },
    Command {
        name: "walls",
        arguments: "",
        about: "check that no crate depends on what it must not",
        run: walls::run,
    },
    Command {
        name: "licences",
        arguments: "",
        about: "check licences, banned crates and sources of all dependencies",
        run: licences::run,
    },
    Command {
        name: "foreign",
        arguments: "",
        about: "check the test network with consumers from npm",
        run: foreign::run,
    },
    Command {
        name: "realnet",
        arguments: "",
        about: "mirror reference servers from npm; their libraries judge the mirror",
        run: realnet::run,
    },
    Command {
        name: "fuzz",
        arguments: "[TARGET] [--seconds 60]",
        about: "fuzz one decoder, or each in turn (nightly, cargo-fuzz)",
        run: fuzz::run,
    },
    Command {
        name: "mutants",
        arguments: mutants::ARGUMENTS,
        about: "take rules out of the code one by one; a test must notice",
        run: mutants::run,
    },
    Command {
        name: "ci",
        arguments: "",
        about: "the tests, then every check above but fuzz; stops at the first failure",
        run: ci::run,
    },
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args_os()
        .skip(1)
        .map(|argument| argument.to_string_lossy().into_owned())
        .collect();
    match dispatch(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{}", failure.message);
            ExitCode::from(failure.code)
        }
    }
}

fn dispatch(arguments: &[String]) -> Result<(), Failure> {
    let Some((name, rest)) = arguments.split_first() else {
        return Err(Failure::usage(usage()));
    };
    if is_help(name) || name == "help" {
        println!("{}", usage());
        return Ok(());
    }
    let Some(command) = COMMANDS.iter().find(|command| command.name == name) else {
        return Err(Failure::usage(format!(
            "no command `{name}`\n\n{}",
            usage()
        )));
    };
    if rest.first().is_some_and(|first| is_help(first)) {
        println!("{}", usage_of(command));
        return Ok(());
    }
    if command.arguments.is_empty()
        && let Some(unknown) = rest.first()
    {
        return Err(Failure::usage(format!(
            "unknown argument `{unknown}`\n{}",
            usage_of(command)
        )));
    }
    (command.run)(rest)
}

fn is_help(argument: &str) -> bool {
    argument == "--help" || argument == "-h"
}

fn usage() -> String {
    let mut text = String::from("usage: cargo xtask COMMAND [ARGUMENTS]\n\n");
    for command in COMMANDS {
        let call = format!("{} {}", command.name, command.arguments);
        text.push_str(&format!("  {:<30} {}\n", call, command.about));
    }
    text.push_str("\ncargo xtask COMMAND --help says the same for one command.");
    text
}

fn usage_of(command: &Command) -> String {
    format!(
        "usage: cargo xtask {} {}\n{}",
        command.name, command.arguments, command.about
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(arguments: &[&str]) -> Result<(), Failure> {
        let owned: Vec<String> = arguments.iter().map(|a| a.to_string()).collect();
        dispatch(&owned)
    }

    #[test]
    fn no_command_prints_usage_and_exits_2() {
        let failure = call(&[]).unwrap_err();
        assert_eq!(failure.code, 2);
        for command in COMMANDS {
            assert!(failure.message.contains(command.name), "{}", command.name);
        }
    }

    #[test]
    fn a_wrong_command_is_named_and_exits_2() {
        let failure = call(&["tset"]).unwrap_err();
        assert_eq!(failure.code, 2);
        assert!(failure.message.contains("`tset`"));
        assert!(failure.message.contains("usage:"));
    }

    #[test]
    fn a_command_without_arguments_refuses_some() {
        let failure = call(&["tidy", "--fix"]).unwrap_err();
        assert_eq!(failure.code, 2);
        assert!(failure.message.contains("`--fix`"));
    }

    #[test]
    fn help_is_no_failure() {
        assert!(call(&["--help"]).is_ok());
        for command in COMMANDS {
            assert!(call(&[command.name, "--help"]).is_ok(), "{}", command.name);
        }
    }
}
