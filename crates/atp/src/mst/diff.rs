//! Compares two sets of keys by merging two sorted streams.

use std::cmp::Ordering;

use crate::cid::Cid;

/// One key that differs. Changes come in rising order of their keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change<K> {
    Create { key: K, cid: Cid },
    Update { key: K, cid: Cid, prev: Cid },
    Delete { key: K, prev: Cid },
}

/// Compares the held keys with the wanted ones. Both must be sorted by key, without
/// repeats. Only one pair of each is in memory at a time.
pub fn diff<K: Ord>(
    held: impl IntoIterator<Item = (K, Cid)>,
    wanted: impl IntoIterator<Item = (K, Cid)>,
) -> impl Iterator<Item = Change<K>> {
    let mut held = held.into_iter().peekable();
    let mut wanted = wanted.into_iter().peekable();
    std::iter::from_fn(move || {
        loop {
            let order = match (held.peek(), wanted.peek()) {
                (None, None) => return None,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some((a, _)), Some((b, _))) => a.cmp(b),
            };
            match order {
                Ordering::Less => {
                    let (key, prev) = held.next()?;
                    return Some(Change::Delete { key, prev });
                }
                Ordering::Greater => {
                    let (key, cid) = wanted.next()?;
                    return Some(Change::Create { key, cid });
                }
                Ordering::Equal => {
                    let (_, prev) = held.next()?;
                    let (key, cid) = wanted.next()?;
                    if cid != prev {
                        return Some(Change::Update { key, cid, prev });
                    }
                }
            }
        }
    })
}
