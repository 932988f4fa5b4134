//! `gapless run` and `gapless config show`: the commands that read the
//! configuration.

use std::path::Path;

use super::{CommandError, CommandOutcome};
use crate::config::{self, Config, Flags, LoadedConfig, WAYS_TO_START};
use crate::terminal::print_line;

fn load_config(flags: &Flags) -> Result<LoadedConfig, CommandError> {
    let environment = config::environment();
    environment
        .and_then(|environment| config::load(flags, &environment, Path::new(".")))
        .map_err(|error| CommandError::Usage(error.to_string()))
}

pub(crate) fn run(flags: &Flags) -> Result<CommandOutcome, CommandError> {
    let loaded = load_config(flags)?;
    // A configured interval is kept, whatever the sweeps cost.
    let sweep_fixed = loaded.source("sweep_every") != config::ValueSource::Default;
    let config = loaded.config;
    if !config.mirror.has_sources() && !has_store(&config) {
        return Err(CommandError::Usage(WAYS_TO_START.to_owned()));
    }
    match crate::run::run(config, sweep_fixed) {
        Ok(()) => Ok(CommandOutcome::Fine),
        Err(error) if error.is_usage() => Err(CommandError::Usage(error.to_string())),
        Err(error) => Err(CommandError::Failed(error.to_string())),
    }
}

/// Whether the data folder has a store, which may know upstreams.
fn has_store(config: &Config) -> bool {
    config.mirror.data.join("format").exists()
}

pub(crate) fn show_config(flags: &Flags, json: bool) -> Result<CommandOutcome, CommandError> {
    let loaded = load_config(flags)?;
    if json {
        print_line(&loaded.to_json().to_string());
    } else {
        print_line(loaded.to_toml().trim_end());
    }
    Ok(CommandOutcome::Fine)
}
