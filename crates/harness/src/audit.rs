//! Random moments at which a test kills the program, and the audit of what a killed program
//! leaves on the disk.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gapless::demo::log_observer::LogObserver;
use gapless_atp::frame;
use gapless_atp::syntax::Did;
use gapless_core::ledger::{Account, Held, RepoId};
use gapless_store::read_view::ReadView;
use gapless_store::table::log::{FIRST_SEQ, LogKind, LogRow};
use gapless_store::{Settings, Store};
use gapless_testnet::{Place, Testnet};

/// A random generator that is seeded from the clock and prints its seed.
pub struct Chance(u64);

impl Default for Chance {
    fn default() -> Chance {
        Chance::new()
    }
}

impl Chance {
    pub fn new() -> Chance {
        let time = SystemTime::now().duration_since(UNIX_EPOCH);
        let seed = time.map_or(1, |time| time.as_nanos() as u64) | 1;
        eprintln!("the seed is {seed}");
        Chance(seed)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    /// Sleeps for a random time below `longest`.
    pub async fn wait(&mut self, longest: Duration) {
        let micros = self.below(longest.as_micros() as u64);
        tokio::time::sleep(Duration::from_micros(micros)).await;
    }
}

/// The rows of the log that earlier audits have seen. The log may only grow.
#[derive(Default)]
pub struct Audit {
    rows: BTreeMap<u64, LogRow>,
    /// How often an audit found a repository with a partly written snapshot.
    pub applying: u64,
    /// States whose root was recomputed and whose records were compared with the truth.
    pub exact: u64,
    /// The number after the last number of the log.
    pub log_next: u64,
    /// Models that follow the log from one audit to the next.
    pub observer: LogObserver,
}

impl Audit {
    /// Checks everything that a killed program has left: every root, every record, every log
    /// number, where the log leads, and the cursors.
    pub fn check_data(&mut self, data: &Path, net: &Testnet) {
        let settings = Settings {
            min_free_disk_bytes: 0,
            ..Settings::default()
        };
        let store = Store::open(data, &settings).expect("it opens");
        let view = store.view();
        for row in view.repos(RepoId(0)) {
            let (id, _) = row.expect("it can be read");
            self.repo(&view, id, net);
        }
        self.log(&view);
        let different = self.observer.observe(&store).expect("the log can be read");
        assert_eq!(
            different,
            Vec::<String>::new(),
            "the log leads to the state"
        );
        assert_eq!(store.durable_head().next_seq, self.log_next);
        cursor(&view, net);
        drop(view);
        store.close().expect("it closes");
    }

    fn repo(&mut self, view: &ReadView, id: RepoId, net: &Testnet) {
        let repo = view.repo(id).expect("it can be read").expect("it is there");
        let head = match &repo.held {
            Held::Exactly(head) => head,
            Held::Nothing => return,
            Held::Applying { .. } => {
                self.applying += 1;
                return;
            }
            Held::Damaged { .. } => panic!("{}: damaged by a mere kill", repo.did),
        };
        let root = view.root(id).expect("the keys make a tree");
        assert_eq!(root, head.data, "{} at {}", repo.did, head.rev);
        let truth = net.truth().records_at(&repo.did, head.rev);
        let truth =
            truth.unwrap_or_else(|| panic!("the owner never signed {} {}", repo.did, head.rev));
        let mut held = BTreeMap::new();
        for record in view.records(id) {
            let record = record.expect("it can be read");
            let path = String::from_utf8(record.path().to_vec()).expect("text");
            held.insert(path, record.bytes().expect("bytes are kept").to_vec());
        }
        let truth: BTreeMap<String, Vec<u8>> = truth
            .into_iter()
            .map(|(path, (_, bytes))| (path, bytes.to_vec()))
            .collect();
        assert!(held == truth, "{} at {}: other records", repo.did, head.rev);
        self.exact += 1;
    }

    /// Checks that the log numbers are dense, and that each names what it named in earlier audits,
    /// unless a purge has emptied the row or the log was trimmed.
    fn log(&mut self, view: &ReadView) {
        let mut next = FIRST_SEQ;
        for row in view.log_from(FIRST_SEQ).expect("it can be read") {
            let (first, row) = row.expect("it can be read");
            assert_eq!(first, next, "the numbers are dense");
            next += row.numbers();
            if let LogKind::Trimmed(_) = row.kind {
                assert_eq!(first, FIRST_SEQ, "only the front is trimmed");
                self.rows = self.rows.split_off(&next);
                continue;
            }
            match self.rows.get(&first) {
                Some(before) if is_emptied(before, &row) => {
                    self.rows.insert(first, row);
                }
                Some(before) => assert_eq!(before, &row, "number {first} names something else"),
                None => {
                    assert!(first >= self.log_next, "number {first} was given before");
                    self.rows.insert(first, row);
                }
            }
        }
        assert!(next >= self.log_next, "{next}: numbers were lost");
        self.log_next = next;
    }
}

/// Whether a purge has taken the contents out of a row.
fn is_emptied(before: &LogRow, row: &LogRow) -> bool {
    let emptied = matches!(
        row.kind,
        LogKind::Redacted(_) | LogKind::Purged(_) | LogKind::Identity
    );
    emptied
        && row.ops.is_empty()
        && row.identity.is_none()
        && (before.numbers(), before.repo) == (row.numbers(), row.repo)
}

/// Checks that no commit at or before a cursor is missing: its repository is at the commit's rev
/// or a later one, has a debt, or has a parked frame.
fn cursor(view: &ReadView, net: &Testnet) {
    let upstreams = view.upstreams().expect("they can be read");
    for (id, row) in upstreams {
        let urls = &net.urls().pds;
        let Some(host) = urls.iter().position(|url| *url == row.url) else {
            continue;
        };
        let cursor = view.cursor(id).expect("it can be read");
        let (Some(cursor), Some(first)) = (cursor, row.first_cursor_since_reset) else {
            continue;
        };
        for bytes in net.frames(Place::Pds(host)).expect("it is there") {
            let Ok(frame::Event::Commit(event)) = frame::decode(&bytes) else {
                continue;
            };
            // Only a sweep can find what came before the first event of the epoch.
            if event.seq > cursor.seq || event.seq < first {
                continue;
            }
            let did = Did::parse(event.repo).expect("a DID");
            let found = view.repo_by_did(&did).expect("it can be read");
            let (id, repo) = found.unwrap_or_else(|| panic!("{did} is passed and unknown"));
            let held = repo.head().map(|head| head.rev.to_string());
            let parked = view.parked(id).expect("it can be read");
            // Nothing is fetched of a deleted account, and a purge takes what was held.
            let deleted = repo.account == Account::Deleted;
            assert!(
                deleted
                    || held.as_deref() >= Some(event.rev)
                    || !repo.debt.is_empty()
                    || !parked.is_empty(),
                "{did}: the cursor {} has passed {} at {}, and {held:?} is held",
                cursor.seq,
                event.rev,
                event.seq
            );
        }
    }
}
