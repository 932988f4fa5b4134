//! Errors in a configuration, worded for its author.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use thiserror::Error;

/// The layer that set a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValueSource {
    Default,
    File(PathBuf),
    /// The name of the variable.
    Environment(String),
    /// The flag, with its dashes.
    Flag(String),
}

impl fmt::Display for ValueSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ValueSource::Default => f.write_str("default"),
            ValueSource::File(path) => write!(f, "{}", path.display()),
            ValueSource::Environment(name) => write!(f, "environment {name}"),
            ValueSource::Flag(name) => write!(f, "flag {name}"),
        }
    }
}

/// Why a configuration was rejected.
#[derive(Debug, Error)]
pub enum ConfigError {
    #[error("{source_name} {path:?} could not be read: {error}")]
    Unreadable {
        source_name: &'static str,
        path: PathBuf,
        error: std::io::Error,
    },
    #[error("{path:?} is not valid TOML: {message}")]
    Syntax { path: PathBuf, message: String },
    #[error(
        "{path:?}: {why}. Expected certificates in PEM, each between BEGIN and END CERTIFICATE"
    )]
    Certificates { path: PathBuf, why: String },
    #[error("{at}: unknown key `{key}`{}", nearest_hint(.nearest))]
    UnknownKey {
        at: ValueSource,
        key: String,
        nearest: Option<String>,
    },
    #[error("{at}: `{key}` is {value}; expected {expected}")]
    Value {
        at: ValueSource,
        key: String,
        value: String,
        expected: String,
    },
    #[error(
        "`bind` is {bind} ({at}), which others can reach, and no token is set. \
         Set one (--token, GAPLESS_TOKEN or `token` in the file), or bind to 127.0.0.1"
    )]
    TokenNeeded { bind: SocketAddr, at: ValueSource },
    #[error(
        "{path:?}, line {line}: {text:?} is not a DID: {why}. One DID a line; # begins a comment"
    )]
    BadDid {
        path: PathBuf,
        line: usize,
        text: String,
        why: String,
    },
    #[error("the environment variable {name} is not valid UTF-8")]
    NotText { name: String },
}

fn nearest_hint(nearest: &Option<String>) -> String {
    match nearest {
        Some(key) => format!("; did you mean `{key}`?"),
        None => "; docs/configuration.md lists all keys".to_owned(),
    }
}
