//! Checks the small tables: hosts, upstreams and their cursors, dead letters, the filter, and
//! the consumers of the log.

use gapless_core::ledger::HostId;

use super::{CheckRun, Finding};
use crate::table::{Table, audit, consumer, dead, host, key, meta, purge, repo, upstream, wish};
use crate::walk::TableReadError;

impl CheckRun<'_> {
    pub(super) fn check_names(&mut self) -> Result<(), TableReadError> {
        self.check_hosts()?;
        self.check_host_names()?;
        self.check_upstreams()?;
        self.check_dead_letters()?;
        self.check_filter()?;
        self.check_identities()?;
        self.check_consumers()?;
        self.check_purges()
    }

    /// Checks the rows of purges: a purge that is not finished is the one that its repository names.
    fn check_purges(&mut self) -> Result<(), TableReadError> {
        let table = Table::Meta;
        for row in self.view.raw().prefix(table, purge::PREFIX) {
            let (place, row) = row.map_err(|error| TableReadError { table, error })?;
            let read = purge::read_key(&place).and_then(|key| Ok((key, purge::decode(&row)?)));
            let (number, row) = match read {
                Ok(read) => read,
                Err(fault) => {
                    let key = place.to_vec();
                    self.add(Finding::Row { table, key, fault });
                    continue;
                }
            };
            let found = self.view.raw().get(Table::Repo, &key::repo(row.repo));
            let found = found.map_err(|error| TableReadError { table, error })?;
            let named = found.and_then(|row| repo::decode(&row).ok()?.purge);
            if row.deleting.is_some() && named != Some(number) {
                self.report_disagreement(table, &place, "its repository is not being purged");
            }
        }
        Ok(())
    }

    /// Checks the consumers of the log, and the orders about them.
    fn check_consumers(&mut self) -> Result<(), TableReadError> {
        let table = Table::Consumer;
        let mut rows = self.table(table);
        while let Some((place, row)) = rows.next()? {
            match consumer::read_key(&place).and_then(|_| consumer::decode(&row)) {
                Ok(one) if one.holds_from > self.counters.next_seq => {
                    self.report_disagreement(table, &place, "its position is beyond the log");
                }
                Ok(_) => {}
                Err(fault) => {
                    let key = place.to_vec();
                    self.add(Finding::Row { table, key, fault });
                }
            }
        }
        let table = Table::Audit;
        let mut rows = self.table(table);
        while let Some((place, row)) = rows.next()? {
            match key::read_seq(&place).and_then(|number| Ok((number, audit::decode(&row)?))) {
                Ok((number, _)) => {
                    self.check_given_out("order about a consumer", number, self.counters.next_audit)
                }
                Err(fault) => {
                    let key = place.to_vec();
                    self.add(Finding::Row { table, key, fault });
                }
            }
        }
        Ok(())
    }

    /// Checks which log and which store this is, and the time lived through.
    fn check_identities(&mut self) -> Result<(), TableReadError> {
        let table = Table::Meta;
        for (key, decode) in meta::SMALL_ROWS {
            let row = self.view.raw().get(table, key);
            let row = row.map_err(|error| TableReadError { table, error })?;
            if let Some(Err(fault)) = row.map(|row| decode(&row)) {
                let key = key.to_vec();
                self.add(Finding::Row { table, key, fault });
            }
        }
        Ok(())
    }

    /// Checks the row of the filter that was last in force.
    fn check_filter(&mut self) -> Result<(), TableReadError> {
        let (table, key) = (Table::Meta, wish::FILTER_KEY);
        let row = self.view.raw().get(table, key);
        let row = row.map_err(|error| TableReadError { table, error })?;
        if let Some(Err(fault)) = row.map(|row| wish::decode_filter(&row)) {
            let key = key.to_vec();
            self.add(Finding::Row { table, key, fault });
        }
        Ok(())
    }

    fn check_hosts(&mut self) -> Result<(), TableReadError> {
        let table = Table::Host;
        let mut rows = self.table(table);
        while let Some((place, row)) = rows.next()? {
            let read = key::read_host(&place).and_then(|id| Ok((id, host::decode(&row)?)));
            let (id, row) = match read {
                Ok(read) => read,
                Err(fault) => {
                    let key = place.to_vec();
                    self.add(Finding::Row { table, key, fault });
                    continue;
                }
            };
            self.check_given_out("host", id.0.into(), self.counters.next_host.into());
            if self.host_of_name(row.name.as_bytes())? != Some(id) {
                self.report_disagreement(table, &place, "its name does not lead back to it");
            }
        }
        Ok(())
    }

    fn host_of_name(&self, name: &[u8]) -> Result<Option<HostId>, TableReadError> {
        let table = Table::HostName;
        match self.view.raw().get(table, name) {
            Ok(row) => Ok(row.and_then(|row| host::decode_id(&row).ok())),
            Err(error) => Err(TableReadError { table, error }),
        }
    }

    fn check_host_names(&mut self) -> Result<(), TableReadError> {
        let table = Table::HostName;
        let mut rows = self.table(table);
        while let Some((place, row)) = rows.next()? {
            match host::decode_id(&row) {
                Err(fault) => {
                    let key = place.to_vec();
                    self.add(Finding::Row { table, key, fault });
                }
                Ok(id) if !self.has(Table::Host, &key::host(id))? => {
                    self.report_disagreement(table, &place, "it names a host that does not exist");
                }
                Ok(_) => {}
            }
        }
        Ok(())
    }

    fn check_upstreams(&mut self) -> Result<(), TableReadError> {
        let table = Table::Upstream;
        let mut rows = self.table(table);
        while let Some((place, row)) = rows.next()? {
            let checked = match key::read_upstream(&place) {
                Ok((id, true)) => {
                    self.check_given_out(
                        "upstream",
                        id.0.into(),
                        self.counters.next_upstream.into(),
                    );
                    upstream::decode(&row).map(|upstream| upstream.host)
                }
                Ok((id, false)) => {
                    let cursor = upstream::decode_cursor(&row);
                    let found = self.view.raw().get(table, &key::upstream(id));
                    let found = found.map_err(|error| TableReadError { table, error })?;
                    let numbering = found.and_then(|row| upstream::decode(&row).ok());
                    match (&cursor, numbering.map(|row| row.numbering)) {
                        (_, None) => {
                            self.report_disagreement(
                                table,
                                &place,
                                "a cursor of an upstream that does not exist",
                            );
                        }
                        (Ok(cursor), Some(numbering)) if cursor.numbering > numbering => {
                            self.report_disagreement(
                                table,
                                &place,
                                "a cursor of a numbering that the upstream does not have yet",
                            );
                        }
                        _ => {}
                    }
                    cursor.map(|_| None)
                }
                Err(fault) => Err(fault),
            };
            match checked {
                Err(fault) => {
                    let key = place.to_vec();
                    self.add(Finding::Row { table, key, fault });
                }
                Ok(Some(host)) if !self.has(Table::Host, &key::host(host))? => {
                    self.report_disagreement(
                        table,
                        &place,
                        "it speaks for a host that does not exist",
                    );
                }
                Ok(_) => {}
            }
        }
        Ok(())
    }

    fn check_dead_letters(&mut self) -> Result<(), TableReadError> {
        let table = Table::Dead;
        let mut rows = self.table(table);
        while let Some((place, row)) = rows.next()? {
            match key::read_seq(&place).and_then(|number| Ok((number, dead::decode(&row)?))) {
                Ok((number, _)) => {
                    self.check_given_out("dead letter", number, self.counters.next_dead);
                }
                Err(fault) => {
                    let key = place.to_vec();
                    self.add(Finding::Row { table, key, fault });
                }
            }
        }
        Ok(())
    }

    pub(super) fn report_disagreement(&mut self, table: Table, key: &[u8], how: &'static str) {
        let key = key.to_vec();
        self.add(Finding::Disagree { table, key, how });
    }
}
