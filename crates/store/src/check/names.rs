//! The small tables: hosts, upstreams and their cursors, dead letters.

use gapless_core::ledger::HostId;

use super::{Checking, Finding};
use crate::table::{Table, dead, host, key, upstream, wish};
use crate::walk::Unread;

impl Checking<'_> {
    pub(super) fn names(&mut self) -> Result<(), Unread> {
        self.hosts()?;
        self.host_names()?;
        self.upstreams()?;
        self.dead_letters()?;
        self.filter()
    }

    /// The filter that was last in force.
    fn filter(&mut self) -> Result<(), Unread> {
        let (table, key) = (Table::Meta, wish::FILTER_KEY);
        let row = self.contents.raw().get(table, key);
        let row = row.map_err(|error| Unread { table, error })?;
        if let Some(Err(fault)) = row.map(|row| wish::decode_filter(&row)) {
            let key = key.to_vec();
            self.find(Finding::Row { table, key, fault });
        }
        Ok(())
    }

    fn hosts(&mut self) -> Result<(), Unread> {
        let table = Table::Host;
        let mut rows = self.table(table);
        while let Some((place, row)) = rows.next()? {
            let read = key::read_host(&place).and_then(|id| Ok((id, host::decode(&row)?)));
            let (id, row) = match read {
                Ok(read) => read,
                Err(fault) => {
                    let key = place.to_vec();
                    self.find(Finding::Row { table, key, fault });
                    continue;
                }
            };
            self.given_out("host", id.0.into(), self.counters.next_host.into());
            if self.host_of_name(row.name.as_bytes())? != Some(id) {
                self.disagree(table, &place, "its name does not lead back to it");
            }
        }
        Ok(())
    }

    fn host_of_name(&self, name: &[u8]) -> Result<Option<HostId>, Unread> {
        let table = Table::HostName;
        match self.contents.raw().get(table, name) {
            Ok(row) => Ok(row.and_then(|row| host::decode_id(&row).ok())),
            Err(error) => Err(Unread { table, error }),
        }
    }

    fn host_names(&mut self) -> Result<(), Unread> {
        let table = Table::HostName;
        let mut rows = self.table(table);
        while let Some((place, row)) = rows.next()? {
            match host::decode_id(&row) {
                Err(fault) => {
                    let key = place.to_vec();
                    self.find(Finding::Row { table, key, fault });
                }
                Ok(id) if !self.has(Table::Host, &key::host(id))? => {
                    self.disagree(table, &place, "it names a host that is not there");
                }
                Ok(_) => {}
            }
        }
        Ok(())
    }

    fn upstreams(&mut self) -> Result<(), Unread> {
        let table = Table::Upstream;
        let mut rows = self.table(table);
        while let Some((place, row)) = rows.next()? {
            let checked = match key::read_upstream(&place) {
                Ok((id, true)) => {
                    self.given_out("upstream", id.0.into(), self.counters.next_upstream.into());
                    upstream::decode(&row).map(|upstream| upstream.host)
                }
                Ok((id, false)) => {
                    let cursor = upstream::decode_cursor(&row);
                    let found = self.contents.raw().get(table, &key::upstream(id));
                    let found = found.map_err(|error| Unread { table, error })?;
                    let numbering = found.and_then(|row| upstream::decode(&row).ok());
                    match (&cursor, numbering.map(|row| row.numbering)) {
                        (_, None) => {
                            self.disagree(
                                table,
                                &place,
                                "a cursor of an upstream that is not there",
                            );
                        }
                        (Ok(cursor), Some(numbering)) if cursor.numbering > numbering => {
                            self.disagree(table, &place, "a cursor of a numbering yet to come");
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
                    self.find(Finding::Row { table, key, fault });
                }
                Ok(Some(host)) if !self.has(Table::Host, &key::host(host))? => {
                    self.disagree(table, &place, "it speaks for a host that is not there");
                }
                Ok(_) => {}
            }
        }
        Ok(())
    }

    fn dead_letters(&mut self) -> Result<(), Unread> {
        let table = Table::Dead;
        let mut rows = self.table(table);
        while let Some((place, row)) = rows.next()? {
            match key::read_seq(&place).and_then(|number| Ok((number, dead::decode(&row)?))) {
                Ok((number, _)) => {
                    self.given_out("dead letter", number, self.counters.next_dead);
                }
                Err(fault) => {
                    let key = place.to_vec();
                    self.find(Finding::Row { table, key, fault });
                }
            }
        }
        Ok(())
    }

    pub(super) fn disagree(&mut self, table: Table, key: &[u8], how: &'static str) {
        let key = key.to_vec();
        self.find(Finding::Disagree { table, key, how });
    }
}
