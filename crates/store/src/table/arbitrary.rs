//! Proptest strategies for the values in rows.

use gapless_atp::cid::Cid;
use gapless_atp::syntax::{Did, Handle, Rev};
use gapless_core::ledger::{
    Account, Behind, DocumentKeys, Epoch, FilterGen, Head, Hearsay, Held, HostId, KeyBytes, Lived,
    Marker, NamedHead, PastHead, Repo, RepoSweep, RootProof, SignerKey, SweepSource, Tick, Time,
    TokenBucket, UpstreamId,
};
use proptest::option::of;
use proptest::prelude::*;

pub(super) fn time() -> impl Strategy<Value = Time> {
    any::<u64>().prop_map(Time)
}

pub(super) fn tick() -> impl Strategy<Value = Tick> {
    any::<u64>().prop_map(Tick)
}

pub(super) fn rev() -> impl Strategy<Value = Rev> {
    any::<u64>().prop_map(Rev::from_bits)
}

pub(super) fn cid() -> impl Strategy<Value = Cid> {
    (
        prop_oneof![Just(0x71), Just(0x55), 0..0x80u8],
        any::<[u8; 32]>(),
    )
        .prop_map(|(codec, digest)| Cid::from_digest(codec, digest))
}

pub(super) fn named() -> impl Strategy<Value = NamedHead> {
    (rev(), cid()).prop_map(|(rev, commit)| NamedHead { rev, commit })
}

pub(super) fn head() -> impl Strategy<Value = Head> {
    (rev(), cid(), cid()).prop_map(|(rev, data, commit)| Head { rev, data, commit })
}

pub(super) fn did() -> impl Strategy<Value = Did> {
    prop_oneof![
        "did:plc:[a-z2-7]{24}",
        "did:web:[a-z][a-z0-9]{0,10}\\.example\\.org",
    ]
    .prop_map(|text| Did::parse(&text).expect("a legal DID"))
}

pub(super) fn host() -> impl Strategy<Value = HostId> {
    any::<u32>().prop_map(HostId)
}

pub(super) fn upstream() -> impl Strategy<Value = UpstreamId> {
    any::<u32>().prop_map(UpstreamId)
}

pub(super) fn account() -> impl Strategy<Value = Account> {
    prop::sample::select(vec![
        Account::Unknown,
        Account::Active,
        Account::Deactivated,
        Account::Suspended,
        Account::Takendown,
        Account::Deleted,
        Account::NotFound,
    ])
}

pub(super) fn path() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        "[a-z]{1,3}\\.[a-z]{1,3}\\.[a-zA-Z]{1,4}/[A-Za-z0-9._:~-]{1,5}"
            .prop_map(String::into_bytes),
        prop::collection::vec(any::<u8>(), 1..40),
    ]
}

fn held() -> impl Strategy<Value = Held> {
    prop_oneof![
        Just(Held::Nothing),
        head().prop_map(Held::Exactly),
        (head(), of(rev())).prop_map(|(target, from)| Held::Applying { target, from }),
        of(rev()).prop_map(|from| Held::Damaged { from }),
    ]
}

fn past() -> impl Strategy<Value = PastHead> {
    (rev(), any::<u64>()).prop_map(|(rev, tag)| PastHead { rev, tag })
}

fn swept() -> impl Strategy<Value = RepoSweep> {
    (tick(), time(), any::<bool>()).prop_map(|(tick, at, by_head)| RepoSweep {
        tick,
        at,
        by: if by_head {
            SweepSource::Head
        } else {
            SweepSource::Listing
        },
    })
}

fn behind() -> impl Strategy<Value = Behind> {
    (named(), time(), any::<u32>(), time()).prop_map(|(named, since, times, counted_at)| Behind {
        named,
        since,
        times,
        counted_at,
    })
}

/// A repository without debt, which has a table of its own.
pub(super) fn any_repo() -> impl Strategy<Value = Repo> {
    let place = (
        of(host()),
        tick(),
        any::<u64>(),
        account(),
        of(time()),
        held(),
    );
    let line = (
        [of(past()), of(past()), of(past())],
        any::<u32>(),
        [of(rev()), of(rev()), of(rev()), of(rev())],
    );
    let cover = (
        of(upstream()),
        of(upstream()),
        of((upstream(), any::<u64>())),
        tick(),
    );
    let evidence = (
        of(swept()),
        of(time()),
        of(any::<u64>()),
        of(behind()),
        of((rev(), time())),
    );
    let rest = (
        any::<u32>(),
        of(time()),
        any::<bool>(),
        any::<u32>(),
        time(),
        of(signing()),
        any::<bool>(),
        of((tick(), any::<bool>())),
        (
            of("[a-z]{1,9}\\.[a-z]{2,5}"),
            of(any::<u64>()),
            any::<bool>(),
        ),
    );
    (did(), place, line, cover, evidence, rest).prop_map(
        |(did, place, line, cover, evidence, rest)| {
            let mut repo = Repo::new(did);
            (
                repo.host,
                repo.host_since,
                repo.document,
                repo.account,
                repo.deleted_at,
                repo.held,
            ) = place;
            repo.trail = line.0;
            repo.lineage = line.1;
            [
                repo.abandoned,
                repo.last_indexed_rev,
                repo.last_firehose_rev,
                repo.first_rev_since_reset,
            ] = line.2;
            (repo.relay, repo.cover, repo.unset_at) = (cover.0, cover.1, cover.3);
            repo.marker = cover.2.map(|(cover, epoch)| Marker {
                cover,
                epoch: Epoch(epoch),
            });
            repo.swept = evidence.0;
            repo.confirmed_at = evidence.1;
            repo.stale_listing = evidence.2;
            repo.behind = evidence.3;
            repo.proven = evidence.4.map(|(rev, at)| RootProof { rev, at });
            repo.filter = FilterGen(rest.0);
            repo.fetched_at = rest.1;
            repo.key = if rest.2 {
                SignerKey::Previous
            } else {
                SignerKey::Present
            };
            repo.strangers = TokenBucket {
                used: rest.3,
                at: rest.4,
            };
            repo.signing = rest.5;
            repo.tracked = rest.6;
            repo.hearsay = rest.7.map(|(told, denied)| Hearsay { told, denied });
            let (handle, lived, purging) = rest.8;
            repo.handle = handle.map(|text| Handle::parse(&text).expect("a legal handle"));
            (repo.deleted_lived, repo.purging) = (lived.map(Lived), purging);
            repo
        },
    )
}

fn signing() -> impl Strategy<Value = DocumentKeys> {
    let key =
        || (any::<u8>(), any::<[u8; 33]>()).prop_map(|(curve, point)| KeyBytes { curve, point });
    (of(key()), of(key()), tick(), time()).prop_map(|(key, former, asked, at)| DocumentKeys {
        key,
        former,
        asked,
        at,
    })
}
