//! The answer to `/ready`: every reason why programs cannot rely on this mirror now.

pub(crate) mod hosts;
pub(crate) mod upstreams;

use std::sync::atomic::Ordering;

use crate::api::Readiness;
use crate::inspect::Inspector;

/// Old debts keep the mirror from being ready once they concern more than one repository in this
/// many: in a large network, some hosts are always unreachable.
const OVERDUE_ONE_IN: u64 = 100;

impl Inspector {
    pub(crate) fn readiness(&self) -> Readiness {
        let mut reasons = Vec::new();
        if !self.begun.load(Ordering::Relaxed) {
            reasons.push("starting: loading upstreams and tracked repositories".to_owned());
        }
        if let Some(lack) = self.services.disk.shortage() {
            reasons.push(format!("nothing is written: {}", lack.error));
        }
        if let Some(fault) = self.services.shutdown.fault() {
            reasons.push(format!("the store cannot be written: {fault}"));
        }
        let ready = &self.settings.ready;
        match self.counter.count() {
            Err(error) => reasons.push(error.to_string()),
            Ok(counted) => {
                let (overdue, total) = (counted.overdue, counted.counts.total);
                if overdue.saturating_mul(OVERDUE_ONE_IN) > total {
                    reasons.push(format!(
                        "{overdue} of {total} repositories have debts older than ready.max_debt_age \
                         ({} s); the oldest debt is {} s old",
                        ready.max_debt_age.as_secs(),
                        counted.oldest_debt.unwrap_or(0)
                    ));
                }
            }
        }
        self.add_silent_upstreams(&mut reasons);
        self.add_unswept_hosts(&mut reasons);
        Readiness {
            ready: reasons.is_empty(),
            reasons,
        }
    }
}
