//! Tests the rows beside the records: names, debts, hosts, parked frames, claims, dead letters,
//! and what a purge leaves.

use gapless_atp::cid::Cid;
use gapless_atp::syntax::Rev;
use gapless_core::ledger::{
    Account, Debt, DebtItem, DebtReason, Host, HostId, NamedBy, Parked, PriorState, RepoId, Tick,
    Time, Upstream,
};
use gapless_store::change::{
    Change, ClaimEntry, DeadChange, EntryContent, HostChange, RepoChange, Subject, UpstreamChange,
};
use gapless_store::error::Contradiction;
use gapless_store::sync_writer::SyncWriter;
use gapless_store::table::claimed::Claim;
use gapless_store::table::dead::{DeadClass, DeadLetter, Resolution};
use gapless_store::table::log::{LogKind, SourceEvent};
use gapless_store::table::parked::ParkedFrame;

use crate::access::{log, refusal};
use crate::owner::{Owner, entry, new_upstream};
use crate::world::World;

pub(crate) fn names_get_one_number_each(world: &dyn World) {
    let mut book = world.book();
    let named = |name: &str| Change {
        host: Some(HostChange::Named(name.to_owned())),
        ..Change::default()
    };
    let a = book.write(named("a.example.org")).unwrap().host.unwrap();
    let group = vec![
        named("b.example.org"),
        named("b.example.org"),
        named("a.example.org"),
    ];
    let answers = book.write_group(group).unwrap();
    let ids: Vec<HostId> = answers
        .into_iter()
        .map(|ack| ack.unwrap().host.unwrap())
        .collect();
    assert_eq!(ids[0], ids[1]);
    assert_eq!(ids[2], a);
    assert_ne!(ids[0], a);
    let mut row = book.view().host(a).unwrap().unwrap();
    row.hiding_suspended = true;
    let change = HostChange::Row(a, row.clone());
    book.write(Change {
        host: Some(change),
        ..Change::default()
    })
    .unwrap();
    let renamed = Host {
        name: "c.example.org".to_owned(),
        ..row.clone()
    };
    let renamed = Change {
        host: Some(HostChange::Row(a, renamed)),
        ..Change::default()
    };
    assert_eq!(refusal(&mut book, renamed), Contradiction::Renamed);
    drop(book);
    let mut book = world.book();
    assert_eq!(book.view().host(a).unwrap(), Some(row));
    let repos: Vec<RepoId> = (0..3)
        .map(|number| {
            book.write(Owner::new(number).row_change())
                .unwrap()
                .repo
                .unwrap()
        })
        .collect();
    let again = book
        .write(Owner::new(1).row_change())
        .unwrap()
        .repo
        .unwrap();
    assert_eq!(again, repos[1]);
    assert!(repos[0] < repos[1] && repos[1] < repos[2]);
    let c = book.write(named("c.example.org")).unwrap().host.unwrap();
    assert!(c > ids[0], "never given twice, also after a new start");
}

pub(crate) fn a_host_goes_only_when_nothing_refers_to_it(world: &dyn World) {
    let mut book = world.book();
    let host = |change: HostChange| Change {
        host: Some(change),
        ..Change::default()
    };
    let row = Host {
        name: "typo.example.org".to_owned(),
        named: NamedBy::Operator,
        since: Some(Time(7)),
        ..Host::default()
    };
    let new = HostChange::New(row.clone());
    let id = book.write(host(new.clone())).unwrap().host.unwrap();
    assert_eq!(book.view().host(id).unwrap(), Some(row));
    // A repository is on that host.
    let mut alice = Owner::new(1);
    alice.row.host = Some(id);
    book.write(alice.row_change()).unwrap();
    let gone = host(HostChange::Gone(id));
    let in_use = Contradiction::HostInUse(id.0);
    assert_eq!(refusal(&mut book, gone.clone()), in_use);
    alice.row.host = None;
    book.write(alice.row_change()).unwrap();
    // An upstream speaks for it.
    let upstream = new_upstream(&mut book);
    let mut row = book.view().upstreams().unwrap()[&upstream].clone();
    row.host = Some(id);
    let speaks = |row: &Upstream| Some(UpstreamChange::Row(upstream, row.clone()));
    book.write(Change {
        upstream: speaks(&row),
        ..Change::default()
    })
    .unwrap();
    assert_eq!(refusal(&mut book, gone.clone()), in_use);
    // And leaves it by the same change.
    row.host = None;
    book.write(Change {
        upstream: speaks(&row),
        ..gone.clone()
    })
    .unwrap();
    assert_eq!(
        refusal(&mut book, gone),
        Contradiction::NoSuchHost(id.0),
        "only once"
    );
    drop(book);
    let mut book = world.book();
    assert_eq!(book.view().host(id).unwrap(), None);
    assert_eq!(book.view().host_id("typo.example.org").unwrap(), None);
    let again = book.write(host(new)).unwrap().host.unwrap();
    assert!(again > id, "its number is not given again");
}

pub(crate) fn debts_and_hosts_follow_the_row(world: &dyn World) {
    let mut book = world.book();
    let mut hosts = Vec::new();
    for name in ["a.example.org", "b.example.org"] {
        let change = Change {
            host: Some(HostChange::Named(name.to_owned())),
            ..Change::default()
        };
        hosts.push(book.write(change).unwrap().host.unwrap());
    }
    let mut alice = Owner::new(1);
    alice.row.host = Some(hosts[0]);
    alice.row.debt = Debt {
        fetch: Some(DebtItem {
            at: Tick(3),
            why: DebtReason::FirstSighting,
        }),
        next_try: Time(50),
        ..Debt::default()
    };
    let id = book.write(alice.row_change()).unwrap().repo.unwrap();
    let hosted = |book: &SyncWriter, host| -> Vec<RepoId> {
        book.view().hosted(host).map(|repo| repo.unwrap()).collect()
    };
    assert_eq!(hosted(&book, hosts[0]), [id]);
    assert_eq!(book.view().repo(id).unwrap().unwrap(), alice.row);
    assert_eq!(book.view().debts_due(Time(49)).unwrap(), []);
    assert_eq!(
        book.view().debts_due(Time(50)).unwrap(),
        [(id, alice.row.debt)]
    );
    alice.row.host = Some(hosts[1]);
    alice.row.debt = Debt::default();
    book.write(alice.row_change()).unwrap();
    assert_eq!(hosted(&book, hosts[0]), []);
    assert_eq!(hosted(&book, hosts[1]), [id]);
    assert_eq!(book.view().debts().count(), 0);
    assert_eq!(book.view().repo(id).unwrap().unwrap(), alice.row);
}

pub(crate) fn parked_frames_come_and_go(world: &dyn World) {
    let mut book = world.book();
    let upstream = new_upstream(&mut book);
    let mut alice = Owner::new(1);
    let mut park = Vec::new();
    for _ in 0..3 {
        let head = alice.sign();
        park.push(ParkedFrame {
            parked: Parked {
                head,
                before: PriorState::Untold,
                origin: None,
                bytes: 5,
            },
            upstream,
            epoch: None,
            frame: format!("frame {}", alice.rev).into_bytes(),
        });
    }
    let parking = RepoChange {
        park,
        ..RepoChange::row(alice.subject(), alice.row.clone())
    };
    let id = book
        .write(Change {
            repo: Some(parking),
            ..Change::default()
        })
        .unwrap();
    let id = id.repo.unwrap();
    let revs = |book: &SyncWriter| -> Vec<u64> {
        book.view()
            .parked(id)
            .unwrap()
            .keys()
            .map(|rev| rev.to_bits())
            .collect()
    };
    assert_eq!(revs(&book), [1, 2, 3]);
    let frame = book
        .view()
        .parked_frame(id, Rev::from_bits(2))
        .unwrap()
        .unwrap();
    assert_eq!(frame.frame, b"frame 2");
    let unparking = RepoChange {
        subject: Subject::Id(id),
        row: None,
        entry: None,
        park: Vec::new(),
        unpark: vec![Rev::from_bits(1), Rev::from_bits(3)],
    };
    book.write(Change {
        repo: Some(unparking),
        ..Change::default()
    })
    .unwrap();
    assert_eq!(revs(&book), [2]);
}

pub(crate) fn dead_letters_are_kept(world: &dyn World) {
    let mut book = world.book();
    let upstream = new_upstream(&mut book);
    let mut letter = DeadLetter {
        class: DeadClass::Unreadable,
        source: Some(SourceEvent { upstream, seq: 4 }),
        repo: None,
        error: "no DID".to_owned(),
        payload: vec![1, 2, 3],
        attempts: 0,
        first_seen: Time(1),
        resolution: Resolution::Open,
    };
    let new = |letter: &DeadLetter| Change {
        dead: Some(DeadChange::New(letter.clone())),
        ..Change::default()
    };
    let first = book.write(new(&letter)).unwrap().dead.unwrap();
    let second = book.write(new(&letter)).unwrap().dead.unwrap();
    assert_ne!(first, second);
    letter.resolution = Resolution::Dropped;
    let resolved = |number| Change {
        dead: Some(DeadChange::Row(number, letter.clone())),
        ..Change::default()
    };
    book.write(resolved(second)).unwrap();
    assert_eq!(
        refusal(&mut book, resolved(99)),
        Contradiction::NoSuchDeadLetter(99)
    );
    let letters: Vec<Resolution> = book
        .view()
        .dead_letters()
        .map(|letter| letter.unwrap().1.resolution)
        .collect();
    assert_eq!(letters, [Resolution::Open, Resolution::Dropped]);
    // Its repository is first heard of by this row, and a purge must find the row again.
    let mut owner = Owner::new(1);
    let mut heard = owner.live(&[("app.a/1", Some("x"))]);
    heard.dead = new(&letter).dead;
    let ack = book.write(heard).unwrap();
    let last = book.view().dead_letters().next_back().unwrap().unwrap();
    assert_eq!((Some(last.0), last.1.repo), (ack.dead, ack.repo));
    assert!(ack.repo.is_some());
}

pub(crate) fn claims_go_when_a_proof_covers_them(world: &dyn World) {
    let mut book = world.book();
    let upstream = new_upstream(&mut book);
    let mut alice = Owner::new(1);
    let claim = |rev: u64| Claim {
        upstream,
        rev: Rev::from_bits(rev),
        record: Some((Cid::dag_cbor(b"said"), b"said".to_vec())),
    };
    // It is owed to look whether it is so.
    alice.row.debt.compare = Some(DebtItem {
        at: Tick(3),
        why: DebtReason::Claimed,
    });
    let claimed = |alice: &Owner, path: &str, rev| {
        alice.entry_change(EntryContent::Claim(ClaimEntry {
            path: path.as_bytes().to_vec(),
            claim: claim(rev),
            give_way: Vec::new(),
        }))
    };
    book.write(claimed(&alice, "a/1", 1)).unwrap();
    let ack = book.write(claimed(&alice, "a/2", 9)).unwrap();
    let id = ack.repo.unwrap();
    assert_eq!(ack.numbers, Some(2..3));
    let kind = LogKind::Claimed(Some(Rev::from_bits(1)));
    assert_eq!(log(&book)[0].1.kind, kind);
    let empty = gapless_atp::mst::empty_root();
    assert_eq!(book.view().root(id).unwrap(), empty, "never part of a root");
    let paths = |book: &SyncWriter| -> Vec<Vec<u8>> {
        book.view()
            .claims(id)
            .map(|claim| claim.unwrap().0)
            .collect()
    };
    assert_eq!(paths(&book).len(), 2);
    book.write(alice.live(&[("a/7", Some("x"))])).unwrap();
    assert_eq!(
        paths(&book),
        [b"a/2"],
        "the state at rev 1 says what is true of a/1"
    );
    alice.rev = 8;
    book.write(alice.live(&[])).unwrap();
    assert_eq!(paths(&book).len(), 0);
    // Above all that is signed: it stays while it is owed to look, and no longer.
    book.write(claimed(&alice, "a/3", 99)).unwrap();
    alice.row.debt.next_try = Time(50);
    book.write(alice.row_change()).unwrap();
    assert_eq!(paths(&book), [b"a/3"]);
    alice.row.debt = Debt::default();
    book.write(alice.row_change()).unwrap();
    assert_eq!(paths(&book).len(), 0, "the host has answered");
}

pub(crate) fn what_is_shown_again_is_said_to_be_where_it_is(world: &dyn World) {
    let mut book = world.book();
    let mut alice = Owner::new(1);
    let held = book.write(alice.live(&[("app.a/1", Some("x"))])).unwrap();
    let id = held.repo.unwrap();
    let block = book.view().signed_commit(id).unwrap();
    let shown = |alice: &Owner| Change {
        repo: Some(RepoChange {
            entry: Some(entry(EntryContent::Shown)),
            ..RepoChange::row(alice.subject(), alice.row.clone())
        }),
        ..Change::default()
    };
    alice.row.account = Account::Active;
    let next = book.head().next_seq;
    let ack = book.write(shown(&alice)).unwrap();
    assert_eq!(ack.numbers, Some(next..next + 2));
    let rows = log(&book);
    let [.., (first, account), (second, place)] = &rows[..] else {
        panic!("two rows: {rows:?}");
    };
    assert_eq!((*first, *second), (next, next + 1));
    assert_eq!(account.kind, LogKind::Account(Account::Active));
    assert_eq!((place.kind, place.last), (LogKind::Repair, true));
    assert_eq!((place.repo, place.ops.len()), (Some(id), 0));
    let head = *alice.row.head().unwrap();
    assert_eq!(place.commit, Some((head.rev, head.commit)));
    let view = book.view();
    assert_eq!(view.signed_commit(id).unwrap(), block, "its commit stays");
    assert_eq!(view.repo(id).unwrap().unwrap(), alice.row);
    // A repository that is not held has no head to report.
    let bob = Owner::new(2);
    assert_eq!(refusal(&mut book, shown(&bob)), Contradiction::NotExact);
}
