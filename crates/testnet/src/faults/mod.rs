//! Faults: what can be made to go wrong, by name, each with a counter.
//!
//! `kinds` has the names, `legal` their limits, `spec` how a fault and its scope are
//! written, `registry` the faults that are set and how often each has fired. The effects
//! are small functions where a fault applies: events (`events`), HTTP responses (`http`),
//! and, next to the code that they change, CARs (`pds::car`), sockets (`stream`) and the
//! relay. Immediate faults are in `world::actions`.

mod events;
mod http;
mod kinds;
mod legal;
mod registry;
mod spec;

pub(crate) use events::shape_event;
pub use http::{drip, gate};
pub use kinds::{CATALOGUE, Fault, Part, Place};
pub(crate) use legal::MOST_RECORDS;
pub use registry::Faults;
pub use spec::{Spec, SpecError};
