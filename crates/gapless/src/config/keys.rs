//! All configuration keys in the order in which they are shown, the names of their
//! environment variables, and the suggestion for a misspelt key.

/// All keys. A dot separates table and key.
pub(crate) const KEYS: [&str; 46] = [
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
    "keep_log",
    "hold",
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

/// The prefix of keys inside an entry of `[[upstream]]`. Everywhere else `upstream` is
/// one value.
const UPSTREAM_PREFIX: &str = "upstream.";

/// The keys that a layer can set, with `upstream` as one key.
pub(crate) fn layer_keys() -> impl Iterator<Item = &'static str> {
    KEYS.into_iter()
        .filter(|key| !key.starts_with(UPSTREAM_PREFIX))
        .chain(["upstream"])
}

/// Finds the static name of a key.
pub(crate) fn find_key(key: &str) -> Option<&'static str> {
    layer_keys().find(|known| *known == key)
}

/// The name of a key's environment variable.
pub(crate) fn env_variable(key: &str) -> String {
    format!("GAPLESS_{}", key.to_uppercase().replace('.', "_"))
}

/// The key with the most similar name, if one is similar enough.
pub(crate) fn nearest_key(key: &str) -> Option<String> {
    let last = |name: &str| name.rsplit('.').next().unwrap_or(name).to_owned();
    let table = key.rsplit_once('.').map(|(table, _)| table);
    let candidates = KEYS.into_iter().chain(["upstream"]);
    let near = |far: usize, name: &str| Some(far).filter(|far| *far <= 1 + name.len() / 5);
    candidates
        .filter_map(|known| {
            let whole = near(edit_distance(key, known), known);
            // A known key in the wrong table counts as one typing error.
            let same_table = known.rsplit_once('.').map(|(table, _)| table) == table;
            let moved = near(edit_distance(&last(key), &last(known)), &last(known))
                .map(|far| far + usize::from(!same_table));
            let far = whole.into_iter().chain(moved).min()?;
            Some((far, known))
        })
        .min_by_key(|(far, _)| *far)
        .map(|(_, known)| known.to_owned())
}

/// Characters of a name that are compared; bounds the work for one name.
const MAX_NAME_CHARS: usize = 64;

/// The Levenshtein distance of two names.
fn edit_distance(one: &str, other: &str) -> usize {
    let one: Vec<char> = one.chars().take(MAX_NAME_CHARS).collect();
    let other: Vec<char> = other.chars().take(MAX_NAME_CHARS).collect();
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
        assert_eq!(nearest_key("swep_every").as_deref(), Some("sweep_every"));
        assert_eq!(nearest_key("per_host").as_deref(), Some("fetch.per_host"));
        assert_eq!(
            nearest_key("fetch.pre_host").as_deref(),
            Some("fetch.per_host")
        );
        assert_eq!(nearest_key("upstreams").as_deref(), Some("upstream"));
        assert_eq!(nearest_key("flux_capacitor"), None);
    }

    #[test]
    fn a_variable_is_the_key_in_capitals() {
        assert_eq!(env_variable("fetch.per_host"), "GAPLESS_FETCH_PER_HOST");
    }
}
