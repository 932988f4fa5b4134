//! Decides the generation of the configured filter (R15): the generation that was in force
//! before, or a new one, under which repositories are fetched again.

use std::sync::Arc;

use gapless_core::filter::Pattern;
use gapless_core::ledger::{FilterGen, Time};
use gapless_store::Store;
use gapless_store::change::{Change, WishChange};
use gapless_store::error::StoreError;
use gapless_store::table::meta::Counters;
use gapless_store::table::wish::FilterRow;

use crate::settings::{KeepKeys, MirrorSettings};
use crate::store_io::write;

/// Returns the generation of the configured filter, and writes it to the store before
/// anything is fetched under it.
pub(crate) async fn filter_in_force(
    settings: &MirrorSettings,
    store: &Arc<Store>,
    now: Time,
) -> Result<FilterGen, StoreError> {
    let view = store.view();
    let old = view.filter()?;
    let empty = view.counters()? == Counters::default();
    drop(view);
    let now = u32::try_from(now.0 / 1_000_000).unwrap_or(u32::MAX);
    let wanted_keys_only = settings.keep_keys == KeepKeys::Wanted;
    let filter = FilterRow {
        generation: generation(
            old.as_ref(),
            &settings.collections,
            wanted_keys_only,
            empty,
            now,
        ),
        patterns: settings
            .collections
            .iter()
            .map(ToString::to_string)
            .collect(),
        wanted_keys_only,
    };
    let generation = filter.generation;
    if old.as_ref() != Some(&filter) {
        let change = Change {
            wish: Some(WishChange::Filter(filter)),
            ..Change::default()
        };
        write(store, change).await?;
    }
    Ok(generation)
}

/// Returns the old generation or a new one. A filter that wants more than the old filter gets a new
/// generation. So does a filter that drops keys that were held, because their deletions would go
/// unnoticed. A store with data under an unknown filter gets a new generation, too.
fn generation(
    old: Option<&FilterRow>,
    wanted: &[Pattern],
    wanted_keys_only: bool,
    empty: bool,
    now: u32,
) -> FilterGen {
    let drops = wanted_keys_only && !wanted.is_empty();
    let Some(old) = old else {
        return if empty {
            FilterGen(u32::from(drops))
        } else {
            FilterGen(0).next(now, drops)
        };
    };
    let was: Option<Vec<Pattern>> = old.patterns.iter().map(|one| Pattern::parse(one)).collect();
    let same = was.is_some_and(|was| {
        let dropped = old.wanted_keys_only && !was.is_empty();
        let less = drops && wider(wanted, &was);
        dropped == drops && !less && !wider(&was, wanted)
    });
    if same && old.generation.holds_all_keys() != drops {
        old.generation
    } else {
        old.generation.next(now, drops)
    }
}

/// Whether the filter `now` wants something that the filter `was` did not.
fn wider(was: &[Pattern], now: &[Pattern]) -> bool {
    match (was.is_empty(), now.is_empty()) {
        (true, _) => false,
        (false, true) => true,
        (false, false) => !now.iter().all(|new| {
            was.iter().any(|old| match (old, new) {
                (Pattern::Exactly(old), Pattern::Exactly(new)) => old == new,
                (Pattern::Below(old), Pattern::Exactly(new) | Pattern::Below(new)) => {
                    new.starts_with(old.as_str())
                }
                (Pattern::Exactly(_), Pattern::Below(_)) => false,
            })
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u32 = 1_000_000_000;

    fn patterns(text: &[&str]) -> Vec<Pattern> {
        text.iter()
            .map(|one| Pattern::parse(one).unwrap())
            .collect()
    }

    fn filter(generation: u32, text: &[&str], wanted_keys_only: bool) -> FilterRow {
        FilterRow {
            generation: FilterGen(generation),
            patterns: text.iter().map(|one| (*one).to_owned()).collect(),
            wanted_keys_only,
        }
    }

    #[test]
    fn wider_is_what_wants_something_new() {
        let posts = patterns(&["app.bsky.feed.post"]);
        let feed = patterns(&["app.bsky.feed.*"]);
        assert!(!wider(&[], &posts), "from all to some");
        assert!(wider(&posts, &[]), "from some to all");
        assert!(wider(&posts, &feed));
        assert!(!wider(&feed, &posts));
        assert!(!wider(&posts, &posts));
        assert!(wider(&posts, &patterns(&["app.bsky.feed.like"])));
    }

    #[test]
    fn a_generation_is_kept_only_while_what_is_held_is_what_is_wanted() {
        const POST: &str = "app.bsky.feed.post";
        const FEED: &str = "app.bsky.feed.*";
        let new = |old: &FilterRow, wanted: &[&str], keys| {
            let next = generation(Some(old), &patterns(wanted), keys, false, NOW);
            assert_eq!(next.holds_all_keys(), !keys || wanted.is_empty());
            assert!(next >= old.generation);
            next != old.generation
        };
        let all = filter(NOW + 4, &[], false);
        assert!(!new(&all, &[], false) && !new(&all, &[], true));
        assert!(!new(&all, &[FEED], false), "all keys are held still");
        assert!(new(&all, &[FEED], true), "keys are dropped");
        let feed = filter(8, &[FEED], false);
        assert!(new(&feed, &[], false) && new(&feed, &[FEED], true));
        assert!(!new(&feed, &[POST], false));
        let dropped = filter(9, &[FEED], true);
        assert!(!new(&dropped, &[FEED], true));
        assert!(new(&dropped, &[POST], true), "more is dropped");
        assert!(new(&dropped, &[FEED], false) && new(&dropped, &[], true));
    }

    #[test]
    fn repositories_held_under_an_unknown_filter_are_fetched_again() {
        let unknown = |empty| generation(None, &[], false, empty, NOW);
        assert_eq!(unknown(true), FilterGen(0));
        assert_eq!(unknown(false), FilterGen(NOW));
        assert_eq!(
            generation(None, &patterns(&["a.b.c"]), true, true, NOW),
            FilterGen(1)
        );
        let spoilt = filter(8, &["not a pattern"], false);
        assert!(generation(Some(&spoilt), &[], false, false, NOW) > FilterGen(8));
    }
}
