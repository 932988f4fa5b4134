//! One record with the proof that it is there, or the proof that it is not, at the
//! commit that is held.

use std::net::IpAddr;
use std::sync::Arc;

use gapless_atp::syntax::Did;

use crate::serve::Serving;
use crate::serve::lookup::Exact;
use crate::serve::refuse::Refusal;
use crate::serve::tree_cache::{Planned, blocking, in_time};

impl Serving {
    /// The CAR of the proof.
    pub async fn record_proof(
        self: &Arc<Self>,
        did: &Did,
        path: String,
        peer: Option<IpAddr>,
    ) -> Result<(Exact, Vec<u8>), Refusal> {
        self.needs_all_keys()?;
        let _share = in_time(self.limits.turn, self.shares.wait(peer)).await?;
        let planned = self.planned(did, false).await?;
        let serving = self.clone();
        let proved = blocking(move || serving.prove(planned, &path)).await?;
        match proved {
            Ok(proved) => Ok(proved),
            Err(Unproved::Refused(refusal)) => Err(refusal),
            Err(Unproved::Damaged(exact, why)) => {
                self.report_damage(did, exact.head, &why).await;
                Err(Refusal::Internal(why))
            }
        }
    }

    fn prove(&self, planned: Planned, path: &str) -> Result<(Exact, Vec<u8>), Unproved> {
        let Planned { exact, tree, .. } = planned;
        let way = match tree.signed.way_down(path.as_bytes()) {
            Ok(way) => way,
            Err(error) => return Err(Unproved::Damaged(Box::new(exact), error.to_string())),
        };
        let Some(cid) = way.value else {
            let car = tree.signed.write_proof(&way, None);
            return Ok((exact, car));
        };
        let record = exact.view.record(exact.id, path.as_bytes());
        let record = record.map_err(|error| Unproved::Refused(error.into()))?;
        let record = record.filter(|record| record.cid == cid);
        match record.as_ref().map(|record| record.bytes()) {
            Some(Some(bytes)) if cid.matches(bytes) => {
                let car = tree.signed.write_proof(&way, Some((&cid, bytes)));
                Ok((exact, car))
            }
            Some(None) => Err(Unproved::Refused(Refusal::invalid(format!(
                "{}; of {path} it has the key alone",
                self.keeps_only()
            )))),
            _ => Err(Unproved::Damaged(
                Box::new(exact),
                format!("the record {cid} at '{path}' is missing or spoilt"),
            )),
        }
    }
}

enum Unproved {
    Refused(Refusal),
    Damaged(Box<Exact>, String),
}
