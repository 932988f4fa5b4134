//! The mirror against the test network: streams, events and crashes. Real
//! sockets, real signatures, a real store; and the truth to compare with.

mod basic;
mod clock;
mod contents;
mod crashes;
mod desks;
mod directory;
mod events;
mod filters;
mod guards;
mod health;
mod jetstream;
mod late_events;
mod lies;
mod operator;
mod races;
mod readers;
mod relayed;
mod room;
mod secure;
mod silent_upstreams;
mod sources;
mod stops;
mod streams;
mod tracked;
mod unreadable;
