//! The directory of did:plc: all its operations, in order.

mod document;
mod operation;
mod serve;

pub(crate) use document::document;
pub(crate) use operation::{Operation, Statement};
pub(crate) use serve::{answer, route};

use std::collections::HashMap;

use gapless_atp::cid::Cid;
use gapless_atp::syntax::Did;
use serde_json::{Value as Json, json};

use crate::world::timestamp;

/// An operation, with its place in the directory's log.
#[derive(Debug, Clone)]
pub(crate) struct Logged {
    pub seq: u64,
    pub did: Did,
    pub created_micros: u64,
    pub operation: Operation,
}

/// The directory's log of operations.
#[derive(Debug, Default)]
pub(crate) struct Plc {
    log: Vec<Logged>,
    /// The places in `log` of each DID's operations.
    of: HashMap<Did, Vec<usize>>,
}

impl Plc {
    pub(crate) fn append(&mut self, did: &Did, operation: Operation, created_micros: u64) {
        let at = self.log.len();
        self.log.push(Logged {
            seq: at as u64 + 1,
            did: did.clone(),
            created_micros,
            operation,
        });
        self.of.entry(did.clone()).or_default().push(at);
    }

    /// The number of the last operation.
    pub(crate) fn last_seq(&self) -> u64 {
        self.log.len() as u64
    }

    /// The operations of a DID up to a number, oldest first.
    pub(crate) fn operations(&self, did: &Did, up_to: u64) -> Vec<&Logged> {
        let at = self.of.get(did).map_or(&[][..], Vec::as_slice);
        let all = at.iter().map(|at| &self.log[*at]);
        all.filter(|logged| logged.seq <= up_to).collect()
    }

    /// The CID of a DID's last operation, which the next one names as its predecessor.
    pub(crate) fn head(&self, did: &Did) -> Option<Cid> {
        let last = self.of.get(did)?.last()?;
        Some(self.log[*last].operation.cid)
    }

    /// At most `count` operations after a number.
    pub(crate) fn export(&self, after: u64, count: usize) -> &[Logged] {
        let from = usize::try_from(after)
            .unwrap_or(usize::MAX)
            .min(self.log.len());
        let to = from.saturating_add(count).min(self.log.len());
        &self.log[from..to]
    }

    /// At most `count` operations created after a time.
    pub(crate) fn export_after_time(&self, after: &str, count: usize) -> Vec<&Logged> {
        let later = self
            .log
            .iter()
            .filter(|logged| timestamp(logged.created_micros).as_str() > after);
        later.take(count).collect()
    }
}

impl Logged {
    /// The operation as the audit log and the export show it.
    pub(crate) fn to_json(&self) -> Json {
        json!({
            "did": self.did.as_str(),
            "operation": self.operation.json,
            "cid": self.operation.cid.to_string(),
            "nullified": false,
            "createdAt": timestamp(self.created_micros),
        })
    }
}
