//! `cargo xtask walls`: checks that no crate has a dependency that it must not have.
//!
//! A crate exists to forbid dependencies, and this table lists the forbidden ones. The check reads
//! `cargo tree` (all normal dependencies, or the direct ones) and names the crate, the forbidden
//! dependency and the reason. Crates of the table that are not in the workspace are skipped, and
//! the output says so. Cargo cannot forbid clocks and hash order, which are in the standard
//! library: clippy forbids them, by a `clippy.toml` that every pure crate must have.

use crate::process::{Failure, cargo, output_of, root};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

struct Wall {
    package: &'static str,
    features: Features,
    /// Whether only direct dependencies count.
    direct: bool,
    /// Package names; a `*` at either end stands for any characters.
    forbidden: &'static [&'static [&'static str]],
    why: &'static str,
}

/// The features of the package with which a wall is checked.
#[derive(Clone, Copy)]
enum Features {
    All,
    Default,
    None,
}

impl Features {
    /// The flag that selects the features in cargo.
    fn flag(self) -> Option<&'static str> {
        match self {
            Features::All => Some("--all-features"),
            Features::Default => None,
            Features::None => Some("--no-default-features"),
        }
    }
}

const RUNTIMES: &[&str] = &["tokio*", "async-std", "smol", "mio", "madsim*"];
const ENGINES: &[&str] = &["fjall", "lsm-tree", "rocksdb", "redb", "heed", "sled"];
const SQL: &[&str] = &[
    "rusqlite",
    "libsqlite3-sys",
    "sqlx*",
    "tokio-postgres",
    "postgres",
    "deadpool*",
];
const NETWORK: &[&str] = &[
    "axum*",
    "hyper*",
    "reqwest",
    "tungstenite",
    "h2",
    "hickory-*",
];
const CLOCKS: &[&str] = &["chrono", "time", "jiff", "quanta"];
const RANDOM: &[&str] = &["rand", "fastrand", "oorandom"];
/// Packages that open connections to other servers.
const CLIENTS: &[&str] = &["reqwest", "*tungstenite", "hickory-*", "*rustls*"];
/// Packages that only the program may use: its web server, its commands, its configuration.
const PROGRAM: &[&str] = &["axum*", "clap*", "toml"];

/// The package of the test harness, which may be a dev-dependency only.
const HARNESS: &str = "gapless-harness";

const WALLS: &[Wall] = &[
    Wall {
        package: "gapless-atp",
        features: Features::All,
        direct: false,
        forbidden: &[
            RUNTIMES,
            ENGINES,
            SQL,
            NETWORK,
            CLOCKS,
            RANDOM,
            &["gapless*"],
        ],
        why: "the codec turns bytes into values; it does no I/O, reads no clock and knows no other crate here",
    },
    Wall {
        package: "gapless-atp",
        features: Features::Default,
        direct: false,
        forbidden: &[&["getrandom", "p256"]],
        why: "only the feature `sign`, for tests and the test network, may bring key generation",
    },
    Wall {
        package: "gapless-core",
        features: Features::All,
        direct: false,
        forbidden: &[
            RUNTIMES,
            ENGINES,
            SQL,
            NETWORK,
            CLOCKS,
            RANDOM,
            &[
                "getrandom",
                "gapless",
                "gapless-net",
                "gapless-mirror",
                "gapless-store",
                "gapless-index",
                "gapless-cluster",
                "gapless-testnet",
                "gapless-sim",
            ],
        ],
        why: "decisions are pure: state, input and time in, effects out",
    },
    Wall {
        package: "gapless-store",
        features: Features::All,
        direct: false,
        forbidden: &[RUNTIMES, NETWORK],
        why: "the store is threads and files; one committer owns every write",
    },
    Wall {
        package: "gapless-index",
        features: Features::All,
        direct: false,
        forbidden: &[ENGINES, &["axum*", "gapless-store"]],
        why: "the SQL projection reads the log through what it is given, never the engine",
    },
    Wall {
        package: "gapless-cluster",
        features: Features::All,
        direct: false,
        forbidden: &[ENGINES],
        why: "only the store sees the engine",
    },
    Wall {
        package: "gapless-testnet",
        features: Features::All,
        direct: false,
        forbidden: &[
            ENGINES,
            &[
                "gapless",
                "gapless-core",
                "gapless-net",
                "gapless-mirror",
                "gapless-store",
                "gapless-index",
                "gapless-cluster",
                "gapless-sim",
            ],
        ],
        why: "the test network is the oracle; an oracle that shares the code it judges proves nothing",
    },
    Wall {
        package: "gapless-sim",
        features: Features::All,
        direct: false,
        forbidden: &[
            RUNTIMES,
            NETWORK,
            RANDOM,
            &["getrandom", "gapless-net", "gapless-mirror"],
        ],
        why: "one seed decides everything",
    },
    Wall {
        package: "gapless-net",
        features: Features::All,
        direct: false,
        forbidden: &[
            ENGINES,
            SQL,
            PROGRAM,
            &[
                "gapless",
                "gapless-mirror",
                "gapless-store",
                "gapless-testnet",
                "gapless-sim",
            ],
        ],
        why: "the crate asks other hosts and returns their answers; it keeps nothing and serves nothing",
    },
    Wall {
        package: "gapless-mirror",
        features: Features::All,
        direct: false,
        forbidden: &[
            PROGRAM,
            &["p256", "gapless", "gapless-testnet", "gapless-sim"],
        ],
        why: "the mirror has no web server, no commands and no key to sign with, and does not contain what tests it",
    },
    Wall {
        package: "gapless-mirror",
        features: Features::All,
        direct: true,
        forbidden: &[CLIENTS, ENGINES, SQL, &["hyper*"]],
        why: "only `net` opens connections, only `store` sees the engine, only `index` speaks SQL",
    },
    Wall {
        package: "gapless",
        features: Features::All,
        direct: false,
        forbidden: &[&["gapless-sim"]],
        why: "the simulator is for development only",
    },
    Wall {
        package: "gapless",
        features: Features::None,
        direct: false,
        forbidden: &[&["gapless-testnet", "gapless-sim", "p256"]],
        why: "the test network, and with it signing, comes with the feature `demo` alone: a mirror can be built that has no key to sign with",
    },
    Wall {
        package: "gapless",
        features: Features::All,
        direct: true,
        forbidden: &[CLIENTS, ENGINES],
        why: "only `net` opens connections, and only `store` sees the engine; commands reach a mirror through `net::operator`",
    },
];

/// Crates without clock and hash order. The `clippy.toml` of the first one is the pattern; the
/// others must have the same text.
const PURE: &[&str] = &["crates/atp", "crates/core", "crates/sim"];
const PURE_BANS: &[&str] = &[
    "std::time::SystemTime::now",
    "std::time::Instant::now",
    "std::collections::HashMap::iter",
];

pub(crate) fn run(_arguments: &[String]) -> Result<(), Failure> {
    let present = workspace_packages()?;
    let mut faults = Vec::new();
    let mut checked = 0;
    let mut absent = BTreeSet::new();
    for wall in WALLS {
        if present.iter().any(|name| name == wall.package) {
            faults.extend(breaches(wall, &tree_of(wall)?));
            checked += 1;
        } else {
            absent.insert(wall.package);
        }
    }
    if present.iter().any(|name| name == HARNESS) {
        faults.extend(harness_users(&harness_dependents()?));
        checked += 1;
    } else {
        absent.insert(HARNESS);
    }
    faults.extend(impure(&root()));
    if !faults.is_empty() {
        return Err(Failure::check(faults.join("\n")));
    }
    println!("{checked} walls stand");
    if !absent.is_empty() {
        let absent: Vec<&str> = absent.into_iter().collect();
        println!("skipped, not in the workspace: {}", absent.join(", "));
    }
    Ok(())
}

/// The names of the workspace's own packages.
pub(crate) fn workspace_packages() -> Result<Vec<String>, Failure> {
    let tree =
        output_of(cargo().args(["tree", "--workspace", "--depth", "0", "--prefix", "none"]))?;
    Ok(names(&tree).map(str::to_string).collect())
}

fn tree_of(wall: &Wall) -> Result<String, Failure> {
    let mut command = cargo();
    command.args([
        "tree",
        "--package",
        wall.package,
        "--edges",
        "normal",
        "--prefix",
        "none",
    ]);
    command.args(wall.features.flag());
    if wall.direct {
        command.args(["--depth", "1"]);
    }
    output_of(&mut command)
}

/// The tree of every package that depends on [`HARNESS`], beginning with [`HARNESS`].
fn harness_dependents() -> Result<String, Failure> {
    output_of(cargo().args([
        "tree",
        "--workspace",
        "--all-features",
        "--edges",
        "normal",
        "--invert",
        HARNESS,
        "--prefix",
        "none",
    ]))
}

fn harness_users(tree: &str) -> Vec<String> {
    let users: BTreeSet<&str> = names(tree).filter(|name| *name != HARNESS).collect();
    users
        .iter()
        .map(|name| {
            format!(
                "{name} depends on {HARNESS}, which it must not: the harness is for tests; \
                 make it a dev-dependency"
            )
        })
        .collect()
}

fn breaches(wall: &Wall, tree: &str) -> Vec<String> {
    let mut found: Vec<&str> = names(tree)
        .filter(|name| *name != wall.package)
        .filter(|name| {
            wall.forbidden
                .iter()
                .copied()
                .flatten()
                .any(|pattern| matches(pattern, name))
        })
        .collect();
    found.sort_unstable();
    found.dedup();
    found
        .iter()
        .map(|name| {
            let package = wall.package;
            let features = wall.features.flag().map(|flag| format!(" {flag}"));
            let features = features.unwrap_or_default();
            let why = wall.why;
            if wall.direct {
                format!(
                    "{package} names {name} in its manifest, which it must not: {why}; \
                     use what the crate in charge of it offers"
                )
            } else {
                format!(
                    "{package} depends on {name}, which it must not: {why}; \
                     `cargo tree -p {package} -e normal{features} -i {name}` shows the way in"
                )
            }
        })
        .collect()
}

fn names(tree: &str) -> impl Iterator<Item = &str> {
    tree.lines()
        .filter_map(|line| line.split_whitespace().next())
}

fn matches(pattern: &str, name: &str) -> bool {
    let inner = pattern.trim_start_matches('*');
    let open_start = inner.len() < pattern.len();
    let middle = inner.trim_end_matches('*');
    let open_end = middle.len() < inner.len();
    match (open_start, open_end) {
        (false, false) => name == middle,
        (false, true) => name.starts_with(middle),
        (true, false) => name.ends_with(middle),
        (true, true) => name.contains(middle),
    }
}

/// Pure crates whose `clippy.toml` is absent, weak or different.
fn impure(root: &Path) -> Vec<String> {
    let mut faults = Vec::new();
    let mut pattern: Option<String> = None;
    for folder in PURE {
        if !root.join(folder).is_dir() {
            continue;
        }
        let path = format!("{folder}/clippy.toml");
        let text = fs::read_to_string(root.join(&path)).unwrap_or_default();
        for ban in PURE_BANS {
            if !text.contains(&format!("\"{ban}\"")) {
                faults.push(format!("{path}: must forbid {ban}: this crate is pure"));
            }
        }
        match &pattern {
            None => pattern = Some(text),
            Some(first) if *first != text => {
                faults.push(format!(
                    "{path}: must have the same text as {}/clippy.toml",
                    PURE[0]
                ));
            }
            Some(_) => {}
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wall(package: &str) -> &'static Wall {
        WALLS.iter().find(|wall| wall.package == package).unwrap()
    }

    const CLEAN: &str =
        "gapless-atp v0.1.0 (/src/atp)\nsha2 v0.11.1\ntimer v1.0.0\nrand_core v0.10.1 (*)\n";

    #[test]
    fn a_clean_tree_passes() {
        assert_eq!(breaches(wall("gapless-atp"), CLEAN), Vec::<String>::new());
    }

    #[test]
    fn a_forbidden_dependency_is_named_with_the_reason() {
        let tree =
            format!("{CLEAN}tokio v1.54.1\ntokio v1.54.1 (*)\ntokio-util v0.7.0\ntime v0.3.1\n");
        let found = breaches(wall("gapless-atp"), &tree);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[1].starts_with("gapless-atp depends on tokio, which it must not:"));
        assert!(found[1].contains("no I/O"));
    }

    #[test]
    fn the_oracle_may_use_the_codec_and_nothing_else_of_ours() {
        let tree = "gapless-testnet v0.1.0\ngapless-atp v0.1.0\ntokio v1.54.1\n";
        assert!(breaches(wall("gapless-testnet"), tree).is_empty());
        let tree = "gapless-testnet v0.1.0\ngapless-store v0.1.0\n";
        assert_eq!(breaches(wall("gapless-testnet"), tree).len(), 1);
    }

    #[test]
    fn core_may_use_the_codec_but_not_the_store() {
        let tree = "gapless-core v0.1.0\ngapless-atp v0.1.0\n";
        assert!(breaches(wall("gapless-core"), tree).is_empty());
        let tree = "gapless-core v0.1.0\ngapless-store v0.1.0\nfjall v3.1.0\n";
        assert_eq!(breaches(wall("gapless-core"), tree).len(), 2);
    }

    #[test]
    fn a_mirror_without_the_demo_brings_no_test_network() {
        let bare = WALLS
            .iter()
            .find(|wall| wall.package == "gapless" && matches!(wall.features, Features::None))
            .unwrap();
        let found = breaches(bare, "gapless v0.1.0\ngapless-testnet v0.1.0\n");
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("--no-default-features -i gapless-testnet"));
    }

    #[test]
    fn patterns_are_open_where_they_have_a_star() {
        for (pattern, name, expected) in [
            ("time", "time", true),
            ("time", "timer", false),
            ("tokio*", "tokio-util", true),
            ("*tungstenite", "tokio-tungstenite", true),
            ("*tungstenite", "tungstenite", true),
            ("*tungstenite", "tungstenite-more", false),
            ("*rustls*", "hyper-rustls", true),
            ("*rustls*", "rustls-pki-types", true),
            ("*rustls*", "native-tls", false),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn only_what_the_manifest_names_counts_for_a_direct_wall() {
        let walls: Vec<&Wall> = WALLS
            .iter()
            .filter(|wall| wall.package == "gapless-mirror")
            .collect();
        let [whole, direct] = walls[..] else {
            panic!("two walls")
        };
        assert!(!whole.direct && direct.direct);
        let deep = "gapless-mirror v0.1.0\ngapless-net v0.1.0\nreqwest v0.13.5\nfjall v3.1.0\n";
        assert_eq!(breaches(whole, deep), Vec::<String>::new());
        let found = breaches(direct, deep);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[1].starts_with("gapless-mirror names reqwest in its manifest"));
    }

    #[test]
    fn a_direct_tree_holds_the_manifests_dependencies_alone() {
        let tree = |direct: bool| {
            tree_of(&Wall {
                package: "gapless-store",
                features: Features::All,
                direct,
                forbidden: &[],
                why: "",
            })
            .unwrap()
        };
        let has = |tree: &str, wanted: &str| names(tree).any(|name| name == wanted);
        assert!(has(&tree(false), "fjall") && has(&tree(false), "lsm-tree"));
        assert!(has(&tree(true), "fjall") && !has(&tree(true), "lsm-tree"));
    }

    #[test]
    fn the_harness_is_for_tests() {
        let alone = "gapless-harness v0.1.0\n";
        assert_eq!(harness_users(alone), Vec::<String>::new());
        let used = format!("{alone}gapless-bench v0.1.0\ngapless-bench v0.1.0 (*)\n");
        let found = harness_users(&used);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("gapless-bench depends on gapless-harness"));
    }

    #[test]
    fn this_package_is_in_the_workspace() {
        assert!(
            workspace_packages()
                .unwrap()
                .iter()
                .any(|name| name == "xtask")
        );
    }

    #[test]
    fn a_pure_crate_without_its_bans_is_found() {
        let root = std::env::temp_dir().join(format!("xtask-walls-{}", std::process::id()));
        let atp = root.join("crates/atp");
        let core = root.join("crates/core");
        fs::create_dir_all(&atp).unwrap();
        assert_eq!(impure(&root).len(), PURE_BANS.len());

        let text: String = PURE_BANS.iter().map(|ban| format!("\"{ban}\"\n")).collect();
        fs::write(atp.join("clippy.toml"), &text).unwrap();
        assert_eq!(impure(&root), Vec::<String>::new());

        fs::create_dir_all(&core).unwrap();
        fs::write(core.join("clippy.toml"), format!("{text}# weaker\n")).unwrap();
        let found = impure(&root);
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("crates/core/clippy.toml: must have the same text"));
        fs::remove_dir_all(&root).unwrap();
    }
}
