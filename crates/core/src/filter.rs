//! The filter of collections: which records are kept whole, and of which records only
//! the key is kept, so that roots can still be recomputed.

use std::fmt;

use gapless_atp::syntax::Nsid;

/// A pattern of collection names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pattern {
    /// Exactly this collection.
    Exactly(String),
    /// Every collection with this prefix, which ends in a dot.
    Below(String),
}

impl Pattern {
    /// Parses an NSID, or a prefix that ends in `.*`.
    pub fn parse(text: &str) -> Option<Pattern> {
        match text.strip_suffix(".*") {
            // A prefix is valid if a name below it is; an authority has two labels.
            Some(prefix) if Nsid::parse(&format!("{prefix}.any")).is_ok() => {
                Some(Pattern::Below(format!("{prefix}.")))
            }
            Some(_) => None,
            None => Nsid::parse(text)
                .ok()
                .map(|nsid| Pattern::Exactly(nsid.as_str().to_owned())),
        }
    }

    pub fn matches(&self, collection: &str) -> bool {
        match self {
            Pattern::Exactly(wanted) => collection == wanted,
            Pattern::Below(prefix) => {
                collection.len() > prefix.len() && collection.starts_with(prefix.as_str())
            }
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pattern::Exactly(wanted) => f.write_str(wanted),
            Pattern::Below(prefix) => write!(f, "{prefix}*"),
        }
    }
}

/// What is kept of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    Record,
    /// Path and CID.
    Key,
    Nothing,
}

#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// The collections whose records are kept. If empty, every record is kept.
    pub wanted: Vec<Pattern>,
    pub wanted_keys_only: bool,
}

impl Filter {
    /// Whether some records are not kept.
    pub fn is_narrow(&self) -> bool {
        !self.wanted.is_empty()
    }

    /// What is kept of a record, by its path.
    pub fn keep(&self, path: &[u8]) -> Keep {
        if self.wanted.is_empty() {
            return Keep::Record;
        }
        let collection = path.split(|byte| *byte == b'/').next().unwrap_or(path);
        let wanted = std::str::from_utf8(collection)
            .is_ok_and(|collection| self.wanted.iter().any(|one| one.matches(collection)));
        match (wanted, self.wanted_keys_only) {
            (true, _) => Keep::Record,
            (false, false) => Keep::Key,
            (false, true) => Keep::Nothing,
        }
    }
}
