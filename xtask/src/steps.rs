//! Runs steps one after the other, each with a budget of seconds.
//!
//! The first failure ends the run, and its exit code is passed on. A step that takes
//! longer than its budget is named in its own line and in the table at the end; it does
//! not fail, because machines differ.

use crate::process::Failure;
use std::time::Instant;

pub(crate) struct Step {
    pub name: &'static str,
    pub budget_s: u32,
    pub run: fn() -> Result<(), Failure>,
}

/// Runs the steps, prints the seconds of each as it ends, and a table at the end.
pub(crate) fn run(what: &str, steps: &[Step]) -> Result<(), Failure> {
    let (table, result) = run_steps(what, steps);
    println!("\n{table}");
    result
}

/// Runs the steps and returns the table beside the result.
pub(crate) fn run_steps(what: &str, steps: &[Step]) -> (String, Result<(), Failure>) {
    let mut rows: Vec<String> = Vec::new();
    let mut total_s = 0.0;
    let mut failure = None;
    for step in steps {
        let name = step.name;
        if failure.is_some() {
            rows.push(row(name, "not run"));
            continue;
        }
        println!("\n== {name}");
        let start = Instant::now();
        let result = (step.run)();
        let seconds = start.elapsed().as_secs_f64();
        total_s += seconds;
        println!("{}", line(name, seconds, step.budget_s, result.is_ok()));
        rows.push(row(name, &measured(seconds, step.budget_s, result.is_ok())));
        if let Err(why) = result {
            failure = Some(Failure {
                code: why.code,
                message: format!("{what} stopped at `{name}`: {}", why.message),
            });
        }
    }
    rows.push(row("all", &measured(total_s, budget_s(steps), true)));
    (rows.join("\n"), failure.map_or(Ok(()), Err))
}

/// The budget of all steps together.
pub(crate) fn budget_s(steps: &[Step]) -> u32 {
    steps.iter().map(|step| step.budget_s).sum()
}

/// The line that is printed when a step ends.
fn line(name: &str, seconds: f64, budget_s: u32, ok: bool) -> String {
    if !ok {
        return format!("== {name}: FAILED after {seconds:.1} s");
    }
    match over_budget(seconds, budget_s) {
        Some(over) => format!("== {name}: ok, {seconds:.1} s, {over}"),
        None => format!("== {name}: ok, {seconds:.1} s of {budget_s} s"),
    }
}

fn row(name: &str, result: &str) -> String {
    format!("{name:<22} {result}")
}

/// The seconds of a row beside their budget.
fn measured(seconds: f64, budget_s: u32, ok: bool) -> String {
    let figures = format!("{seconds:>7.1} s of {budget_s:>5} s");
    if !ok {
        return format!("{figures}  FAILED");
    }
    match over_budget(seconds, budget_s) {
        Some(over) => format!("{figures}  {over}"),
        None => figures,
    }
}

fn over_budget(seconds: f64, budget_s: u32) -> Option<String> {
    let over_s = seconds - f64::from(budget_s);
    (over_s > 0.0).then(|| format!("OVER BUDGET by {over_s:.1} s"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn step(name: &'static str, run: fn() -> Result<(), Failure>) -> Step {
        Step {
            name,
            budget_s: 10,
            run,
        }
    }

    #[test]
    fn all_steps_good_is_good() {
        let steps = [step("one", || Ok(())), step("two", || Ok(()))];
        let (table, result) = run_steps("check", &steps);
        assert!(result.is_ok());
        assert_eq!(table.lines().count(), 3);
        assert!(table.ends_with("of    20 s"), "{table}");
    }

    #[test]
    fn a_step_over_its_budget_is_named_but_does_not_fail() {
        assert_eq!(
            line("test", 734.21, 720, true),
            "== test: ok, 734.2 s, OVER BUDGET by 14.2 s"
        );
        assert_eq!(
            line("test", 719.9, 720, true),
            "== test: ok, 719.9 s of 720 s"
        );
        assert_eq!(
            line("test", 734.2, 720, false),
            "== test: FAILED after 734.2 s"
        );
        assert_eq!(
            row("test", &measured(734.21, 720, true)),
            "test                     734.2 s of   720 s  OVER BUDGET by 14.2 s"
        );
        let late = Step {
            name: "late",
            budget_s: 0,
            run: || Ok(()),
        };
        let (table, result) = run_steps("ci", &[late]);
        assert!(result.is_ok());
        assert_eq!(table.matches("OVER BUDGET").count(), 2, "{table}");
    }
}
