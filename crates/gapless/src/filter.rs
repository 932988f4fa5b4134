//! Which collections are kept. Of the others, the keys alone, so that roots can
//! still be recomputed; or nothing, if the operator wants it so.

use crate::config::Pattern;

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
    /// Empty: everything is wanted.
    pub wanted: Vec<Pattern>,
    pub wanted_keys_only: bool,
}

impl Filter {
    /// Whether there is anything that is not kept.
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
