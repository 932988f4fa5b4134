//! The row transaction: everything that one event, one answer or one chunk of a
//! snapshot means for a repository.

pub mod step;
