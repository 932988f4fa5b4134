//! Returns blocks of a repository by their CIDs: its commit, the nodes of its tree and its
//! records, as of the commit that is held.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use gapless_atp::car::{write_block, write_header};
use gapless_atp::cid::Cid;
use gapless_atp::mst::TreeError;
use gapless_atp::repo::Part;
use gapless_atp::syntax::Did;
use gapless_store::error::StoreError;

use crate::serve::Serving;
use crate::serve::limits::{MAX_BLOCKS, MAX_BLOCKS_BYTES};
use crate::serve::lookup::ServedState;
use crate::serve::refuse::ServeError;
use crate::serve::tree_cache::{StateWithTree, run_blocking, with_deadline};

impl Serving {
    /// Returns all of these blocks as a CAR without roots.
    pub(crate) async fn blocks(
        self: &Arc<Self>,
        did: &Did,
        cids: Vec<Cid>,
        peer: Option<IpAddr>,
    ) -> Result<(ServedState, Vec<u8>), ServeError> {
        if cids.is_empty() || cids.len() > MAX_BLOCKS {
            return Err(ServeError::invalid(format!(
                "`cids` must be given once to {MAX_BLOCKS} times"
            )));
        }
        self.require_whole_repos()?;
        let _permit = with_deadline(self.limits.turn, self.ip_limiter.acquire(peer)).await?;
        let found = self.state_with_tree(did, false).await?;
        let found = run_blocking(move || find_blocks(found, &cids)).await?;
        match found {
            Ok(found) => Ok(found),
            Err(FindError::Serve(refusal)) => Err(refusal),
            Err(FindError::Damaged(state, why)) => {
                self.report_damage(did, state.head, &why).await;
                Err(ServeError::Internal(why))
            }
        }
    }
}

/// Why the blocks cannot be returned.
enum FindError {
    Serve(ServeError),
    Damaged(Box<ServedState>, String),
}

impl From<StoreError> for FindError {
    fn from(error: StoreError) -> FindError {
        FindError::Serve(error.into())
    }
}

/// Why a walk through the tree ended early.
enum WalkEnd {
    AllFound,
    Tree(TreeError),
}

impl From<TreeError> for WalkEnd {
    fn from(error: TreeError) -> WalkEnd {
        WalkEnd::Tree(error)
    }
}

fn find_blocks(found: StateWithTree, cids: &[Cid]) -> Result<(ServedState, Vec<u8>), FindError> {
    let StateWithTree { state, tree, .. } = found;
    let signed = &tree.signed;
    // The paths of the records among them. One path of each record suffices.
    let of_record = |cid: &&Cid| **cid != signed.commit_cid() && signed.node(cid).is_none();
    let mut wanted: HashMap<Cid, Option<Vec<u8>>> = cids
        .iter()
        .filter(of_record)
        .map(|cid| (*cid, None))
        .collect();
    let mut left = wanted.len();
    let walked = match left {
        0 => Ok(()),
        _ => signed.each::<WalkEnd>(|part| {
            if let Part::Record(key, cid) = part
                && let Some(path @ None) = wanted.get_mut(&cid)
            {
                *path = Some(key.to_vec());
                left -= 1;
            }
            match left {
                0 => Err(WalkEnd::AllFound),
                _ => Ok(()),
            }
        }),
    };
    if let Err(WalkEnd::Tree(error)) = walked {
        return Err(FindError::Damaged(Box::new(state), error.to_string()));
    }
    let mut car = Vec::new();
    write_header(&mut car, &[]);
    let (mut written, mut missing) = (Vec::new(), Vec::new());
    for cid in cids {
        if written.contains(cid) {
            continue;
        }
        written.push(*cid);
        if *cid == signed.commit_cid() {
            write_block(&mut car, cid, signed.commit_block());
        } else if let Some(node) = signed.node(cid) {
            write_block(&mut car, cid, node);
        } else if let Some(Some(path)) = wanted.get(cid) {
            let record = state.view.record(state.id, path)?;
            let bytes = record.as_ref().and_then(|record| record.bytes());
            match bytes.filter(|bytes| cid.matches(bytes)) {
                Some(bytes) => write_block(&mut car, cid, bytes),
                None => {
                    let why = format!("the record {cid} is missing or damaged");
                    return Err(FindError::Damaged(Box::new(state), why));
                }
            }
        } else {
            missing.push(cid.to_string());
        }
        if car.len() > MAX_BLOCKS_BYTES {
            return Err(FindError::Serve(ServeError::invalid(format!(
                "these blocks have more than {MAX_BLOCKS_BYTES} bytes together; ask for fewer"
            ))));
        }
    }
    if missing.is_empty() {
        Ok((state, car))
    } else {
        Err(FindError::Serve(ServeError::BlockNotFound(format!(
            "Could not find blocks: {}",
            missing.join(", ")
        ))))
    }
}
