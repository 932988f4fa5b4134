//! What the ledger knows: one row per upstream, per host and per repository.
//!
//! These are plain values. The store writes them down as they are; the rules
//! beside this file change them. Fields that the seed document names keep its
//! names.

use gapless_atp::cid::Cid;
use gapless_atp::syntax::{Did, Rev};

use super::time::{Tick, Time};

/// A repository, as a short number that is never given twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RepoId(pub u64);

/// A host that DID documents name, as a short number that is never given twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub u32);

/// A source of events, as a short number that is never given twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UpstreamId(pub u32);

/// A stretch of an upstream's stream in which nothing is missing. A new one is
/// `max(old + 1, now in µs)`, so that no number comes twice even after our own
/// disk was restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Epoch(pub u64);

/// A generation of the filter that says which collections are kept. Another filter
/// is another generation, and no number comes twice. Under an odd one, keys that
/// are not wanted are dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct FilterGen(pub u32);

impl FilterGen {
    /// Whether all keys are held of what was fetched under it: without them no root
    /// can be recomputed.
    pub fn holds_all_keys(self) -> bool {
        self.0.is_multiple_of(2)
    }

    /// The next one, at this time in seconds.
    pub fn next(self, seconds: u32, drops_keys: bool) -> FilterGen {
        let above = self.0.saturating_add(1).max(seconds);
        match above % 2 == u32::from(drops_keys) {
            true => FilterGen(above),
            false => FilterGen(above.saturating_add(1)),
        }
    }
}

/// The protocol and the reach of an upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UpstreamKind {
    /// The stream of one host, with the repositories that live there.
    Pds,
    /// The merged streams of many hosts. A relay may leave events out.
    Relay,
    /// A stream of unsigned JSON. Its records are claims.
    Jetstream,
}

impl UpstreamKind {
    /// The name of the kind in the configuration, the API and the commands. A
    /// published name never changes.
    pub fn name(self) -> &'static str {
        match self {
            UpstreamKind::Pds => "pds",
            UpstreamKind::Relay => "relay",
            UpstreamKind::Jetstream => "jetstream",
        }
    }

    /// Parses what [`UpstreamKind::name`] returns; `None` for any other text.
    pub fn parse(name: &str) -> Option<UpstreamKind> {
        match name {
            "pds" => Some(UpstreamKind::Pds),
            "relay" => Some(UpstreamKind::Relay),
            "jetstream" => Some(UpstreamKind::Jetstream),
            _ => None,
        }
    }
}

/// Why an upstream is followed, or [`FollowReason::No`] if it is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum FollowReason {
    /// The upstream is not followed any more. Its row stays, so that its number and
    /// its epochs are never given to another upstream.
    #[default]
    No,
    /// The configuration names the upstream.
    Configured,
    /// An operator added the upstream to the running mirror.
    Added,
    /// The upstream is the host of repositories that are tracked by name, and only
    /// those repositories are read from it.
    ForTracked,
    /// Discovery found the host, and the whole network is mirrored.
    Discovered,
    /// The configuration names the upstream, and only tracked repositories are read
    /// from it.
    Narrowed,
}

impl FollowReason {
    /// Whether the events of all repositories of the upstream are read, tracked or
    /// not.
    pub fn reads_all(self) -> bool {
        !matches!(self, FollowReason::ForTracked | FollowReason::Narrowed)
    }

    /// Whether an operator asked for the upstream, as opposed to discovery or a tracked
    /// repository.
    pub fn is_by_operator(self) -> bool {
        !matches!(self, FollowReason::ForTracked | FollowReason::Discovered)
    }
}

/// A source of events, as it is remembered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upstream {
    pub url: String,
    pub kind: UpstreamKind,
    /// The host whose repositories the upstream speaks for; set only for
    /// [`UpstreamKind::Pds`].
    pub host: Option<HostId>,
    pub epoch: Epoch,
    /// The number of the first event of this epoch, once there was one.
    pub first_cursor_since_reset: Option<u64>,
    /// Raised whenever the cursor is cleared. What was read under an older
    /// numbering never writes the cursor again.
    pub numbering: u32,
    /// When the epoch began.
    pub reset_at: Tick,
    /// When a frame came of which not even the DID could be read: it may have
    /// been anybody's.
    pub unread_at: Option<Tick>,
    pub followed: FollowReason,
}

/// The last event of an upstream whose effects are durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor {
    pub seq: u64,
    /// The beginning of the hash of that event, to know it again by.
    pub event: [u8; 16],
}

/// A host that repositories live on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Host {
    /// Name or address, as DID documents give it.
    pub name: String,
    /// The last sweep that went through.
    pub swept: Option<HostSweep>,
    /// So many of its repositories vanished at once that nothing is hidden
    /// until an operator says so.
    pub hiding_suspended: bool,
    /// Who named it first, and when; none: that was not written down yet.
    pub named: NamedBy,
    pub since: Option<Time>,
    /// It has answered since, to anything.
    pub reached: bool,
}

/// Who made us remember a host.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum NamedBy {
    /// Nobody wrote it down.
    #[default]
    Unsaid,
    Operator,
    /// The document of a repository that is held, or that an operator tracks. It came
    /// from this host, or from one that documents of this one's repositories named;
    /// none: an operator named it, and it came from nowhere yet.
    Document(Option<HostId>),
    /// A relay, by its address: it lists the hosts that it knows.
    Relay(String),
    /// The document of a repository of which nothing is held; the relay that told of
    /// it, if one did.
    Stranger(Option<String>),
}

/// A sweep of a host that read all pages of the listing and decided all suspects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostSweep {
    /// The tick at which the first page, or the first single head, was requested.
    pub tick: Tick,
    /// The wall clock at that tick.
    pub at: Time,
}

/// The state of an account, as its host tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Account {
    /// Not told yet.
    #[default]
    Unknown,
    Active,
    Deactivated,
    Suspended,
    Takendown,
    Deleted,
    /// The host says that it has no such repository, and nobody that it was deleted.
    /// Hides, never purges.
    NotFound,
}

/// A signed commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    pub rev: Rev,
    /// The root that the owner signed.
    pub data: Cid,
    pub commit: Cid,
}

/// What is held of a repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Held {
    #[default]
    Nothing,
    /// Exactly this state.
    Exactly(Head),
    /// Something between two states: a large snapshot is being written. `from`
    /// is the rev of the last exact state, below which nothing is accepted.
    Applying { target: Head, from: Option<Rev> },
    /// Keys that hash to no signed root, after the disk lost something. Only a
    /// full fetch helps; `from` as above.
    Damaged { from: Option<Rev> },
}

/// Until where the stream of a cover is known to have brought everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Marker {
    pub cover: UpstreamId,
    pub epoch: Epoch,
}

/// A head that a host or a listing names. It is not verified, and may not even be
/// signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamedHead {
    pub rev: Rev,
    pub commit: Cid,
}

/// The host names an older head than the newest commit we know of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Behind {
    pub named: NamedHead,
    pub since: Time,
    /// How often the host has said the same, a sweep's interval apart, and when
    /// that was last counted.
    pub times: u32,
    pub counted_at: Time,
}

/// The last comparison that found the held head to be the host's head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RepoSweep {
    pub tick: Tick,
    pub at: Time,
    pub by: SweepSource,
}

/// Where a [`RepoSweep`] got the host's head from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SweepSource {
    /// A page of listRepos. Hosts write it after the commit, so it may be stale.
    Listing,
    /// The host's answer about this one repository.
    Head,
}

/// A proof that the root recomputed from the stored keys is the signed root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RootProof {
    pub rev: Rev,
    pub at: Time,
}

/// Which of the owner's keys signed a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SignerKey {
    #[default]
    Present,
    /// A key that the DID document named before: a host that imported a repository
    /// may still serve the old commit.
    Previous,
}

/// A public key as bytes: which curve, and the compressed point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyBytes {
    pub curve: u8,
    pub point: [u8; 33],
}

/// The owner's signing keys, from the DID document as it was last read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DocumentKeys {
    /// `None` if the document names no usable key.
    pub key: Option<KeyBytes>,
    /// The key before this one, if an earlier document with it was read.
    pub former: Option<KeyBytes>,
    /// The tick at which the document was requested.
    pub asked: Tick,
    /// The wall clock when the document arrived.
    pub at: Time,
}

/// Why a resolve, a comparison or a fetch is owed. Operators see the reason; the rules
/// tell by it which debts strangers can cause, and which debts equal heads do not
/// settle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DebtReason {
    FirstSighting,
    BrokenChain,
    Unresolved,
    TooBig,
    OtherRoot,
    Legacy,
    WhileInactive,
    Unauthenticated,
    Fork,
    Misrouted,
    OtherHost,
    Abandoned,
    IdentityEvent,
    Moved,
    AccountEvent,
    ListedElsewhere,
    ListedNewer,
    NewerHead,
    HostBehind,
    Interrupted,
    FilterChanged,
    StoreRepaired,
    Operator,
    /// The host closed the account: the repository may live elsewhere now.
    Closed,
    /// A Jetstream, which proves nothing, reports a newer commit.
    Claimed,
}

/// One item of a [`Debt`]: a resolve, a comparison or a fetch that is owed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DebtItem {
    /// When the newest reason arose. Work that began earlier does not pay it.
    pub at: Tick,
    pub why: DebtReason,
}

/// What must be asked or fetched before a repository can be called complete.
/// Empty most of the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Debt {
    /// Ask the directory.
    pub resolve: Option<DebtItem>,
    /// Ask the host for its head and the account's state.
    pub compare: Option<DebtItem>,
    /// Fetch the repository.
    pub fetch: Option<DebtItem>,
    /// The newer commit that the fetch is for; when our head becomes it, by
    /// whatever way, the fetch is paid.
    pub named: Option<NamedHead>,
    /// Since when anything has been owed.
    pub since: Time,
    pub attempts: u32,
    pub next_try: Time,
    /// It was larger than is taken: the fetch waits.
    pub oversize: Option<Oversize>,
}

/// A repository that has more bytes than are taken of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Oversize {
    /// So many were taken at most.
    pub limit: u64,
    /// It is not fetched again before then, unless more is taken.
    pub until: Time,
}

/// A token bucket that refills with time. It limits the requests that strangers, who
/// do not have the owner's key, can cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TokenBucket {
    /// Tokens that were taken and not refilled, as of `at`.
    pub used: u32,
    pub at: Time,
}

/// The number of heads before the present one that a repository's row remembers.
pub const TRAIL_HEADS: usize = 3;

/// A commit that was the head before: its rev and the beginning of its hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PastHead {
    pub rev: Rev,
    pub tag: u64,
}

/// A relay's word that a repository is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hearsay {
    /// When it came.
    pub told: Tick,
    /// Its host, asked after that, does not have it.
    pub denied: bool,
}

/// Everything the ledger knows about one repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repo {
    pub did: Did,
    /// Where it lives, by the DID document as last resolved.
    pub host: Option<HostId>,
    /// Since when it has lived there, for all we know.
    pub host_since: Tick,
    /// The version of the newest document seen. An older one moves nothing.
    pub document: u64,
    /// The owner's key, by that document.
    pub signing: Option<DocumentKeys>,
    /// An operator wants it by name. Of some streams only such repositories are
    /// read.
    pub tracked: bool,
    pub account: Account,
    /// When its host, or the directory, said that it is deleted; or when that became
    /// known in another way.
    pub deleted_at: Option<Time>,
    /// Only a relay says that it is deleted.
    pub hearsay: Option<Hearsay>,
    pub held: Held,
    /// The heads before this one, newest first.
    pub trail: [Option<PastHead>; TRAIL_HEADS],
    /// Raised when a host's older state was adopted.
    pub lineage: u32,
    /// The newest rev of the abandoned lineage: events up to it are not
    /// applied.
    pub abandoned: Option<Rev>,
    /// Rev of the last snapshot applied.
    pub last_indexed_rev: Option<Rev>,
    /// Rev of the last live commit applied.
    pub last_firehose_rev: Option<Rev>,
    /// No commit from this rev on was missed, if the marker is valid.
    pub first_rev_since_reset: Option<Rev>,
    /// The relay that first showed it; it covers when no host's own stream does.
    pub relay: Option<UpstreamId>,
    /// The upstream that marker and `first_rev_since_reset` are about.
    pub cover: Option<UpstreamId>,
    pub marker: Option<Marker>,
    /// When the marker was last unset, the account hidden, or a snapshot written.
    /// What began earlier raises no marker, shows no account again, and vouches
    /// for nothing.
    pub unset_at: Tick,
    pub swept: Option<RepoSweep>,
    /// When the host's own answer last confirmed the head.
    pub confirmed_at: Option<Time>,
    /// A listed value that turned out to be stale: the beginning of its hash.
    pub stale_listing: Option<u64>,
    pub behind: Option<Behind>,
    /// The filter generation under which what is held was fetched.
    pub filter: FilterGen,
    /// When a snapshot was last applied.
    pub fetched_at: Option<Time>,
    /// The last proof that the stored keys hash to the signed root.
    pub proven: Option<RootProof>,
    pub key: SignerKey,
    pub debt: Debt,
    /// Limits the requests that unauthenticated input can cause.
    pub strangers: TokenBucket,
}

impl Repo {
    /// A repository of which nothing is known but its name. It is complete in
    /// no respect.
    pub fn new(did: Did) -> Repo {
        Repo {
            did,
            host: None,
            host_since: Tick(0),
            document: 0,
            signing: None,
            tracked: false,
            account: Account::Unknown,
            deleted_at: None,
            hearsay: None,
            held: Held::Nothing,
            trail: [None; TRAIL_HEADS],
            lineage: 0,
            abandoned: None,
            last_indexed_rev: None,
            last_firehose_rev: None,
            first_rev_since_reset: None,
            relay: None,
            cover: None,
            marker: None,
            unset_at: Tick(0),
            swept: None,
            confirmed_at: None,
            stale_listing: None,
            behind: None,
            filter: FilterGen(0),
            fetched_at: None,
            proven: None,
            key: SignerKey::Present,
            debt: Debt::default(),
            strangers: TokenBucket::default(),
        }
    }

    /// The exact state that is held, if there is one.
    pub fn head(&self) -> Option<&Head> {
        match &self.held {
            Held::Exactly(head) => Some(head),
            Held::Nothing | Held::Applying { .. } | Held::Damaged { .. } => None,
        }
    }

    /// The rev below which, and at which, no event is news.
    pub fn floor(&self) -> Option<Rev> {
        match &self.held {
            Held::Nothing => None,
            Held::Exactly(head) => Some(head.rev),
            Held::Applying { from, .. } | Held::Damaged { from } => *from,
        }
    }
}

/// The beginning of a commit's hash: enough to know it again, too little to
/// prove anything.
pub fn tag(commit: &Cid) -> u64 {
    let mut bytes = [0; 8];
    let digest = commit.digest();
    bytes.copy_from_slice(&digest[..8]);
    u64::from_be_bytes(bytes)
}

/// An authentic frame that waits for what comes before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parked {
    pub head: Head,
    pub before: PriorState,
    /// The host it came from, or, by way of a relay, the host that the
    /// repository lived on by our knowledge. Only that host's line is applied.
    pub origin: Option<HostId>,
    /// Bytes of the frame, for the limits.
    pub bytes: u32,
}

/// What an event proves about the state that it was applied to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PriorState {
    /// The event's operations, undone, lead to this root.
    Root(Cid),
    /// The event carries operations without a proof: only applying them to the held
    /// keys shows whether they lead to the signed root.
    Recompute,
    /// The event carries no operations: a `#sync`, or a commit that is too big.
    Untold,
    /// The event is not verified, because the DID could not be resolved when the event
    /// arrived.
    Unjudged,
}
