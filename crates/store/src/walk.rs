//! Reads whole tables, and side by side those whose keys begin with the repository: for
//! checks and repairs.

use crate::engine::{EngineError, KeyRange, RawRow, RawRows, View};
use crate::table::Table;

const REPO_BYTES: usize = 8;

/// The engine could not read the rest of a table.
#[derive(Debug, Clone)]
pub(crate) struct TableReadError {
    pub table: Table,
    pub error: EngineError,
}

/// All rows of a table, in order.
pub(crate) struct TableRows {
    pub table: Table,
    rows: RawRows,
}

impl TableRows {
    pub(crate) fn new(view: &dyn View, table: Table) -> TableRows {
        TableRows {
            table,
            rows: view.range(table, KeyRange::all()),
        }
    }

    pub(crate) fn next(&mut self) -> Result<Option<RawRow>, TableReadError> {
        let table = self.table;
        let row = self.rows.next().transpose();
        row.map_err(|error| TableReadError { table, error })
    }
}

/// The rows of a table whose keys begin with the repository.
pub(crate) struct RepoRows {
    rows: TableRows,
    ahead: Option<RawRow>,
}

impl RepoRows {
    pub(crate) fn new(view: &dyn View, table: Table) -> Result<RepoRows, TableReadError> {
        let mut rows = TableRows::new(view, table);
        let ahead = rows.next()?;
        Ok(RepoRows { rows, ahead })
    }

    pub(crate) fn table(&self) -> Table {
        self.rows.table
    }

    /// The repository of the next row. A key that is too short counts as repository 0,
    /// so that it is not skipped.
    pub(crate) fn next_repo(&self) -> Option<u64> {
        let (place, _) = self.ahead.as_ref()?;
        let id = place.first_chunk::<REPO_BYTES>();
        Some(id.map_or(0, |id| u64::from_be_bytes(*id)))
    }

    /// The next row and its repository, if that is at most `repo`.
    pub(crate) fn next_up_to(
        &mut self,
        repo: u64,
    ) -> Result<Option<(u64, RawRow)>, TableReadError> {
        let Some(id) = self.next_repo().filter(|id| *id <= repo) else {
            return Ok(None);
        };
        let next = self.rows.next()?;
        Ok(std::mem::replace(&mut self.ahead, next).map(|row| (id, row)))
    }
}

/// The rows of every table, other than `repo`, whose keys begin with the repository.
pub(crate) struct RepoTables {
    pub record: RepoRows,
    pub version: RepoRows,
    pub claimed: RepoRows,
    pub parked: RepoRows,
    pub debt: RepoRows,
}

impl RepoTables {
    pub(crate) fn new(view: &dyn View) -> Result<RepoTables, TableReadError> {
        Ok(RepoTables {
            record: RepoRows::new(view, Table::Record)?,
            version: RepoRows::new(view, Table::Version)?,
            claimed: RepoRows::new(view, Table::Claimed)?,
            parked: RepoRows::new(view, Table::Parked)?,
            debt: RepoRows::new(view, Table::Debt)?,
        })
    }

    /// The lowest repository of the next rows of all tables.
    #[cfg(feature = "engine")]
    pub(crate) fn next_repo(&self) -> Option<u64> {
        let RepoTables {
            record,
            version,
            claimed,
            parked,
            debt,
        } = self;
        let all = [record, version, claimed, parked, debt];
        all.into_iter().filter_map(RepoRows::next_repo).min()
    }
}
