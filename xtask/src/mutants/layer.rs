//! A layer: the tests that must catch a mutant, and the outcome of a run of them.
//!
//! A layer is written as arguments of `cargo test`, so that a line of a list can be tried in a
//! terminal: one package, one test target of it, and optional test names that narrow it down. A
//! run that executes no test is not a pass but a fault of the list.

use std::fmt;
use std::process::ExitStatus;

const SHAPE: &str = "a test is `-p PACKAGE --lib` or `-p PACKAGE --test TARGET`, then the name \
                     of a test, or `--` and several";

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Layer {
    pub package: String,
    pub target: Target,
    /// Parts of test names; none stands for all tests of the target.
    pub filters: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Target {
    /// The unit tests of the package's library.
    Library,
    /// A file or folder of the package's `tests`.
    Named(String),
}

impl Layer {
    pub(crate) fn parse(arguments: &str) -> Result<Layer, String> {
        let mut words = arguments.split_whitespace();
        let mut word = || words.next().filter(|word| !word.is_empty());
        let package = match (word(), word()) {
            (Some("-p"), Some(package)) if !package.starts_with('-') => package.to_string(),
            _ => return Err(format!("`{arguments}`: {SHAPE}")),
        };
        let target = match word() {
            Some("--lib") => Target::Library,
            Some("--test") => match word() {
                Some(name) if !name.starts_with('-') => Target::Named(name.to_string()),
                _ => return Err(format!("`--test` wants a name: {SHAPE}")),
            },
            Some(other) => return Err(format!("`{other}`: {SHAPE}")),
            None => return Err(format!("`{arguments}` names no target: {SHAPE}")),
        };
        let rest: Vec<&str> = words.collect();
        let filters = match &rest[..] {
            [] => &[],
            ["--", filters @ ..] if !filters.is_empty() => filters,
            [one] => std::slice::from_ref(one),
            _ => return Err(format!("`{}`: {SHAPE}", rest.join(" "))),
        };
        if let Some(option) = filters.iter().find(|filter| filter.starts_with('-')) {
            return Err(format!("`{option}` is no name of a test: {SHAPE}"));
        }
        Ok(Layer {
            package,
            target,
            filters: filters.iter().map(|filter| filter.to_string()).collect(),
        })
    }
}

impl Layer {
    /// The arguments that select the test program, without names of tests.
    pub(crate) fn program(&self) -> String {
        match &self.target {
            Target::Library => format!("-p {} --lib", self.package),
            Target::Named(name) => format!("-p {} --test {name}", self.package),
        }
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.program())?;
        match &self.filters[..] {
            [] => Ok(()),
            [one] => write!(f, " {one}"),
            several => write!(f, " -- {}", several.join(" ")),
        }
    }
}

/// How a run of a layer's test program ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Passed,
    /// No test has a name that matches, so no test ran.
    RanNothing,
    /// Tests failed; has the names that the output gives.
    Failed(Vec<String>),
    /// The program ended by a signal or with a code that Rust's test harness does not use.
    Crashed(String),
    /// The program did not end before its deadline.
    Hung,
}

/// The exit code of Rust's test harness when tests failed.
const TESTS_FAILED: i32 = 101;

impl Outcome {
    /// Reads the outcome from the output and the exit status, which is `None` for a program that
    /// was stopped.
    pub(super) fn of(status: Option<ExitStatus>, output: &str) -> Outcome {
        let Some(status) = status else {
            return Outcome::Hung;
        };
        if status.success() {
            return match tests_run(output) {
                Some(0) => Outcome::RanNothing,
                _ => Outcome::Passed,
            };
        }
        let failed = failed_tests(output);
        if failed.is_empty() && status.code() != Some(TESTS_FAILED) {
            return Outcome::Crashed(status.to_string());
        }
        Outcome::Failed(failed)
    }
}

/// How many tests the program announced; `None` if it does not use Rust's test harness.
fn tests_run(output: &str) -> Option<u64> {
    output
        .lines()
        .filter_map(|line| {
            let count = line.strip_prefix("running ")?;
            let count = count
                .strip_suffix(" tests")
                .or_else(|| count.strip_suffix(" test"))?;
            count.parse::<u64>().ok()
        })
        .reduce(|a, b| a + b)
}

/// The names under the last `failures:`.
fn failed_tests(output: &str) -> Vec<String> {
    let Some((_, names)) = output.rsplit_once("\nfailures:\n") else {
        return Vec::new();
    };
    names
        .lines()
        .map_while(|line| line.strip_prefix("    "))
        .map(|name| name.trim().to_string())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    #[test]
    fn a_layer_reads_as_it_is_written() {
        for text in [
            "-p gapless-atp --lib",
            "-p gapless-atp --lib crypto::tests",
            "-p gapless-atp --test verify",
            "-p gapless-atp --test verify -- low_s high_s",
        ] {
            assert_eq!(Layer::parse(text).unwrap().to_string(), text);
        }
        let spaced = Layer::parse("-p a   --lib -- one").unwrap();
        assert_eq!(spaced.to_string(), "-p a --lib one");
    }

    #[test]
    fn other_arguments_are_refused() {
        for text in [
            "",
            "--lib",
            "-p",
            "-p --lib",
            "-p a",
            "-p a --tests",
            "-p a --test",
            "-p a --test --lib",
            "-p a --lib one two",
            "-p a --lib --",
            "-p a --lib -- --nocapture",
            "-p a --lib --nocapture",
            "a --lib",
        ] {
            assert!(Layer::parse(text).is_err(), "{text}");
        }
    }

    fn exited(code: i32) -> Option<ExitStatus> {
        Some(ExitStatus::from_raw(code << 8))
    }

    #[test]
    fn a_pass_needs_a_test() {
        let ran = |count: &str| format!("\nrunning {count}\n\ntest result: ok.\n");
        assert_eq!(Outcome::of(exited(0), &ran("1 test")), Outcome::Passed);
        assert_eq!(Outcome::of(exited(0), &ran("12 tests")), Outcome::Passed);
        assert_eq!(Outcome::of(exited(0), &ran("0 tests")), Outcome::RanNothing);
        assert_eq!(Outcome::of(exited(0), "own harness"), Outcome::Passed);
    }

    #[test]
    fn failed_tests_are_named() {
        let output = "running 3 tests\n\nfailures:\n\n---- a stdout ----\nboo\n\nfailures:\n    \
                      a::b\n    c - should panic\n\ntest result: FAILED. 1 passed\n";
        let names = vec!["a::b".to_string(), "c - should panic".to_string()];
        assert_eq!(Outcome::of(exited(101), output), Outcome::Failed(names));
        assert_eq!(Outcome::of(exited(101), ""), Outcome::Failed(Vec::new()));
    }

    #[test]
    fn a_signal_is_a_crash_and_no_end_is_a_hang() {
        let aborted = Some(ExitStatus::from_raw(6));
        assert!(matches!(Outcome::of(aborted, ""), Outcome::Crashed(_)));
        assert!(matches!(Outcome::of(exited(3), ""), Outcome::Crashed(_)));
        assert_eq!(Outcome::of(None, "running 1 test\n"), Outcome::Hung);
    }
}
