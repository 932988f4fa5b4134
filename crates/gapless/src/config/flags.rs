//! The command line flags that set configuration keys. Their values stay text here and
//! are validated like the values of file and environment.

use std::path::PathBuf;

use clap::Args;

/// Flags of `gapless run` and `gapless config show`.
#[derive(Debug, Clone, Default, Args)]
pub struct Flags {
    /// The configuration file [default: ./gapless.toml if there is one].
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The data folder [default: ./gapless-data].
    #[arg(long, value_name = "DIR")]
    pub data: Option<String>,
    /// Where the HTTP interface listens [default: 127.0.0.1:7070].
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub bind: Option<String>,
    /// The PLC directory [default: https://plc.directory].
    #[arg(long, value_name = "URL")]
    pub plc: Option<String>,
    /// A source of events, pds=URL, relay=URL or jetstream=URL; may be given several times.
    #[arg(long, value_name = "KIND=URL")]
    pub upstream: Vec<String>,
    /// Keep only these collections: NSIDs, or prefixes such as app.bsky.feed.*
    #[arg(long, value_name = "PATTERN,…")]
    pub collections: Option<String>,
    /// The records whose keys are held: all or wanted [default: all].
    #[arg(long, value_name = "WHICH")]
    pub keep_keys: Option<String>,
    /// Follow the DIDs in this file, one a line.
    #[arg(long, value_name = "FILE")]
    pub dids: Option<String>,
    /// Mirror the whole network: every repository of every host that the relays name.
    #[arg(long)]
    pub network: bool,
    /// Whose streams deliver the repositories that are found: relays or hosts [default: relays].
    #[arg(long, value_name = "WHOSE")]
    pub follow: Option<String>,
    /// Track every repository with a record in this collection, or below a prefix such as
    /// app.bsky.feed.*; may be given several times.
    #[arg(long, value_name = "NSID")]
    pub discover_collection: Vec<String>,
    /// How often each host is compared in full [default: 15m].
    #[arg(long, value_name = "DURATION")]
    pub sweep_every: Option<String>,
    /// Allow hosts with private or loopback addresses.
    #[arg(long)]
    pub allow_private: bool,
    /// The token for orders, and for queries from other machines.
    #[arg(long, value_name = "TOKEN")]
    pub token: Option<String>,
    /// The form of the log: json or text [default: text].
    #[arg(long, value_name = "FORM")]
    pub log: Option<String>,
}

impl Flags {
    /// The key, the flag and the text of each flag that is set.
    pub(super) fn to_values(&self) -> Vec<(&'static str, &'static str, String)> {
        let single = [
            ("data", "--data", &self.data),
            ("bind", "--bind", &self.bind),
            ("plc", "--plc", &self.plc),
            ("collections", "--collections", &self.collections),
            ("keep_keys", "--keep-keys", &self.keep_keys),
            ("dids", "--dids", &self.dids),
            ("sweep_every", "--sweep-every", &self.sweep_every),
            ("token", "--token", &self.token),
            ("log", "--log", &self.log),
            ("discover.follow", "--follow", &self.follow),
        ];
        let mut given: Vec<_> = single
            .into_iter()
            .filter_map(|(key, flag, text)| Some((key, flag, text.clone()?)))
            .collect();
        if !self.upstream.is_empty() {
            given.push(("upstream", "--upstream", self.upstream.join(",")));
        }
        if self.network {
            given.push(("discover.network", "--network", "true".to_owned()));
        }
        if !self.discover_collection.is_empty() {
            let all = self.discover_collection.join(",");
            given.push(("discover.collections", "--discover-collection", all));
        }
        if self.allow_private {
            given.push(("allow_private", "--allow-private", "true".to_owned()));
        }
        given
    }
}
