//! Prints figures: one line of JSON each, or a readable table.

/// The target for the ratio of a figure to its limit.
#[derive(Clone, Copy)]
pub(crate) enum Target {
    AtMost(f64),
    AtLeast(f64),
}

/// One measured figure and its limit.
pub(crate) struct Figure {
    pub name: String,
    pub figure: f64,
    pub limit: f64,
    pub unit: &'static str,
    /// What the limit is, in words.
    pub against: &'static str,
    pub target: Target,
}

/// Prints figures and counts missed targets.
pub(crate) struct Report {
    json: bool,
    quick: bool,
    missed: usize,
}

impl Report {
    pub(crate) fn new(json: bool, quick: bool) -> Report {
        Report {
            json,
            quick,
            missed: 0,
        }
    }

    /// Whether to run few rounds: enough to see that a bench works, too few to judge it.
    pub(crate) fn quick(&self) -> bool {
        self.quick
    }

    pub(crate) fn missed(&self) -> usize {
        self.missed
    }

    pub(crate) fn begin(&self, name: &str, about: &str) {
        if !self.json {
            println!("{name}: {about}");
        }
    }

    pub(crate) fn print(&mut self, figure: &Figure) {
        let ratio = figure.figure / figure.limit;
        let (good, wanted) = match figure.target {
            Target::AtMost(most) => (ratio <= most, format!("at most {most:.2}")),
            Target::AtLeast(least) => (ratio >= least, format!("at least {least:.2}")),
        };
        if !good && !self.quick {
            self.missed += 1;
        }
        let (name, unit) = (&figure.name, figure.unit);
        if self.json {
            println!(
                "{{\"bench\":\"{name}\",\"figure\":{:.4},\"unit\":\"{unit}\",\"limit\":{:.4},\"ratio\":{ratio:.4}}}",
                figure.figure, figure.limit,
            );
            return;
        }
        let verdict = match (self.quick, good) {
            (true, _) => "not judged",
            (false, true) => "ok",
            (false, false) => "MISSED",
        };
        println!(
            "  {name:<18} {:>12.2} {unit:<7} ratio {ratio:>6.3} to {:.2} {unit} ({}); wanted {wanted}: {verdict}",
            figure.figure, figure.limit, figure.against,
        );
    }
}
