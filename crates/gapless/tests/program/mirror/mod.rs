//! Tests the mirror against the test network: streams, events and crashes, over real sockets,
//! with real signatures and a real store.

mod basic;
mod clock;
mod consumers;
mod contents;
mod crashes;
mod desks;
mod directory;
mod disk_space;
mod events;
mod filters;
mod guards;
mod health;
mod jetstream;
mod kills;
mod late_events;
mod lies;
mod operator;
mod races;
mod readers;
mod relayed;
mod secure;
mod silent_upstreams;
mod sources;
mod stops;
mod streams;
mod tracked;
mod unreadable;
