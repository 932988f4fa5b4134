//! The fault script: the acts of `gapless::demo::acts` against the real program, by the streams
//! of hosts and by a relay's. Meanwhile the checker asks the program without a pause what it
//! holds, and compares every answer with the truth at the rev that the answer states.

mod acts;
mod checker;
mod demo;
mod layouts;
mod served;
mod stage;
