//! What file, environment and flags say, laid over each other, not judged yet.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

use super::error::{ConfigError, Source};
use super::flags::Flags;
use super::keys;

/// The file that is read when none is named.
const FILE: &str = "gapless.toml";
/// Bytes of a configuration file.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// Variables of this beginning are ours.
const PREFIX: &str = "GAPLESS_";
/// Ours, but not keys: which file to read, and which server the commands ask.
const OTHERS: [&str; 2] = ["GAPLESS_CONFIG", "GAPLESS_URL"];
/// What orchestrators set for a service that is called gapless.
const FOREIGN: [&str; 2] = ["GAPLESS_SERVICE_", "GAPLESS_PORT"];

/// A value, and who said it.
#[derive(Debug, Clone)]
pub struct Said {
    pub value: Value,
    pub at: Source,
}

/// The topmost word on each key.
#[derive(Debug, Default)]
pub struct Raw {
    said: BTreeMap<&'static str, Said>,
}

impl Raw {
    pub fn get(&self, key: &str) -> Option<&Said> {
        self.said.get(key)
    }

    pub fn sources(&self) -> BTreeMap<&'static str, Source> {
        let sources = self.said.iter();
        sources.map(|(key, said)| (*key, said.at.clone())).collect()
    }

    fn say(&mut self, key: &str, value: Value, at: Source) -> Result<(), ConfigError> {
        match keys::known(key) {
            Some(known) => {
                self.said.insert(known, Said { value, at });
                Ok(())
            }
            None => Err(ConfigError::UnknownKey {
                at,
                key: key.to_owned(),
                nearest: keys::nearest(key),
            }),
        }
    }
}

/// The `GAPLESS_*` variables of this process.
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

/// Lays the layers over each other.
pub fn gather(
    flags: &Flags,
    environment: &[(String, String)],
    here: &Path,
) -> Result<Raw, ConfigError> {
    let mut raw = Raw::default();
    if let Some(path) = file(flags, environment, here) {
        from_file(&mut raw, path)?;
    }
    from_environment(&mut raw, environment)?;
    for (key, flag, text) in flags.given() {
        raw.say(key, Value::String(text), Source::Flag(flag.to_owned()))?;
    }
    Ok(raw)
}

fn file(flags: &Flags, environment: &[(String, String)], here: &Path) -> Option<PathBuf> {
    let mut variables = environment.iter();
    let named = variables.find(|(name, _)| name == "GAPLESS_CONFIG");
    let by_variable = named.map(|(_, path)| PathBuf::from(path));
    let found = || Some(here.join(FILE)).filter(|path| path.exists());
    flags.config.clone().or(by_variable).or_else(found)
}

fn from_file(raw: &mut Raw, path: PathBuf) -> Result<(), ConfigError> {
    let text = read_text("the configuration file", &path, MAX_FILE_BYTES)?;
    let table: Table = toml::from_str(&text).map_err(|error| ConfigError::Syntax {
        message: error.to_string().trim_end().to_owned(),
        path: path.clone(),
    })?;
    let at = || Source::File(path.clone());
    for (key, value) in table {
        match value {
            // One entry where a list of them is meant.
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
                    raw.say(&format!("{key}.{inner_key}"), value, at())?;
                }
            }
            value => raw.say(&key, value, at())?,
        }
    }
    Ok(())
}

fn from_environment(raw: &mut Raw, environment: &[(String, String)]) -> Result<(), ConfigError> {
    for (name, text) in environment {
        let foreign = FOREIGN.iter().any(|prefix| name.starts_with(prefix));
        if !name.starts_with(PREFIX) || OTHERS.contains(&name.as_str()) || foreign {
            continue;
        }
        let at = Source::Environment(name.clone());
        match keys::plain().find(|key| keys::variable(key) == *name) {
            Some(key) => raw.say(key, Value::String(text.clone()), at)?,
            None => {
                let meant = name.trim_start_matches(PREFIX).to_lowercase();
                // Entries of upstreams have no variables of their own.
                let nearest = keys::nearest(&meant)
                    .map(|key| keys::known(&key).unwrap_or("upstream"))
                    .map(keys::variable);
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

/// What some editors put before a text.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// A text file of bounded size, without a byte order mark.
pub fn read_text(
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
