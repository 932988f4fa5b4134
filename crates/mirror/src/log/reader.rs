//! Reads the log: one interface for every consumer of the log.
//!
//! A consumer keeps a number, below which it has processed everything. It waits for new numbers at
//! [`Reader::head`], and reads pages from its number on. Each page has a view of its own, in which it
//! finds the records that its operations put, and which is released with the page. A consumer that
//! begins late takes a walk first, and then follows the log from where the walk began.

use std::sync::Arc;

use gapless_store::Store;
use gapless_store::error::StoreError;
use gapless_store::log_reader::{
    OpBytes, PageError, PageLimits, RowPage, Walk, WalkPart, read_bytes, read_page,
};
use gapless_store::read_view::ReadView;
use gapless_store::table::log::{LogOp, LogRow};
use gapless_store::table::meta::LogId;
use tokio::sync::watch;

use crate::log::head::LogHead;

/// Reads a log. All methods but [`Reader::head`] read the disk, and are called from threads that may
/// wait.
pub trait Reader: Send + Sync {
    /// The number that the log gives next, as a value to wait for. A page that is read after a change
    /// shows at least every smaller number.
    fn head(&self) -> watch::Receiver<u64>;

    /// The identity of the log, which a consumer keeps beside its number; `None` until a store of an
    /// earlier format got one.
    fn log_id(&self) -> Result<Option<LogId>, StoreError>;

    /// Rows from a number on.
    fn page(&self, next: u64, limits: PageLimits) -> Result<LogPage, PageError>;

    /// Begins a walk over everything that is held.
    fn begin_walk(&self) -> Result<Walk, StoreError>;

    /// The next part of a walk, from a view of its own; `None` at the end.
    fn next_part(&self, walk: &mut Walk) -> Result<Option<WalkPart>, StoreError>;
}

/// Rows of a log, and the view that they were read from.
pub struct LogPage {
    /// Rows with their first numbers.
    pub rows: Vec<(u64, LogRow)>,
    /// The number from which the next page is read.
    pub next: u64,
    /// Whether the view has more rows.
    pub more: bool,
    view: ReadView,
}

impl LogPage {
    /// The bytes of an operation of a row of this page. `None` for a delete.
    pub fn bytes(&self, row: &LogRow, op: &LogOp) -> Result<Option<OpBytes>, StoreError> {
        read_bytes(&self.view, row, op)
    }
}

/// The log of this program's store.
#[derive(Clone)]
pub struct StoreLog {
    store: Arc<Store>,
    head: LogHead,
}

impl StoreLog {
    /// Becomes the listener of a store that has none yet.
    pub fn listen_to(store: &Arc<Store>) -> StoreLog {
        StoreLog {
            store: store.clone(),
            head: LogHead::listen_to(store),
        }
    }
}

impl Reader for StoreLog {
    fn head(&self) -> watch::Receiver<u64> {
        self.head.subscribe()
    }

    fn log_id(&self) -> Result<Option<LogId>, StoreError> {
        Ok(self.store.view().ids()?.map(|ids| ids.log))
    }

    fn page(&self, next: u64, limits: PageLimits) -> Result<LogPage, PageError> {
        let view = self.store.view();
        let RowPage { rows, next, more } = read_page(&view, next, limits)?;
        Ok(LogPage {
            rows,
            next,
            more,
            view,
        })
    }

    fn begin_walk(&self) -> Result<Walk, StoreError> {
        Walk::begin(&self.store.view())
    }

    fn next_part(&self, walk: &mut Walk) -> Result<Option<WalkPart>, StoreError> {
        walk.next_part(&self.store.view())
    }
}

#[cfg(test)]
mod tests {
    use gapless_atp::syntax::Did;
    use gapless_core::ledger::{Account, Repo, RepoId, Time};
    use gapless_store::change::{Change, EntryContent, LogEntry, RepoChange, Subject};
    use gapless_store::table::log::LogKind;

    use super::*;

    /// Writes a row about an account, and returns its number.
    fn write_account(store: &Store, subject: Subject, account: Account) -> u64 {
        let did = Did::parse("did:plc:abcdefghijklmnopqrstuvwx").expect("a DID");
        let row = Repo {
            account,
            ..Repo::new(did)
        };
        let change = RepoChange {
            entry: Some(LogEntry {
                at: Time(7),
                source: None,
                what: EntryContent::Account,
                frame: None,
            }),
            ..RepoChange::row(subject, row)
        };
        let written = store.write(Change {
            repo: Some(change),
            ..Change::default()
        });
        written.expect("room").numbers.expect("a row").start
    }

    #[tokio::test]
    async fn a_consumer_that_waits_for_the_head_reads_what_it_announces() {
        let store = Arc::new(Store::memory().expect("it opens"));
        let did = Did::parse("did:plc:abcdefghijklmnopqrstuvwx").expect("a DID");
        let log = StoreLog::listen_to(&store);
        let (mut one, mut other) = (log.head(), log.head());
        assert_eq!(*one.borrow_and_update(), 1);
        assert_eq!(write_account(&store, Subject::Did(did), Account::Active), 1);
        for head in [&mut one, &mut other] {
            head.wait_for(|next| *next == 2).await.expect("it runs");
        }
        write_account(&store, Subject::Id(RepoId(1)), Account::Takendown);
        one.wait_for(|next| *next == 3).await.expect("it runs");
        let page = log.page(1, PageLimits::DEFAULT).expect("it can be read");
        let kinds: Vec<LogKind> = page.rows.iter().map(|(_, row)| row.kind).collect();
        let wanted = [Account::Active, Account::Takendown].map(LogKind::Account);
        assert_eq!(
            (kinds.as_slice(), page.next, page.more),
            (&wanted[..], 3, false)
        );
        let beyond = log.page(4, PageLimits::DEFAULT).map(|page| page.next);
        assert!(matches!(
            beyond,
            Err(PageError::Missing { number: 4, head: 3 })
        ));
    }

    #[test]
    fn a_walk_names_the_number_from_which_the_log_is_followed() {
        let store = Arc::new(Store::memory().expect("it opens"));
        let did = Did::parse("did:plc:abcdefghijklmnopqrstuvwx").expect("a DID");
        let log = StoreLog::listen_to(&store);
        write_account(&store, Subject::Did(did.clone()), Account::Active);
        let mut walk = log.begin_walk().expect("it can be read");
        write_account(&store, Subject::Id(RepoId(1)), Account::Takendown);
        let part = log.next_part(&mut walk).expect("it can be read");
        let part = part.expect("one repository");
        assert_eq!((part.repo.did, part.seq), (did, 2));
        assert!(log.next_part(&mut walk).expect("it can be read").is_none());
        let page = log.page(walk.follow_from, PageLimits::DEFAULT);
        assert_eq!(page.expect("it can be read").rows[0].0, 2);
    }
}
