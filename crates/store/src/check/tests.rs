//! Damaged on purpose.
