//! What is held, handed on as a PDS or a relay would hand it on: read by others who
//! check it against the owner's signature themselves.

use std::sync::Arc;

use crate::shared::Shared;

/// What the handlers of `/xrpc` read from. One for a running mirror.
pub struct Serving {
    pub shared: Arc<Shared>,
}

impl Serving {
    pub fn new(shared: Arc<Shared>) -> Serving {
        Serving { shared }
    }
}
