//! The scope of discovery: which repositories are wanted without being named by an
//! operator, and which streams are read for them.

use gapless_core::filter::Pattern;

use crate::settings::{DiscoverConfig, FollowWhat};

/// The scope of discovery, fixed while the mirror runs.
#[derive(Debug, Clone, Default)]
pub struct Scope {
    /// Whether every repository of every host is wanted.
    pub network: bool,
    /// Whether each host is followed by a stream of its own.
    pub by_hosts: bool,
    /// Repositories with a record in one of these collections are wanted. If empty,
    /// collections do not matter.
    pub collections: Vec<Pattern>,
}

impl Scope {
    /// The scope that the configuration asks for.
    pub fn of(config: &DiscoverConfig) -> Scope {
        Scope {
            network: config.network,
            by_hosts: config.follow == FollowWhat::Hosts,
            collections: config.collections.clone(),
        }
    }

    /// Whether relays are read only for tracked repositories and for repositories with a
    /// record in a wanted collection.
    pub fn is_narrow(&self) -> bool {
        !self.collections.is_empty()
    }

    /// Whether relays are followed. Relays that are not followed are still asked for hosts
    /// and for collections.
    pub(crate) fn follows_relays(&self) -> bool {
        !self.by_hosts
    }

    /// The wanted collection that the path of a record is in, as configured.
    pub fn finds(&self, path: &str) -> Option<&Pattern> {
        let (collection, _) = path.split_once('/')?;
        self.finds_in(collection)
    }

    /// The wanted collection that matches the name of a collection, as configured.
    pub(crate) fn finds_in(&self, collection: &str) -> Option<&Pattern> {
        let mut wanted = self.collections.iter();
        wanted.find(|pattern| pattern.matches(collection))
    }

    /// The name of the scope in the API.
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
