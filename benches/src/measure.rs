//! Measures the CPU time of this thread: figure and limit in turns, the best round of each.

use rustix::time::{ClockId, clock_gettime};

/// CPU seconds that this thread has taken.
pub(crate) fn cpu_time() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// The least CPU seconds that a round of each took, out of `rounds`. Disturbances only make
/// a round longer, so the least is the most accurate.
pub(crate) fn best_of(
    rounds: usize,
    mut figure: impl FnMut(),
    mut limit: impl FnMut(),
) -> (f64, f64) {
    let (mut best_figure, mut best_limit) = (f64::MAX, f64::MAX);
    for _ in 0..rounds {
        best_limit = best_limit.min(timed(&mut limit));
        best_figure = best_figure.min(timed(&mut figure));
    }
    (best_figure, best_limit)
}

fn timed(work: &mut impl FnMut()) -> f64 {
    let start = cpu_time();
    work();
    cpu_time() - start
}
