//! Tests that need no network: the configuration, the commands and the HTTP interface, against
//! a fake mirror or a data folder.

mod commands;
mod config;
mod fake;
mod retention;
mod store_command;
mod web;
