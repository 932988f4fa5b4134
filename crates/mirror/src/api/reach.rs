//! The reach of an answer about completeness. "No gaps" is a statement about the known
//! repositories; whether others exist depends on which hosts were listed, and when.

use serde::{Deserialize, Serialize};

/// How far the knowledge of a mirror reaches.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Reach {
    /// Known repositories. The answer says nothing about any other.
    pub repos: u64,
    /// Hosts whose whole listing was read after events of the host were last missed: all
    /// repositories that lived there at that time are known. The oldest listing comes
    /// first; at most a hundred.
    pub listed: Vec<ListedHost>,
    pub listed_total: u64,
    /// The relays that are followed. A relay brings only active accounts.
    pub relays: Vec<String>,
    pub jetstreams: Vec<String>,
    /// The scope of discovery: network, collections or upstreams.
    pub scope: String,
    /// The whole answer, for people.
    pub says: String,
}

/// A host that was listed whole.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ListedHost {
    /// The name of the host in DID documents.
    pub host: String,
    /// When reading the listing began.
    pub until: Option<String>,
}

impl Reach {
    /// Fills in `says`.
    pub fn in_words(mut self) -> Reach {
        let mut says = vec![match self.repos {
            1 => "This answer covers the 1 known repository.".to_owned(),
            repos => format!("This answer covers the {repos} known repositories."),
        }];
        let until = |one: &ListedHost| one.until.clone().unwrap_or_else(|| "now".to_owned());
        says.push(match (self.listed.first(), self.listed_total) {
            (None, _) => "No host was swept whole.".to_owned(),
            (Some(one), 1) => format!("{} was swept whole, until {}.", one.host, until(one)),
            (Some(one), total) => format!(
                "{total} hosts were swept whole, the one longest ago ({}) until {}.",
                one.host,
                until(one)
            ),
        });
        for (what, tellers) in [("relay", &self.relays), ("Jetstream", &self.jetstreams)] {
            let who = match &tellers[..] {
                [] => continue,
                [one] => format!("The {what} {one} tells"),
                more => format!("The {what}s {} tell", more.join(", ")),
            };
            says.push(format!("{who} only of accounts that are active."));
        }
        if self.scope == "collections" {
            says.push("Of these, only what is tracked or was found is wanted.".to_owned());
        }
        self.says = says.join(" ");
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str) -> ListedHost {
        ListedHost {
            host: name.to_owned(),
            until: Some("2026-01-02T03:04:05.000006Z".to_owned()),
        }
    }

    #[test]
    fn it_is_said_who_was_asked_and_until_when() {
        let relayed = Reach {
            repos: 40,
            relays: vec!["https://relay.example.com".to_owned()],
            ..Reach::default()
        };
        assert_eq!(
            relayed.in_words().says,
            "This answer covers the 40 known repositories. No host was swept whole. \
             The relay https://relay.example.com tells only of accounts that are active."
        );
        let whole = Reach {
            repos: 1,
            listed: vec![host("https://pds.example.com")],
            listed_total: 1,
            ..Reach::default()
        };
        assert_eq!(
            whole.in_words().says,
            "This answer covers the 1 known repository. https://pds.example.com was \
             swept whole, until 2026-01-02T03:04:05.000006Z."
        );
        let network = Reach {
            repos: 7,
            listed: vec![host("https://a.example"), host("https://b.example")],
            listed_total: 200,
            relays: vec![
                "https://r.example".to_owned(),
                "https://s.example".to_owned(),
            ],
            jetstreams: vec!["https://j.example".to_owned()],
            ..Reach::default()
        };
        let says = network.in_words().says;
        for words in [
            "200 hosts were swept whole, the one longest ago (https://a.example) until 2026",
            "The relays https://r.example, https://s.example tell only",
            "The Jetstream https://j.example tells only",
        ] {
            assert!(says.contains(words), "{says}");
        }
    }
}
