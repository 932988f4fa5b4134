//! Placeholder until the first command.
fn main() {}
