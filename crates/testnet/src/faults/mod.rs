//! Everything that can be made to go wrong, by name, with a counter each.
//!
//! `kinds` has the names, `legal` their limits, `spec` how they are written with their scope,
//! `registry` what is set and how often it fired. The rest are small functions
//! at the places where faults bite: events (`events`), HTTP answers (`http`),
//! and, beside the code they spoil, CARs (`pds::car`), sockets (`stream`) and
//! the relay. Faults that are done at once live in `world::actions`.

mod events;
mod http;
mod kinds;
mod legal;
mod registry;
mod spec;

pub use events::shape_event;
pub use http::{drip, gate};
pub use kinds::{CATALOGUE, Fault, Part, Place};
pub use legal::MOST_RECORDS;
pub use registry::Faults;
pub use spec::{Spec, SpecError};
