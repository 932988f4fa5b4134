//! The values of file, environment and flags, merged by precedence and not yet
//! validated.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

use super::error::{ConfigError, ValueSource};
use super::flags::Flags;
use super::keys;

/// The file that is read if it exists and no other is named.
const DEFAULT_FILE: &str = "gapless.toml";
/// The largest configuration file, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// The prefix of all environment variables that Gapless reads.
const PREFIX: &str = "GAPLESS_";
/// Variables that are no keys: the configuration file, and the server that the
/// commands ask.
const NOT_KEYS: [&str; 2] = ["GAPLESS_CONFIG", "GAPLESS_URL"];
/// Prefixes of variables that orchestrators set for a service named gapless.
const FOREIGN_PREFIXES: [&str; 2] = ["GAPLESS_SERVICE_", "GAPLESS_PORT"];

/// A value that is not validated yet, and the layer that set it.
#[derive(Debug, Clone)]
pub(crate) struct RawValue {
    pub(crate) value: Value,
    pub(crate) at: ValueSource,
}

/// For each key the value of the highest layer that sets it.
#[derive(Debug, Default)]
pub(crate) struct RawConfig {
    values: BTreeMap<&'static str, RawValue>,
}

impl RawConfig {
    pub(crate) fn get(&self, key: &str) -> Option<&RawValue> {
        self.values.get(key)
    }

    pub(crate) fn sources(&self) -> BTreeMap<&'static str, ValueSource> {
        let sources = self.values.iter();
        sources
            .map(|(key, given)| (*key, given.at.clone()))
            .collect()
    }

    fn insert(&mut self, key: &str, value: Value, at: ValueSource) -> Result<(), ConfigError> {
        match keys::find_key(key) {
            Some(known) => {
                self.values.insert(known, RawValue { value, at });
                Ok(())
            }
            None => Err(ConfigError::UnknownKey {
                at,
                key: key.to_owned(),
                nearest: keys::nearest_key(key),
            }),
        }
    }
}

/// Returns the `GAPLESS_*` variables of this process.
pub fn environment() -> Result<Vec<(String, String)>, ConfigError> {
    let mut found = Vec::new();
    for (name, value) in std::env::vars_os() {
        let Some(name) = name.to_str().filter(|name| name.starts_with(PREFIX)) else {
            continue;
        };
        let name = name.to_owned();
        match value.into_string() {
            Ok(value) => found.push((name, value)),
            Err(_) => return Err(ConfigError::NotText { name }),
        }
    }
    Ok(found)
}

/// Reads all layers, from the file up to the flags.
pub(crate) fn read_layers(
    flags: &Flags,
    environment: &[(String, String)],
    here: &Path,
) -> Result<RawConfig, ConfigError> {
    let mut raw = RawConfig::default();
    if let Some(path) = config_path(flags, environment, here) {
        add_file(&mut raw, path)?;
    }
    add_environment(&mut raw, environment)?;
    for (key, flag, text) in flags.to_values() {
        raw.insert(key, Value::String(text), ValueSource::Flag(flag.to_owned()))?;
    }
    Ok(raw)
}

fn config_path(flags: &Flags, environment: &[(String, String)], here: &Path) -> Option<PathBuf> {
    let mut variables = environment.iter();
    let named = variables.find(|(name, _)| name == "GAPLESS_CONFIG");
    let by_variable = named.map(|(_, path)| PathBuf::from(path));
    let found = || Some(here.join(DEFAULT_FILE)).filter(|path| path.exists());
    flags.config.clone().or(by_variable).or_else(found)
}

fn add_file(raw: &mut RawConfig, path: PathBuf) -> Result<(), ConfigError> {
    let text = read_text("the configuration file", &path, MAX_FILE_BYTES)?;
    let table: Table = toml::from_str(&text).map_err(|error| ConfigError::Syntax {
        message: error.to_string().trim_end().to_owned(),
        path: path.clone(),
    })?;
    let at = || ValueSource::File(path.clone());
    for (key, value) in table {
        match value {
            // `[upstream]` where `[[upstream]]` is meant.
            Value::Table(_) if key == "upstream" => {
                return Err(ConfigError::Value {
                    at: at(),
                    key,
                    value: "a single table".to_owned(),
                    expected: "a list: write [[upstream]], in double brackets, above each entry"
                        .to_owned(),
                });
            }
            Value::Table(inner) => {
                for (inner_key, value) in inner {
                    raw.insert(&format!("{key}.{inner_key}"), value, at())?;
                }
            }
            value => raw.insert(&key, value, at())?,
        }
    }
    Ok(())
}

fn add_environment(
    raw: &mut RawConfig,
    environment: &[(String, String)],
) -> Result<(), ConfigError> {
    for (name, text) in environment {
        let foreign = FOREIGN_PREFIXES
            .iter()
            .any(|prefix| name.starts_with(prefix));
        if !name.starts_with(PREFIX) || NOT_KEYS.contains(&name.as_str()) || foreign {
            continue;
        }
        let at = ValueSource::Environment(name.clone());
        match keys::layer_keys().find(|key| keys::env_variable(key) == *name) {
            Some(key) => raw.insert(key, Value::String(text.clone()), at)?,
            None => {
                let meant = name.trim_start_matches(PREFIX).to_lowercase();
                // Keys inside an entry of `[[upstream]]` have no variables.
                let nearest = keys::nearest_key(&meant)
                    .map(|key| keys::find_key(&key).unwrap_or("upstream"))
                    .map(keys::env_variable);
                return Err(ConfigError::UnknownKey {
                    at,
                    key: name.clone(),
                    nearest,
                });
            }
        }
    }
    Ok(())
}

/// Some editors write this mark at the beginning of a file.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// Reads a text file of at most `max_bytes` and removes a byte order mark.
pub(crate) fn read_text(
    source_name: &'static str,
    path: &Path,
    max_bytes: u64,
) -> Result<String, ConfigError> {
    let unreadable = |error| ConfigError::Unreadable {
        source_name,
        path: path.to_owned(),
        error,
    };
    let file = std::fs::File::open(path).map_err(unreadable)?;
    let mut text = String::new();
    let mut bounded = file.take(max_bytes.saturating_add(1));
    bounded.read_to_string(&mut text).map_err(unreadable)?;
    if text.len() as u64 > max_bytes {
        let words = format!("it has more than {max_bytes} bytes");
        return Err(unreadable(std::io::Error::other(words)));
    }
    if text.starts_with(BYTE_ORDER_MARK) {
        text.remove(0);
    }
    Ok(text)
}
