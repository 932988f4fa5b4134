//! What needs no network: the configuration, the commands and the HTTP interface. A mirror
//! that is asked or run_command here is a fake, or a folder on the disk.

mod commands;
mod config;
mod fake;
mod store_command;
mod web;
