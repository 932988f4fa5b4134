//! What is held, handed on as a PDS or a relay would hand it on: read by others who
//! check it against the owner's signature themselves.

pub mod firehose;

use std::sync::Arc;

use crate::shared::Shared;
use firehose::{Firehose, FirehoseSettings};

/// What the handlers of `/xrpc` read from. One for a running mirror.
pub struct Serving {
    pub shared: Arc<Shared>,
    pub firehose: Arc<Firehose>,
}

impl Serving {
    pub fn new(shared: Arc<Shared>, firehose: FirehoseSettings) -> Serving {
        Serving {
            firehose: Arc::new(Firehose::new(shared.clone(), firehose)),
            shared,
        }
    }
}
