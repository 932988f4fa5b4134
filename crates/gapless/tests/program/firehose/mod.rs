//! The firehose that a mirror sends: read by consumers that check every frame, and
//! by another mirror. Real sockets, real signatures, and the truth to compare with.

mod chain;
mod ends;
mod gone;
mod slow;
mod strict;
mod window;
