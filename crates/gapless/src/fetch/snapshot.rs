//! A repository as its host serves it: spilled, checked whole, and compared with what is held.
