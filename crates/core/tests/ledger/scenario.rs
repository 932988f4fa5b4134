//! The scenario of the ledger's tests: two hosts with streams of their own, a relay, one
//! repository that lives on the first host, and a clock that tests move.

use std::time::Duration;

use gapless_atp::cid::Cid;
use gapless_atp::mst::empty_root;
use gapless_atp::syntax::{Did, Handle, Rev};
use gapless_core::ledger::cover::{self, Covers};
use gapless_core::ledger::event::{self, Context, Decision, Event, Origin, ParkedTotals};
use gapless_core::ledger::fetch::{self, CheckedHead, HeadAnswer, Next, Note};
use gapless_core::ledger::identity::{self, Document};
use gapless_core::ledger::rollback::BehindShare;
use gapless_core::ledger::*;

pub(crate) const PDS: UpstreamId = UpstreamId(1);
pub(crate) const OTHER: UpstreamId = UpstreamId(2);
pub(crate) const RELAY: UpstreamId = UpstreamId(3);
pub(crate) const HOST: HostId = HostId(1);
pub(crate) const OTHER_HOST: HostId = HostId(2);
pub(crate) const START: u64 = 1_700_000_000_000_000;

pub(crate) struct Scenario {
    pub covers: Covers,
    pub settings: Settings,
    pub ticks: Ticks,
    pub time: Time,
    pub repo: Repo,
    pub host: Host,
    pub share: BehindShare,
    pub notices: Vec<Notice>,
}

/// The n-th rev, some seconds after the n-1st, all well before the start.
pub(crate) fn rev(n: u64) -> Rev {
    Rev::from_micros(START - 3_600_000_000 + n * 1_000_000, 1)
}

pub(crate) fn cid(text: &str) -> Cid {
    Cid::dag_cbor(text.as_bytes())
}

/// The n-th commit of the repository.
pub(crate) fn head(n: u64) -> Head {
    Head {
        rev: rev(n),
        data: root(n),
        commit: cid(&format!("commit {n}")),
    }
}

pub(crate) fn root(n: u64) -> Cid {
    match n {
        0 => empty_root(),
        _ => cid(&format!("root {n}")),
    }
}

pub(crate) fn named(n: u64) -> NamedHead {
    NamedHead {
        rev: head(n).rev,
        commit: head(n).commit,
    }
}

pub(crate) fn snapshot(n: u64) -> CheckedHead {
    CheckedHead {
        head: head(n),
        key: SignerKey::Present,
    }
}

/// The n-th commit as an event that follows the one before.
pub(crate) fn commit(n: u64) -> Event {
    Event::Signed {
        head: head(n),
        before: PriorState::Root(root(n - 1)),
        bytes: 100,
    }
}

pub(crate) fn sync(n: u64) -> Event {
    Event::Signed {
        head: head(n),
        before: PriorState::Untold,
        bytes: 100,
    }
}

pub(crate) fn upstream(kind: UpstreamKind, host: Option<HostId>) -> Upstream {
    Upstream {
        url: String::from("wss://example.test"),
        kind,
        host,
        epoch: Epoch(1),
        first_cursor_since_reset: None,
        reset_at: Tick(0),
        numbering: 0,
        unread_at: None,
        followed: Default::default(),
    }
}

impl Scenario {
    /// All streams open, the repository known and active, nothing held, nothing
    /// owed.
    pub(crate) fn new() -> Scenario {
        let mut covers = Covers::new();
        covers.add(Tick(0), PDS, upstream(UpstreamKind::Pds, Some(HOST)));
        covers.add(
            Tick(0),
            OTHER,
            upstream(UpstreamKind::Pds, Some(OTHER_HOST)),
        );
        covers.add(Tick(0), RELAY, upstream(UpstreamKind::Relay, None));
        let mut repo = Repo::new(Did::parse("did:plc:ewvi7nxzyoun6zhxrhs64oiz").unwrap());
        repo.host = Some(HOST);
        repo.account = Account::Active;
        let mut scenario = Scenario {
            covers,
            settings: Settings::default(),
            ticks: Ticks::default(),
            time: Time(START),
            repo,
            host: Host::default(),
            share: BehindShare {
                repos: 1000,
                behind: 1,
            },
            notices: Vec::new(),
        };
        for id in [PDS, OTHER, RELAY] {
            scenario.connect(id, None);
            scenario.frame(id, 100, 0);
            scenario.settled(id, 100);
        }
        cover::update_cover(&mut scenario.repo, &scenario.covers);
        scenario
    }

    /// A scenario in which commit `n` is held, and complete.
    pub(crate) fn holding(n: u64) -> Scenario {
        let mut scenario = Scenario::new();
        scenario.fetched(n, n);
        assert!(scenario.complete(), "{:?}", scenario.reasons());
        scenario.notices.clear();
        scenario
    }

    pub(crate) fn now(&mut self) -> Now {
        self.time = self.time.after(Duration::from_millis(1));
        self.ticks.next(self.time, Lived(self.time.0))
    }

    pub(crate) fn pass(&mut self, span: Duration) {
        self.time = self.time.after(span);
    }

    pub(crate) fn connect(&mut self, id: UpstreamId, cursor: Option<Cursor>) -> Option<u64> {
        let now = self.now();
        let source = self.covers.get_mut(id).unwrap();
        let asked = source.stream.dial(cursor);
        source
            .stream
            .connected(now, &mut source.row, &mut self.notices);
        asked
    }

    pub(crate) fn frame(&mut self, id: UpstreamId, seq: u64, event: u8) -> stream::Placement {
        let now = self.now();
        let source = self.covers.get_mut(id).unwrap();
        source
            .stream
            .frame(now, &mut source.row, seq, [event; 16], &mut self.notices)
    }

    /// Everything up to a number is durable.
    pub(crate) fn settled(&mut self, id: UpstreamId, seq: u64) {
        let event = [0; 16];
        let stream = &mut self.covers.get_mut(id).unwrap().stream;
        stream.set_durable(Some(Cursor { seq, event }));
    }

    pub(crate) fn lost(&mut self, id: UpstreamId) {
        let now = self.now();
        self.covers.get_mut(id).unwrap().stream.connection_lost(now);
    }

    /// `#info OutdatedCursor` in mid-stream: a new epoch, open at once.
    pub(crate) fn reset(&mut self, id: UpstreamId) {
        let now = self.now();
        let source = self.covers.get_mut(id).unwrap();
        source
            .stream
            .cursor_outdated(now, &mut source.row, &mut self.notices);
    }

    pub(crate) fn row(&self, id: UpstreamId) -> &Upstream {
        &self.covers.get(id).unwrap().row
    }

    pub(crate) fn epoch(&self, id: UpstreamId) -> Epoch {
        self.row(id).epoch
    }

    /// An event read just now.
    pub(crate) fn event(&mut self, from: UpstreamId, event: &Event) -> Decision {
        let epoch = self.covers.open_epoch(from);
        self.event_read(from, epoch, event)
    }

    /// An event that was read under an epoch.
    pub(crate) fn event_read(
        &mut self,
        upstream: UpstreamId,
        epoch: Option<Epoch>,
        event: &Event,
    ) -> Decision {
        self.event_with(upstream, epoch, event, &ParkedTotals::default())
    }

    pub(crate) fn event_with(
        &mut self,
        upstream: UpstreamId,
        epoch: Option<Epoch>,
        event: &Event,
        totals: &ParkedTotals,
    ) -> Decision {
        let context = Context {
            now: self.now(),
            covers: &self.covers,
            settings: &self.settings,
        };
        let origin = Origin { upstream, epoch };
        event::decide(
            context,
            &mut self.repo,
            origin,
            event,
            totals,
            &mut self.notices,
        )
    }

    pub(crate) fn note(&mut self) -> Note {
        let context = Context {
            now: self.now(),
            covers: &self.covers,
            settings: &self.settings,
        };
        fetch::take_note(context, &mut self.repo).expect("it lives somewhere")
    }

    pub(crate) fn told(&mut self, note: &Note, told: HeadAnswer) -> Next {
        self.told_with(note, told, Some(self.share))
    }

    pub(crate) fn told_with(
        &mut self,
        note: &Note,
        told: HeadAnswer,
        share: Option<BehindShare>,
    ) -> Next {
        let context = Context {
            now: self.now(),
            covers: &self.covers,
            settings: &self.settings,
        };
        fetch::head_answered(
            context,
            &mut self.repo,
            note,
            told,
            &self.host,
            share,
            &mut self.notices,
        )
    }

    /// Considers a snapshot and, if it is taken, writes it.
    pub(crate) fn apply(&mut self, note: &Note, named_n: u64, n: u64) -> fetch::SnapshotDecision {
        let take = self.consider(note, n);
        if take == fetch::SnapshotDecision::Write {
            let now = self.now();
            fetch::finish_snapshot(now, &mut self.repo, note, &snapshot(n));
            self.settle(note, named_n, n);
        }
        take
    }

    pub(crate) fn consider(&mut self, note: &Note, n: u64) -> fetch::SnapshotDecision {
        let context = Context {
            now: self.now(),
            covers: &self.covers,
            settings: &self.settings,
        };
        fetch::judge_snapshot(
            context,
            &mut self.repo,
            note,
            &snapshot(n),
            &mut self.notices,
        )
    }

    pub(crate) fn settle(&mut self, note: &Note, named_n: u64, n: u64) {
        let context = Context {
            now: self.now(),
            covers: &self.covers,
            settings: &self.settings,
        };
        fetch::settle_snapshot(
            context,
            &mut self.repo,
            note,
            &named(named_n),
            &snapshot(n),
            &mut self.notices,
        );
    }

    /// The whole way: note, ask, fetch. The host names `named_n`, serves `n`.
    pub(crate) fn fetched(&mut self, named_n: u64, n: u64) {
        let note = self.note();
        let next = self.told(&note, HeadAnswer::Head(named(named_n)));
        assert_eq!(next, Next::Fetch(named(named_n)));
        self.apply(&note, named_n, n);
    }

    /// The host is asked, and names `n`.
    pub(crate) fn compared(&mut self, n: u64) -> Next {
        let note = self.note();
        self.told(&note, HeadAnswer::Head(named(n)))
    }

    pub(crate) fn resolved(&mut self, host: HostId, version: u64) {
        self.resolved_as(host, version, None);
    }

    /// The document names this host and this handle.
    pub(crate) fn resolved_as(&mut self, host: HostId, version: u64, handle: Option<Handle>) {
        let asked = self.now().tick;
        let now = self.now();
        let document = Document {
            key: None,
            handle,
            host: Some(host),
            version,
            tombstoned: false,
        };
        identity::resolved(
            now,
            &mut self.repo,
            &self.covers,
            asked,
            &document,
            &mut self.notices,
        );
    }

    pub(crate) fn with_context<T>(
        &mut self,
        decide: impl FnOnce(Context<'_>, &mut Repo) -> T,
    ) -> T {
        let context = Context {
            now: self.now(),
            covers: &self.covers,
            settings: &self.settings,
        };
        decide(context, &mut self.repo)
    }

    pub(crate) fn answer(&mut self) -> complete::Completeness {
        let host = self.host.clone();
        self.with_context(|context, repo| {
            let answer = complete::completeness(context, repo, Some(&host));
            let short = complete::is_complete(context, repo, Some(&host));
            assert_eq!(answer.complete(), short, "two answers to one question");
            answer
        })
    }

    pub(crate) fn complete(&mut self) -> bool {
        self.answer().complete()
    }

    pub(crate) fn reasons(&mut self) -> Vec<&'static str> {
        let reasons = self.answer().reasons;
        reasons.iter().map(|reason| reason.as_str()).collect()
    }

    pub(crate) fn head_is(&self, n: u64) -> bool {
        self.repo.head() == Some(&head(n))
    }

    pub(crate) fn owes_nothing(&self) -> bool {
        self.repo.debt.is_empty()
    }
}
