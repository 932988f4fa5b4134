//! What is wanted beside what an operator names: which repositories are in scope, and
//! whose events have to be read for that.

use gapless_core::filter::Pattern;

use crate::settings::{DiscoverConfig, FollowWhat};

/// Decided once, at the start.
#[derive(Debug, Clone, Default)]
pub struct Scope {
    /// Every repository of every host.
    pub network: bool,
    /// Each host has a stream of its own.
    pub by_hosts: bool,
    /// Repositories with a record in one of these; none: it does not matter.
    pub collections: Vec<Pattern>,
}

impl Scope {
    pub fn of(config: &DiscoverConfig) -> Scope {
        Scope {
            network: config.network,
            by_hosts: config.follow == FollowWhat::Hosts,
            collections: config.collections.clone(),
        }
    }

    /// Whether relays are read for tracked repositories, and for those that have
    /// something in a collection, alone.
    pub fn is_narrow(&self) -> bool {
        !self.collections.is_empty()
    }

    /// Whether relays are followed at all. They tell of hosts and of collections even
    /// when they are not.
    pub fn follows_relays(&self) -> bool {
        !self.by_hosts
    }

    /// The collection, as it was asked for, that a record's path is in.
    pub fn finds(&self, path: &str) -> Option<&Pattern> {
        let (collection, _) = path.split_once('/')?;
        self.finds_in(collection)
    }

    /// Likewise, of the collection itself.
    pub fn finds_in(&self, collection: &str) -> Option<&Pattern> {
        let mut wanted = self.collections.iter();
        wanted.find(|pattern| pattern.matches(collection))
    }

    /// In words, for people and programs.
    pub fn name(&self) -> &'static str {
        match (self.network, self.is_narrow()) {
            (true, _) => "network",
            (false, true) => "collections",
            (false, false) => "upstreams",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_found_by_its_collection_alone() {
        let patterns = ["app.bsky.feed.post", "com.example.*"];
        let scope = Scope {
            collections: patterns
                .iter()
                .filter_map(|one| Pattern::parse(one))
                .collect(),
            ..Scope::default()
        };
        assert_eq!(scope.collections.len(), 2);
        for (path, found) in [
            ("app.bsky.feed.post/3k", true),
            ("app.bsky.feed.postgate/3k", false),
            ("com.example.thing/app.bsky.feed.post", true),
            ("com.examples.thing/3k", false),
            ("app.bsky.feed.post", false),
            ("", false),
        ] {
            assert_eq!(scope.finds(path).is_some(), found, "{path}");
        }
    }
}
