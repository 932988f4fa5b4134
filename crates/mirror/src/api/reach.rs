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
            1 => "This answer covers the 1 repository that Gapless knows.".to_owned(),
            repos => format!("This answer covers the {repos} repositories that Gapless knows."),
        }];
        let until = |one: &ListedHost| {
            one.until
                .clone()
                .unwrap_or_else(|| "an unknown time".to_owned())
        };
        says.push(match (self.listed.first(), self.listed_total) {
            (None, _) => "Gapless has not read the whole listing of any host.".to_owned(),
            (Some(one), 1) => format!(
                "Gapless read the whole listing of {} at {}.",
                one.host,
                until(one)
            ),
            (Some(one), total) => format!(
                "Gapless read the whole listings of {total} hosts, the oldest one ({}) at {}.",
                one.host,
                until(one)
            ),
        });
        for (what, tellers) in [("relay", &self.relays), ("Jetstream", &self.jetstreams)] {
            let who = match &tellers[..] {
                [] => continue,
                [one] => format!("The {what} {one} reports"),
                more => format!("The {what}s {} report", more.join(", ")),
            };
            says.push(format!("{who} only active accounts."));
        }
        if self.scope == "collections" {
            says.push(
                "The scope is `collections`: Gapless mirrors only tracked repositories and \
                 repositories that were found by their collections."
                    .to_owned(),
            );
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
            "This answer covers the 40 repositories that Gapless knows. Gapless has not read the whole \
             listing of any host. The relay https://relay.example.com reports only active accounts."
        );
        let whole = Reach {
            repos: 1,
            listed: vec![host("https://pds.example.com")],
            listed_total: 1,
            ..Reach::default()
        };
        assert_eq!(
            whole.in_words().says,
            "This answer covers the 1 repository that Gapless knows. Gapless read the whole listing of \
             https://pds.example.com at 2026-01-02T03:04:05.000006Z."
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
            "listings of 200 hosts, the oldest one (https://a.example) at 2026",
            "The relays https://r.example, https://s.example report only",
            "The Jetstream https://j.example reports only",
        ] {
            assert!(says.contains(words), "{says}");
        }
    }
}
