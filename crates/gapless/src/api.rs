//! What outsiders ask of a running mirror, and what they are told.
