//! Every key there is, in the order in which it is shown; how a variable is
//! called; and which key somebody may have meant.

/// All keys. A dot stands between table and key.
pub const KEYS: [&str; 44] = [
    "data",
    "bind",
    "plc",
    "plc_requests_per_second",
    "contact",
    "ca_file",
    "collections",
    "keep_keys",
    "dids",
    "sweep_every",
    "confirm_every",
    "live_grace",
    "purge_grace",
    "keep_versions",
    "on_rollback",
    "allow_private",
    "token",
    "log",
    "min_free_disk",
    "fetch.concurrency",
    "fetch.per_host",
    "fetch.requests_per_second",
    "fetch.max_repo_bytes",
    "fetch.temp",
    "limits.workers",
    "ready.max_upstream_age",
    "ready.max_debt_age",
    "ready.max_sweep_age",
    "serve.window",
    "serve.window_bytes",
    "serve.open",
    "serve.handle_resolver",
    "serve.dns",
    "serve.consumers",
    "serve.stall",
    "discover.network",
    "discover.follow",
    "discover.every",
    "discover.max_streams",
    "discover.collections",
    "discover.collection_source",
    "upstream.kind",
    "upstream.url",
    "upstream.host",
];

/// Keys inside an entry of `[[upstream]]`; elsewhere `upstream` is one value.
const OF_UPSTREAM: &str = "upstream.";

/// The keys that one layer can say, `upstream` as one of them.
pub fn plain() -> impl Iterator<Item = &'static str> {
    KEYS.into_iter()
        .filter(|key| !key.starts_with(OF_UPSTREAM))
        .chain(["upstream"])
}

/// The key as the table has it.
pub fn known(key: &str) -> Option<&'static str> {
    plain().find(|known| *known == key)
}

/// The environment variable of a key.
pub fn variable(key: &str) -> String {
    format!("GAPLESS_{}", key.to_uppercase().replace('.', "_"))
}

/// The key that somebody meant, if one is near enough.
pub fn nearest(key: &str) -> Option<String> {
    let last = |name: &str| name.rsplit('.').next().unwrap_or(name).to_owned();
    let table = key.rsplit_once('.').map(|(table, _)| table);
    let candidates = KEYS.into_iter().chain(["upstream"]);
    let near = |far: usize, name: &str| Some(far).filter(|far| *far <= 1 + name.len() / 5);
    candidates
        .filter_map(|known| {
            let whole = near(distance(key, known), known);
            // A right key in the wrong table is as near as a slip of the pen.
            let same_table = known.rsplit_once('.').map(|(table, _)| table) == table;
            let moved = near(distance(&last(key), &last(known)), &last(known))
                .map(|far| far + usize::from(!same_table));
            let far = whole.into_iter().chain(moved).min()?;
            Some((far, known))
        })
        .min_by_key(|(far, _)| *far)
        .map(|(_, known)| known.to_owned())
}

/// Longer names are near to nothing; the work on a name has a bound.
const LONGEST: usize = 64;

/// How many letters must be changed, added or left out.
fn distance(one: &str, other: &str) -> usize {
    let one: Vec<char> = one.chars().take(LONGEST).collect();
    let other: Vec<char> = other.chars().take(LONGEST).collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (line, letter) in one.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = line + 1;
        for (column, against) in other.iter().enumerate() {
            let kept = diagonal + usize::from(letter != against);
            diagonal = row[column + 1];
            row[column + 1] = kept.min(row[column] + 1).min(diagonal + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_pen_is_recognised() {
        assert_eq!(nearest("swep_every").as_deref(), Some("sweep_every"));
        assert_eq!(nearest("per_host").as_deref(), Some("fetch.per_host"));
        assert_eq!(nearest("fetch.pre_host").as_deref(), Some("fetch.per_host"));
        assert_eq!(nearest("upstreams").as_deref(), Some("upstream"));
        assert_eq!(nearest("flux_capacitor"), None);
    }

    #[test]
    fn a_variable_is_the_key_in_capitals() {
        assert_eq!(variable("fetch.per_host"), "GAPLESS_FETCH_PER_HOST");
    }
}
