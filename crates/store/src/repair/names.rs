//! Repairs hosts, upstreams, dead letters and the filter.

use std::collections::BTreeMap;

use gapless_core::ledger::notice::ResetReason;
use gapless_core::ledger::{Host, HostId, stream};

use super::fix::RepairRun;
use crate::error::StoreError;
use crate::table::{Table, dead, host, key, upstream, wish};

impl RepairRun<'_> {
    pub(super) fn fix_hosts(&mut self) -> Result<(), StoreError> {
        let mut named = BTreeMap::new();
        let mut rows = self.table(Table::Host);
        while let Some((place, row)) = rows.next()? {
            let read = key::read_host(&place).and_then(|id| Ok((id, host::decode(&row)?)));
            let Ok((id, mut row)) = read else {
                self.remove(Table::Host, place)?;
                continue;
            };
            self.highest.host = self.highest.host.max(id.0);
            self.hosts.insert(id.0);
            if self.lost() && row.swept.take().is_some() {
                self.put(Table::Host, key::host(id), host::encode(&row))?;
            }
            named.insert(row.name, id);
        }
        let mut rows = self.table(Table::HostName);
        while let Some((place, row)) = rows.next()? {
            let name = std::str::from_utf8(&place).ok().map(str::to_owned);
            match (host::decode_id(&row), name) {
                (Ok(id), Some(name)) => self.fix_host_name(id, name, &named)?,
                _ => self.remove(Table::HostName, place)?,
            }
        }
        for (name, id) in named {
            let found = self.tx.get(Table::HostName, name.as_bytes())?;
            if found.and_then(|row| host::decode_id(&row).ok()) != Some(id) {
                self.mend_row(Table::HostName, name.as_str(), host::encode_id(id))?;
            }
        }
        Ok(())
    }

    /// Restores the row of a host from its name; removes a name that leads to a host with
    /// another name.
    fn fix_host_name(
        &mut self,
        id: HostId,
        name: String,
        named: &BTreeMap<String, HostId>,
    ) -> Result<(), StoreError> {
        if named.contains_key(&name) {
            // Compared with the host's own row afterwards.
            return Ok(());
        }
        if !self.hosts.insert(id.0) {
            return self.remove(Table::HostName, name.as_str());
        }
        self.highest.host = self.highest.host.max(id.0);
        let row = Host {
            name,
            ..Host::default()
        };
        self.mend_row(Table::Host, key::host(id), host::encode(&row))
    }

    pub(super) fn fix_upstreams(&mut self) -> Result<(), StoreError> {
        let mut rows = self.table(Table::Upstream);
        while let Some((place, row)) = rows.next()? {
            let id = match key::read_upstream(&place) {
                Ok((id, true)) => id,
                Ok((id, false)) => {
                    // The upstream's row comes before its cursor. After a loss the
                    // cursor may be ahead of lost effects.
                    let cursor = upstream::decode_cursor(&row).map(|row| row.numbering).ok();
                    let numbering = self.upstreams.get(&id.0).copied();
                    if self.lost() || cursor.is_none() || cursor > numbering {
                        self.remove(Table::Upstream, place)?;
                    }
                    continue;
                }
                Err(_) => {
                    self.remove(Table::Upstream, place)?;
                    continue;
                }
            };
            self.highest.upstream = self.highest.upstream.max(id.0);
            let Ok(mut row) = upstream::decode(&row) else {
                self.remove(Table::Upstream, place)?;
                continue;
            };
            self.upstreams.insert(id.0, row.numbering);
            let host_known = row.host.is_none_or(|host| self.hosts.contains(&host.0));
            if !host_known {
                row.host = None;
                self.mend_row(Table::Upstream, key::upstream(id), upstream::encode(&row))?;
            }
            if self.lost() {
                stream::begin_epoch(
                    self.now,
                    &mut row,
                    ResetReason::StoreRepaired,
                    &mut Vec::new(),
                );
                self.report.resets += 1;
                self.put(Table::Upstream, key::upstream(id), upstream::encode(&row))?;
            }
        }
        Ok(())
    }

    /// Removes a filter that cannot be read, so that everything is fetched again.
    pub(super) fn fix_filter(&mut self) -> Result<(), StoreError> {
        let (table, key) = (Table::Meta, wish::FILTER_KEY);
        let row = self.view.get(table, key)?;
        if row.is_some_and(|row| wish::decode_filter(&row).is_err()) {
            self.remove(table, key)
        } else {
            Ok(())
        }
    }

    pub(super) fn fix_dead_letters(&mut self) -> Result<(), StoreError> {
        let mut rows = self.table(Table::Dead);
        while let Some((place, row)) = rows.next()? {
            match key::read_seq(&place).and_then(|number| Ok((number, dead::decode(&row)?))) {
                Ok((number, _)) => self.highest.dead = self.highest.dead.max(number),
                Err(_) => self.remove(Table::Dead, place)?,
            }
        }
        Ok(())
    }
}
