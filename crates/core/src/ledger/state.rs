//! What the ledger knows: one row per upstream, per host and per repository.
//!
//! The rows are plain values. The store persists them as they are, and the rules in the
//! modules beside this one change them. Fields that the data consistency model names keep
//! its names.

use gapless_atp::cid::Cid;
use gapless_atp::syntax::{Did, Handle, Rev};

use super::time::{Lived, Tick, Time};

/// The number of a repository. No number is given twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RepoId(pub u64);

/// The number of a host that DID documents name. No number is given twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub u32);

/// The number of a source of events. No number is given twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UpstreamId(pub u32);

/// A stretch of an upstream's stream in which nothing is missing. The number of a new
/// epoch is `max(old + 1, now in µs)`, so that no number is used twice even if the mirror's
/// own disk is restored from an older copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Epoch(pub u64);

/// A generation of the filter that says which collections are kept. Every change of the
/// filter begins a new generation, and no number is used twice. Under an odd generation,
/// keys that are not wanted are dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct FilterGen(pub u32);

impl FilterGen {
    /// Whether all keys are held of a repository that was fetched under this generation.
    /// Without all keys no root can be recomputed.
    pub fn holds_all_keys(self) -> bool {
        self.0.is_multiple_of(2)
    }

    /// The next generation, at this time in seconds.
    pub fn next(self, seconds: u32, drops_keys: bool) -> FilterGen {
        let above = self.0.saturating_add(1).max(seconds);
        if above % 2 == u32::from(drops_keys) {
            FilterGen(above)
        } else {
            FilterGen(above.saturating_add(1))
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

/// The durable row of a source of events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upstream {
    pub url: String,
    pub kind: UpstreamKind,
    /// The host whose repositories the upstream speaks for; set only for
    /// [`UpstreamKind::Pds`].
    pub host: Option<HostId>,
    pub epoch: Epoch,
    /// The number of the first event of this epoch, once one has arrived.
    pub first_cursor_since_reset: Option<u64>,
    /// Raised whenever the cursor is cleared. An event that was read under an older
    /// numbering never writes the cursor.
    pub numbering: u32,
    /// When the epoch began.
    pub reset_at: Tick,
    /// When a frame last arrived of which not even the DID could be read: it may concern
    /// any repository.
    pub unread_at: Option<Tick>,
    pub followed: FollowReason,
}

/// The last event of an upstream whose effects are durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor {
    pub seq: u64,
    /// The beginning of the hash of that event, by which the event is recognized.
    pub event: [u8; 16],
}

/// The durable row of a host that repositories live on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Host {
    /// The host's name or address, as DID documents give it.
    pub name: String,
    /// The last sweep that was completed.
    pub swept: Option<HostSweep>,
    /// Whether hiding is suspended: so many repositories vanished at once that none is
    /// hidden until a sweep finds all of them, or an operator confirms the loss.
    pub hiding_suspended: bool,
    /// Which source named the host first.
    pub named: NamedBy,
    /// When the host was first named; `None` if that was not recorded.
    pub since: Option<Time>,
    /// Whether the host has answered any request since then.
    pub reached: bool,
}

/// The source that first named a host.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum NamedBy {
    /// The source was not recorded.
    #[default]
    Unsaid,
    Operator,
    /// The document of a repository that is held, or that an operator tracks. The
    /// repository came from this host, or from a host that documents of this host's
    /// repositories named; `None`: an operator named the repository, and it has no host
    /// yet.
    Document(Option<HostId>),
    /// The relay with this address, which lists the hosts that it knows.
    Relay(String),
    /// The document of a repository of which nothing is held, and the address of the
    /// relay that reported the repository, if one did.
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

/// The state of an account, as its host or the directory reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Account {
    /// Not reported yet.
    #[default]
    Unknown,
    Active,
    Deactivated,
    Suspended,
    Takendown,
    Deleted,
    /// The host says that it has no such repository, and no source says that it was
    /// deleted. Hides the repository, and never purges it.
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
    /// Exactly the state of this commit.
    Exactly(Head),
    /// A mixture of two states, because a large snapshot is being written. `from` is the
    /// rev of the last exact state; nothing at or below it is accepted.
    Applying { target: Head, from: Option<Rev> },
    /// Keys that hash to no signed root, because the disk lost something. Only a full
    /// fetch repairs this. `from` is the rev of the last exact state.
    Damaged { from: Option<Rev> },
}

/// The cover and the epoch up to which a repository has missed nothing. The marker is valid while
/// that epoch is the cover's present one.
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

/// Records that the host names an older head than the newest known commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Behind {
    pub named: NamedHead,
    pub since: Time,
    /// How often the host has named the same head, at intervals of at least
    /// `sweep_every`.
    pub times: u32,
    /// When `times` was last raised.
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

/// Why a resolve, a comparison or a fetch is owed. Operators see the reason. The rules use it to
/// tell which debts strangers can cause, and which debts equal heads do not settle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DebtReason {
    /// The first event or listing of the repository.
    FirstSighting,
    /// A commit does not follow the held state.
    BrokenChain,
    /// The DID could not be resolved when an event arrived.
    Unresolved,
    /// A commit was too big to carry its operations.
    TooBig,
    /// A `#sync`, or a commit without operations, names another root than the held one.
    OtherRoot,
    /// A commit carries operations without a proof.
    Legacy,
    /// A commit arrived while the account was hidden.
    WhileInactive,
    /// Input arrived that the owner did not sign.
    Unauthenticated,
    /// The owner's key signed two commits with one rev.
    Fork,
    /// An event came from the stream of a host that the repository does not live on.
    Misrouted,
    /// A misrouted event is signed and newer than the held head.
    OtherHost,
    /// A commit of an abandoned lineage arrived.
    Abandoned,
    /// An `#identity` event arrived.
    IdentityEvent,
    /// The DID document names another host than before.
    Moved,
    /// The state of the account changed or is in doubt.
    AccountEvent,
    /// Another host lists the repository.
    ListedElsewhere,
    /// The host lists a head that is not held.
    ListedNewer,
    /// The host names a newer head than the held one.
    NewerHead,
    /// The host names an older head than the held one.
    HostBehind,
    /// A snapshot, a sweep or an epoch ended before the repository was settled.
    Interrupted,
    /// The filter is not the one under which the repository was fetched.
    FilterChanged,
    /// Held data is damaged, or the store was repaired.
    StoreRepaired,
    /// An operator asked for it.
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
    /// The directory must be asked for the DID document.
    pub resolve: Option<DebtItem>,
    /// The host must be asked for its head and the account's state.
    pub compare: Option<DebtItem>,
    /// The repository must be fetched.
    pub fetch: Option<DebtItem>,
    /// The newer commit that the fetch is for. When the held head becomes that commit, in
    /// whatever way, the fetch is paid.
    pub named: Option<NamedHead>,
    /// Since when anything has been owed.
    pub since: Time,
    pub attempts: u32,
    pub next_try: Time,
    /// Set while the fetch waits because the repository was too large.
    pub oversize: Option<Oversize>,
}

/// The wait of a repository that was larger than the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Oversize {
    /// The limit in bytes when the repository was fetched.
    pub limit: u64,
    /// The repository is not fetched again before then, unless the limit is raised.
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
pub(crate) const TRAIL_HEADS: usize = 3;

/// A commit that was the head earlier: its rev and the beginning of its hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PastHead {
    pub rev: Rev,
    pub tag: u64,
}

/// A relay's report that a repository is deleted, which the host has not confirmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hearsay {
    /// When the report arrived.
    pub told: Tick,
    /// Whether the repository's host, asked after the report, said that it does not have
    /// the repository.
    pub denied: bool,
}

/// Everything the ledger knows about one repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repo {
    pub did: Did,
    /// The host that the repository lives on, by the DID document as last resolved.
    pub host: Option<HostId>,
    /// The tick at which the repository was found to live on that host.
    pub host_since: Tick,
    /// The version of the newest document seen. An older document moves nothing.
    pub document: u64,
    /// The owner's keys, by that document.
    pub signing: Option<DocumentKeys>,
    /// The handle that the document claims, not verified. A purge clears it.
    pub handle: Option<Handle>,
    /// Whether an operator tracks the repository by name. From some streams only tracked
    /// repositories are read.
    pub tracked: bool,
    pub account: Account,
    /// When the host or the directory reported the account as deleted, or when the
    /// deletion became known in another way.
    pub deleted_at: Option<Time>,
    /// The time lived through when the deletion became known. `None` if `deleted_at` is, or if an
    /// earlier version of Gapless noted the deletion.
    pub deleted_lived: Option<Lived>,
    /// Whether a purge is under way: nothing of the repository is served or read, and nothing is
    /// written until the purge is finished.
    pub purging: bool,
    /// Set while only a relay reports the account as deleted.
    pub hearsay: Option<Hearsay>,
    pub held: Held,
    /// The heads before the present one, newest first.
    pub trail: [Option<PastHead>; TRAIL_HEADS],
    /// Raised when an older state of the host is adopted, and when the repository is
    /// purged.
    pub lineage: u32,
    /// The newest rev of the abandoned lineage. Events up to this rev are not applied.
    pub abandoned: Option<Rev>,
    /// The rev of the last snapshot applied.
    pub last_indexed_rev: Option<Rev>,
    /// The rev of the last live commit applied.
    pub last_firehose_rev: Option<Rev>,
    /// The rev from which on no commit was missed, if the marker is valid. While the head
    /// is below it, the repository is not complete.
    pub first_rev_since_reset: Option<Rev>,
    /// The relay that first sent an event of the repository. It is the cover if no stream
    /// of the host is followed.
    pub relay: Option<UpstreamId>,
    /// The upstream that `marker` and `first_rev_since_reset` refer to.
    pub cover: Option<UpstreamId>,
    pub marker: Option<Marker>,
    /// When the marker was last unset, the account hidden, or a snapshot written. Work
    /// that began earlier raises no marker, shows no hidden account, and vouches for
    /// nothing.
    pub unset_at: Tick,
    pub swept: Option<RepoSweep>,
    /// When the host's own answer last confirmed the held head.
    pub confirmed_at: Option<Time>,
    /// A listed head that turned out to be stale, as the beginning of its hash.
    pub stale_listing: Option<u64>,
    pub behind: Option<Behind>,
    /// The filter generation under which the held state was fetched.
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
    /// The row of a repository of which only the name is known. It counts as incomplete
    /// in every respect.
    pub fn new(did: Did) -> Repo {
        Repo {
            did,
            host: None,
            host_since: Tick(0),
            document: 0,
            signing: None,
            handle: None,
            tracked: false,
            account: Account::Unknown,
            deleted_at: None,
            deleted_lived: None,
            purging: false,
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

    /// The head, if exactly its state is held.
    pub fn head(&self) -> Option<&Head> {
        match &self.held {
            Held::Exactly(head) => Some(head),
            Held::Nothing | Held::Applying { .. } | Held::Damaged { .. } => None,
        }
    }

    /// The rev up to which an event is not news.
    pub fn floor(&self) -> Option<Rev> {
        match &self.held {
            Held::Nothing => None,
            Held::Exactly(head) => Some(head.rev),
            Held::Applying { from, .. } | Held::Damaged { from } => *from,
        }
    }
}

/// The beginning of a commit's hash: enough to recognize the commit, too little to prove
/// anything.
pub fn tag(commit: &Cid) -> u64 {
    let mut bytes = [0; 8];
    let digest = commit.digest();
    bytes.copy_from_slice(&digest[..8]);
    u64::from_be_bytes(bytes)
}

/// The row of a parked frame, which waits for the commits before it or for the DID to be
/// resolved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parked {
    pub head: Head,
    pub before: PriorState,
    /// The host that the frame came from; for a frame from a relay, the host that the
    /// repository lived on at the time. Only frames of the present host are applied.
    pub origin: Option<HostId>,
    /// The bytes of the frame, for the limits.
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
