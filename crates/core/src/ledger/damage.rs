//! Handles damage to held data: the keys or bytes on the disk are not those of the state
//! that the row names.
//!
//! The repository stops being complete at once, its proof is withdrawn, and a fetch is
//! owed that no commit pays.

use super::debt;
use super::state::{DebtReason, Head, Held, Repo};
use super::time::Now;

/// Marks a repository as damaged: its held data is not that of `head`, which the row
/// names.
pub fn distrust(now: Now, repo: &mut Repo, head: &Head) {
    repo.held = Held::Damaged {
        from: Some(head.rev),
    };
    repo.proven = None;
    debt::owe_fetch(now, repo, DebtReason::StoreRepaired);
}

#[cfg(test)]
mod tests {
    use gapless_atp::cid::Cid;
    use gapless_atp::syntax::{Did, Rev};

    use super::super::{Lived, RootProof, Tick, Time};
    use super::*;

    #[test]
    fn damaged_data_is_neither_held_nor_proven_and_a_fetch_is_owed() {
        let did = Did::parse("did:plc:z72i7hdynmk6r22z27h6tvur").expect("a DID");
        let now = Now {
            time: Time(7),
            tick: Tick(3),
            lived: Lived::default(),
        };
        let head = Head {
            rev: Rev::from_micros(1_000_000, 1),
            data: Cid::dag_cbor(b"data"),
            commit: Cid::dag_cbor(b"commit"),
        };
        let mut repo = Repo::new(did);
        repo.held = Held::Exactly(head);
        repo.proven = Some(RootProof {
            rev: head.rev,
            at: Time(1),
        });
        distrust(now, &mut repo, &head);
        assert_eq!(repo.head(), None);
        assert_eq!(
            repo.held,
            Held::Damaged {
                from: Some(head.rev)
            }
        );
        assert_eq!(repo.proven, None);
        let owed = repo.debt.fetch.expect("a fetch is owed");
        assert_eq!((owed.at, owed.why), (now.tick, DebtReason::StoreRepaired));
        assert_eq!(repo.debt.named, None, "no commit pays it");
    }
}
