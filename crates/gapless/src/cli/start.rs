//! `gapless run` and `gapless config show`: the commands that read the
//! configuration.

use std::path::Path;

use super::table::say;
use super::{Failure, Outcome};
use crate::config::{self, Config, Flags, Loaded, WAYS_TO_START};

fn load(flags: &Flags) -> Result<Loaded, Failure> {
    let environment = config::environment();
    environment
        .and_then(|environment| config::load(flags, &environment, Path::new(".")))
        .map_err(|error| Failure::Usage(error.to_string()))
}

pub fn run(flags: &Flags) -> Result<Outcome, Failure> {
    let loaded = load(flags)?;
    // An interval that somebody chose is kept, whatever it costs.
    let sweep_fixed = loaded.source("sweep_every") != config::Source::Default;
    let config = loaded.config;
    if !config.has_sources() && !has_store(&config) {
        return Err(Failure::Usage(WAYS_TO_START.to_owned()));
    }
    match crate::run::run(config, sweep_fixed) {
        Ok(()) => Ok(Outcome::Fine),
        Err(error) if error.is_usage() => Err(Failure::Usage(error.to_string())),
        Err(error) => Err(Failure::Failed(error.to_string())),
    }
}

/// A store may remember what is followed.
fn has_store(config: &Config) -> bool {
    config.data.join("format").exists()
}

pub fn show(flags: &Flags, json: bool) -> Result<Outcome, Failure> {
    let loaded = load(flags)?;
    match json {
        true => say(&loaded.to_json().to_string()),
        false => say(loaded.to_toml().trim_end()),
    }
    Ok(Outcome::Fine)
}
