//! The fault script: every fault that mirrors are known to fall to, against the real
//! program, by the hosts' own streams and by a relay's. All the while it is asked what
//! it holds, and every answer is compared with the truth at the rev that it states.

mod checker;
mod demo;
mod layouts;
mod served;
mod stage;
mod steps;
