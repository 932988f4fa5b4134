//! Proves that a record exists, or that it does not, in the commit that is held.

use std::net::IpAddr;
use std::sync::Arc;

use gapless_atp::syntax::Did;

use crate::serve::Serving;
use crate::serve::lookup::ServedState;
use crate::serve::refuse::ServeError;
use crate::serve::tree_cache::{StateWithTree, run_blocking, with_deadline};

impl Serving {
    /// Returns the proof as a CAR, and the state that it is about.
    pub(crate) async fn record_proof(
        self: &Arc<Self>,
        did: &Did,
        path: String,
        peer: Option<IpAddr>,
    ) -> Result<(ServedState, Vec<u8>), ServeError> {
        self.require_all_keys()?;
        let _permit = with_deadline(self.limits.turn, self.ip_limiter.acquire(peer)).await?;
        let found = self.state_with_tree(did, false).await?;
        let serving = self.clone();
        let proof = run_blocking(move || serving.prove(found, &path)).await?;
        match proof {
            Ok(proof) => Ok(proof),
            Err(ProofError::Serve(refusal)) => Err(refusal),
            Err(ProofError::Damaged(state, why)) => {
                self.report_damage(did, state.head, &why).await;
                Err(ServeError::Internal(why))
            }
        }
    }

    fn prove(
        &self,
        found: StateWithTree,
        path: &str,
    ) -> Result<(ServedState, Vec<u8>), ProofError> {
        let StateWithTree { state, tree, .. } = found;
        let path_down = match tree.signed.way_down(path.as_bytes()) {
            Ok(path_down) => path_down,
            Err(error) => return Err(ProofError::Damaged(Box::new(state), error.to_string())),
        };
        let Some(cid) = path_down.value else {
            let car = tree.signed.write_proof(&path_down, None);
            return Ok((state, car));
        };
        let record = state.view.record(state.id, path.as_bytes());
        let record = record.map_err(|error| ProofError::Serve(error.into()))?;
        let record = record.filter(|record| record.cid == cid);
        match record.as_ref().map(|record| record.bytes()) {
            Some(Some(bytes)) if cid.matches(bytes) => {
                let car = tree.signed.write_proof(&path_down, Some((&cid, bytes)));
                Ok((state, car))
            }
            Some(None) => Err(ProofError::Serve(ServeError::invalid(format!(
                "{}; it holds only the key of {path}",
                self.describe_filter()
            )))),
            _ => Err(ProofError::Damaged(
                Box::new(state),
                format!("the record {cid} at '{path}' is missing or damaged"),
            )),
        }
    }
}

/// Why a proof cannot be given.
enum ProofError {
    Serve(ServeError),
    Damaged(Box<ServedState>, String),
}
