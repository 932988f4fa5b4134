//! Blocks of a repository by their CIDs: its commit, the nodes of its tree, its
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
use crate::serve::limits::{BLOCKS, BLOCKS_BYTES};
use crate::serve::lookup::Exact;
use crate::serve::refuse::Refusal;
use crate::serve::tree_cache::{Planned, blocking, in_time};

impl Serving {
    /// A CAR without roots that has all of these blocks.
    pub async fn blocks(
        self: &Arc<Self>,
        did: &Did,
        cids: Vec<Cid>,
        peer: Option<IpAddr>,
    ) -> Result<(Exact, Vec<u8>), Refusal> {
        if cids.is_empty() || cids.len() > BLOCKS {
            return Err(Refusal::invalid(format!(
                "`cids` must be given once to {BLOCKS} times"
            )));
        }
        self.needs_everything()?;
        let _share = in_time(self.limits.turn, self.shares.wait(peer)).await?;
        let planned = self.planned(did, false).await?;
        let found = blocking(move || find(planned, &cids)).await?;
        match found {
            Ok(found) => Ok(found),
            Err(Unfound::Refused(refusal)) => Err(refusal),
            Err(Unfound::Damaged(exact, why)) => {
                self.report_damage(did, exact.head, &why).await;
                Err(Refusal::Internal(why))
            }
        }
    }
}

enum Unfound {
    Refused(Refusal),
    Damaged(Box<Exact>, String),
}

impl From<StoreError> for Unfound {
    fn from(error: StoreError) -> Unfound {
        Unfound::Refused(error.into())
    }
}

/// Ends a walk when everything is found.
enum End {
    Found,
    Tree(TreeError),
}

impl From<TreeError> for End {
    fn from(error: TreeError) -> End {
        End::Tree(error)
    }
}

fn find(planned: Planned, cids: &[Cid]) -> Result<(Exact, Vec<u8>), Unfound> {
    let Planned { exact, tree, .. } = planned;
    let signed = &tree.signed;
    // Where the records among them are; the first path of each will do.
    let of_record = |cid: &&Cid| **cid != signed.commit_cid() && signed.node(cid).is_none();
    let mut wanted: HashMap<Cid, Option<Vec<u8>>> = cids
        .iter()
        .filter(of_record)
        .map(|cid| (*cid, None))
        .collect();
    let mut left = wanted.len();
    let walked = match left {
        0 => Ok(()),
        _ => signed.each::<End>(|part| {
            if let Part::Record(key, cid) = part
                && let Some(path @ None) = wanted.get_mut(&cid)
            {
                *path = Some(key.to_vec());
                left -= 1;
            }
            match left {
                0 => Err(End::Found),
                _ => Ok(()),
            }
        }),
    };
    if let Err(End::Tree(error)) = walked {
        return Err(Unfound::Damaged(Box::new(exact), error.to_string()));
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
            let record = exact.view.record(exact.id, path)?;
            let bytes = record.as_ref().and_then(|record| record.bytes());
            match bytes.filter(|bytes| cid.matches(bytes)) {
                Some(bytes) => write_block(&mut car, cid, bytes),
                None => {
                    let why = format!("the record {cid} is missing or spoilt");
                    return Err(Unfound::Damaged(Box::new(exact), why));
                }
            }
        } else {
            missing.push(cid.to_string());
        }
        if car.len() > BLOCKS_BYTES {
            return Err(Unfound::Refused(Refusal::invalid(format!(
                "these blocks have more than {BLOCKS_BYTES} bytes together; ask for fewer"
            ))));
        }
    }
    if missing.is_empty() {
        Ok((exact, car))
    } else {
        Err(Unfound::Refused(Refusal::BlockNotFound(format!(
            "Could not find blocks: {}",
            missing.join(", ")
        ))))
    }
}
