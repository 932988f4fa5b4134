//! Which upstreams and hosts keep the mirror from being ready.

pub(crate) mod hosts;
pub(crate) mod upstreams;
