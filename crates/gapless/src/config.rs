//! The configuration: raw, from file, environment and flags; validated once.
