//! Hosts whose repositories may not all be known, or compared: why, what is done
//! about it now, and what a person can do.

use serde::{Deserialize, Serialize};

/// One such host.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct HostGap {
    /// As DID documents name it.
    pub host: String,
    pub reasons: Vec<String>,
    /// Since when, at least.
    pub since: Option<String>,
    /// Why its last sweep failed.
    pub error: Option<String>,
    pub doing: String,
    pub can_do: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostReason {
    /// It is followed for all that lives there, and its listing was not read
    /// through since it is, or since its stream last missed something.
    NotListed,
    /// The last sweep did not go through.
    SweepFailing,
}

impl HostReason {
    pub fn name(self) -> &'static str {
        match self {
            HostReason::NotListed => "not_listed",
            HostReason::SweepFailing => "sweep_failing",
        }
    }

    /// What Gapless does about it now.
    pub fn doing(self) -> &'static str {
        match self {
            HostReason::NotListed => {
                "Its listing has not been read yet: what lives there may not all be known."
            }
            HostReason::SweepFailing => "It is swept again and again, ever more slowly.",
        }
    }

    /// What a person can do.
    pub fn can_do(self) -> &'static str {
        match self {
            HostReason::NotListed => "Wait; `gapless upstream list` shows the last sweep.",
            HostReason::SweepFailing => {
                "Check whether the host is up, and answers listRepos and getLatestCommit; if it has gone, stop following it."
            }
        }
    }
}

impl HostGap {
    pub fn new(host: String, reasons: &[HostReason]) -> HostGap {
        let texts = |of: fn(HostReason) -> &'static str| {
            let texts: Vec<&str> = reasons.iter().map(|reason| of(*reason)).collect();
            texts.join(" ")
        };
        HostGap {
            host,
            reasons: reasons.iter().map(|one| one.name().to_owned()).collect(),
            since: None,
            error: None,
            doing: texts(HostReason::doing),
            can_do: match reasons {
                // Waiting is no advice for what fails.
                [.., last] => last.can_do().to_owned(),
                [] => String::new(),
            },
        }
    }
}
