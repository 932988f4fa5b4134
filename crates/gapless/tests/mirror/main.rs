//! The mirror against the test network: streams, events and crashes. Real
//! sockets, real signatures, a real store; and the truth to compare with.

mod basic;
mod clock;
mod common;
mod contents;
mod crashes;
mod desks;
mod directory;
mod drive;
mod events;
mod filters;
mod guards;
mod jetstream;
mod late;
mod lies;
mod logs;
mod lost;
mod operated;
mod oracle;
mod process;
mod program;
mod readers;
mod relayed;
mod room;
mod secure;
mod sources;
mod standing;
mod stops;
mod streams;
mod teller;
mod tracked;
mod unheard;
mod unreadable;
mod way;
