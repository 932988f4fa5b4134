//! Tests the configuration: every source of a setting, which source wins, and the errors for
//! invalid settings.

use std::fs;
use std::path::Path;
use std::time::Duration;

use gapless::config::{Config, ConfigError, Flags, LoadedConfig, LogFormat, load};
use gapless_core::filter::{Keep, Pattern};
use gapless_core::ledger::settings::OnRollback;
use gapless_core::ledger::{FilterGen, UpstreamKind};
use gapless_mirror::settings::{FollowWhat, KeepKeys};
use tempfile::TempDir;

const DID: &str = "did:plc:z72i7hdynmk6r22z27h6tvur";

fn folder() -> TempDir {
    tempfile::tempdir().expect("a folder")
}

pub(crate) fn with_file(text: &str) -> Result<LoadedConfig, ConfigError> {
    let here = folder();
    fs::write(here.path().join("gapless.toml"), text).expect("written");
    load(&Flags::default(), &[], here.path())
}

pub(crate) fn with_variable(name: &str, value: &str) -> Result<LoadedConfig, ConfigError> {
    let environment = [(name.to_owned(), value.to_owned())];
    load(&Flags::default(), &environment, folder().path())
}

pub(crate) fn error(result: Result<LoadedConfig, ConfigError>) -> String {
    match result {
        Ok(loaded) => panic!("accepted: {:?}", loaded.config),
        Err(error) => error.to_string(),
    }
}

/// The error of a file names the file and all of these.
pub(crate) fn refused(text: &str, words: &[&str]) {
    let error = error(with_file(text));
    for word in [&["gapless.toml"], words].concat() {
        assert!(error.contains(word), "{word:?} is missing in: {error}");
    }
}

pub(crate) fn defaults() -> Config {
    let loaded = load(&Flags::default(), &[], folder().path());
    loaded.expect("nothing is wrong with nothing").config
}

#[test]
fn without_a_word_the_defaults_hold() {
    let config = defaults();
    assert_eq!(config.mirror.data, Path::new("./gapless-data"));
    assert_eq!(config.bind.to_string(), "127.0.0.1:7070");
    assert_eq!(config.mirror.plc, "https://plc.directory");
    assert_eq!(config.mirror.sweep_every, Duration::from_secs(900));
    assert_eq!(config.mirror.purge_grace, Duration::from_secs(72 * 3600));
    assert_eq!(
        config.mirror.ready.max_upstream_age,
        Duration::from_secs(300)
    );
    assert_eq!(
        config.mirror.ready.max_debt_age,
        Duration::from_secs(24 * 3600)
    );
    assert_eq!(
        config.mirror.ready.max_sweep_age,
        Duration::from_secs(2 * 3600)
    );
    assert_eq!(config.mirror.min_free_disk, 2 << 30);
    assert_eq!(
        (
            config.mirror.fetch.concurrency,
            config.mirror.fetch.per_host
        ),
        (32, 4)
    );
    assert_eq!(config.mirror.fetch.requests_per_second, 10.0);
    assert_eq!(config.mirror.plc_requests_per_second, 100.0);
    assert_eq!(config.mirror.window, Duration::from_secs(24 * 3600));
    assert_eq!(config.mirror.fetch.max_repo_bytes, 8_000_000_000);
    assert_eq!(config.mirror.fetch.temp, Path::new("./gapless-data/tmp"));
    assert!(config.mirror.workers >= 1);
    assert_eq!(config.mirror.keep_keys, KeepKeys::All);
    assert!(!config.mirror.has_sources() && !config.mirror.filter().is_narrow());
}

#[test]
fn a_file_can_say_everything() {
    let here = folder();
    let dids = here.path().join("dids.txt");
    fs::write(&dids, format!("# mine\n\n{DID} # twice\n{DID}\n")).expect("written");
    let text = format!(
        r#"
        data = "/srv/mirror"
        bind = "[::1]:9000"
        plc = "https://plc.example.com/"
        plc_requests_per_second = 25
        contact = "ops@example.com"
        collections = ["app.bsky.feed.*", "app.bsky.graph.follow"]
        keep_keys = "wanted"
        dids = {dids:?}
        sweep_every = "10m"
        confirm_every = "6h"
        live_grace = "250ms"
        purge_grace = "7d"
        on_rollback = "hold"
        allow_private = true
        token = "a-long-secret"
        log = "json"
        min_free_disk = "512MiB"
        [fetch]
        concurrency = 8
        per_host = 2
        requests_per_second = 2.5
        max_repo_bytes = "1GB"
        temp = "/tmp/spill"
        [limits]
        workers = 3
        [ready]
        max_upstream_age = "1m"
        max_debt_age = "2h"
        max_sweep_age = "30m"
        [serve]
        window = "48h"
        window_bytes = "20GB"
        [[upstream]]
        kind = "pds"
        url = "wss://proxy.example.com:8443"
        host = "PDS.example.com"
        [[upstream]]
        kind = "relay"
        url = "https://relay.example.com/"
        "#
    );
    let config = with_file(&text).expect("all of it is right").config;
    assert_eq!(config.bind.port(), 9000);
    assert_eq!(config.mirror.plc, "https://plc.example.com");
    assert_eq!(config.mirror.contact.as_deref(), Some("ops@example.com"));
    assert_eq!(config.mirror.dids.len(), 1, "twice is once");
    assert_eq!(config.mirror.min_free_disk, 512 << 20);
    assert_eq!(config.mirror.fetch.requests_per_second, 2.5);
    assert_eq!(config.mirror.plc_requests_per_second, 25.0);
    assert_eq!(config.mirror.fetch.temp, Path::new("/tmp/spill"));
    assert_eq!(config.mirror.workers, 3);
    assert_eq!(config.mirror.window_bytes, 20_000_000_000);
    assert_eq!(config.log, LogFormat::Json);
    assert!(config.mirror.allow_private && config.mirror.has_sources());
    let upstream = &config.mirror.upstreams[0];
    assert_eq!(upstream.url, "https://proxy.example.com:8443");
    assert_eq!(upstream.host.as_deref(), Some("pds.example.com"));
    assert_eq!(config.mirror.upstreams[1].kind, UpstreamKind::Relay);
    assert_eq!(config.mirror.upstreams[1].url, "https://relay.example.com");
    let keep = |path: &str| config.mirror.filter().keep(path.as_bytes());
    assert_eq!(keep("app.bsky.feed.like/a"), Keep::Record);
    assert_ne!(keep("app.bsky.graph.block/a"), Keep::Record);
    let rules = config.mirror.ledger(FilterGen(4));
    assert_eq!(rules.live_grace, Duration::from_millis(250));
    assert_eq!(rules.confirm_every, Duration::from_secs(6 * 3600));
    assert_eq!(rules.on_rollback, OnRollback::Hold);
    assert_eq!(rules.filter, FilterGen(4));
    assert!(rules.wanted_keys_only);
}

#[test]
fn flags_win_over_variables_over_the_file_over_defaults() {
    let here = folder();
    let text = "data = \"file\"\nlog = \"json\"\nkeep_keys = \"wanted\"\nfetch.per_host = 7\n\
                [[upstream]]\nkind = \"pds\"\nurl = \"http://of-the-file\"";
    fs::write(here.path().join("gapless.toml"), text).expect("written");
    let environment = [
        ("GAPLESS_DATA", "variable"),
        ("GAPLESS_LOG", "text"),
        ("GAPLESS_FETCH_PER_HOST", "9"),
        ("GAPLESS_URL", "http://not-for-us"),
        ("GAPLESS_SERVICE_HOST", "10.0.0.1"),
        ("GAPLESS_PORT", "tcp://10.0.0.1:7070"),
        ("PATH", "/bin"),
    ];
    let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let flags = Flags {
        data: Some("flag".to_owned()),
        upstream: vec![
            "relay=https://r.example".to_owned(),
            "pds=http://p.example:80".to_owned(),
        ],
        ..Flags::default()
    };
    let loaded = load(&flags, &environment, here.path()).expect("all right");
    let config = &loaded.config;
    assert_eq!(config.mirror.data, Path::new("flag"));
    assert_eq!(config.log, LogFormat::Text);
    assert_eq!(config.mirror.fetch.per_host, 9);
    assert_eq!(config.mirror.keep_keys, KeepKeys::Wanted);
    let urls: Vec<&str> = config
        .mirror
        .upstreams
        .iter()
        .map(|of| of.url.as_str())
        .collect();
    assert_eq!(
        urls,
        ["https://r.example", "http://p.example"],
        "a list is replaced"
    );
    assert_eq!(loaded.source("data").to_string(), "flag --data");
    assert_eq!(loaded.source("log").to_string(), "environment GAPLESS_LOG");
    assert!(
        loaded
            .source("keep_keys")
            .to_string()
            .ends_with("gapless.toml")
    );
    assert_eq!(loaded.source("bind").to_string(), "default");
}

#[test]
fn a_file_that_is_named_must_be_there() {
    let here = folder();
    let missing = here.path().join("other.toml");
    let flags = Flags {
        config: Some(missing.clone()),
        ..Flags::default()
    };
    let by_flag = error(load(&flags, &[], here.path()));
    assert!(by_flag.contains("other.toml"), "{by_flag}");
    let named = missing.to_str().expect("plain");
    let by_variable = error(with_variable("GAPLESS_CONFIG", named));
    assert!(by_variable.contains("other.toml"), "{by_variable}");
    fs::write(&missing, "data = \"there\"").expect("written");
    let loaded = with_variable("GAPLESS_CONFIG", named).expect("now it is there");
    assert_eq!(loaded.config.mirror.data, Path::new("there"));
}

#[test]
fn unknown_keys_are_errors_that_know_what_was_meant() {
    refused(
        "swep_every = \"1m\"",
        &["`swep_every`", "did you mean `sweep_every`?"],
    );
    refused("per_host = 3", &["`per_host`", "`fetch.per_host`?"]);
    refused(
        "[fetch]\nper_hots = 3",
        &["`fetch.per_hots`", "`fetch.per_host`?"],
    );
    refused(
        "[network]\nfast = true",
        &["`network.fast`", "docs/configuration.md"],
    );
    let upstream = "[[upstream]]\nkind = \"pds\"\nurl = \"http://a\"\nhots = \"b\"";
    refused(upstream, &["`upstream.hots`", "`upstream.host`?"]);
    let single = "[upstream]\nkind = \"pds\"\nurl = \"http://a\"";
    refused(single, &["`upstream`", "[[upstream]]", "double brackets"]);
    let variable = error(with_variable("GAPLESS_SWEEP_EVRY", "1m"));
    assert!(variable.contains("GAPLESS_SWEEP_EVERY"), "{variable}");
    let variable = error(with_variable("GAPLESS_UPSTREAM_URL", "http://a"));
    assert!(variable.contains("mean `GAPLESS_UPSTREAM`?"), "{variable}");
}

#[test]
fn wrong_values_are_named_with_what_is_expected() {
    refused("data = 3", &["`data`", "3", "a folder"]);
    refused("data =", &["not valid TOML"]);
    refused(
        "sweep_every = \"soon\"",
        &["`sweep_every`", "\"soon\"", "90s"],
    );
    refused("sweep_every = 15", &["`sweep_every`", "15", "90s"]);
    refused("sweep_every = \"0s\"", &["at least 1s"]);
    refused(
        "sweep_every = \"99999999999999999999h\"",
        &["`sweep_every`"],
    );
    refused("min_free_disk = \"2 parsecs\"", &["512MiB"]);
    refused("bind = \"7070\"", &["`bind`", "127.0.0.1:7070"]);
    refused(
        "plc = \"https://plc.directory/path\"",
        &["`plc`", "without path"],
    );
    refused("plc = \"ftp://plc.directory\"", &["`plc`"]);
    refused(
        "plc = \"wss://plc.directory\"",
        &["`plc`", "expected http(s)://"],
    );
    assert!(!error(with_file("plc = \"x\"")).contains("ws"));
    refused("allow_private = \"yes\"", &["true or false"]);
    refused("keep_keys = \"some\"", &["all or wanted"]);
    refused("on_rollback = \"panic\"", &["auto, hold or adopt"]);
    refused("log = \"loud\"", &["json or text"]);
    refused("contact = \"a\\nb: c\"", &["`contact`"]);
    refused(
        "collections = \"app.bsky.feed.post\"",
        &["a list of patterns"],
    );
    refused(
        "collections = [\"app.bsky.feed.post\", \"*\"]",
        &["\"*\"", "NSID"],
    );
    refused(
        "fetch.concurrency = 0",
        &["`fetch.concurrency`", "1 to 4096"],
    );
    refused("fetch.concurrency = \"8\"", &["a whole number"]);
    refused("fetch.per_host = 1.5", &["a whole number"]);
    refused("fetch.requests_per_second = -1", &["0.01"]);
    refused("fetch.requests_per_second = nan", &["0.01"]);
    refused("upstream = \"pds=http://a\"", &["[[upstream]]"]);
    refused(
        "[[upstream]]\nkind = \"pds\"",
        &["`upstream.url` is missing", "http(s)://"],
    );
    refused(
        "[[upstream]]\nkind = \"jet\"\nurl = \"http://a\"",
        &["`upstream.kind`"],
    );
    let twice = "[[upstream]]\nkind=\"pds\"\nurl=\"ws://a\"\n[[upstream]]\nkind=\"pds\"\nurl=\"http://A:80\"";
    refused(twice, &["each URL once"]);
    let with_host = "[[upstream]]\nkind=\"relay\"\nurl=\"http://a\"\nhost=\"b c\"";
    refused(
        with_host,
        &["`upstream.host` is \"b c\"", "stands for many"],
    );
    refused(
        &with_host.replace("relay", "jetstream"),
        &["`upstream.host`", "stands for many"],
    );
    let by_http = "[[upstream]]\nkind=\"pds\"\nurl=\"http://a\"\nhost=\"http://b:2583\"";
    refused(by_http, &["`upstream.host`", "allow_private"]);
    let with_path = by_http.replace(":2583", ":2583/x");
    refused(&with_path, &["`upstream.host`", "http(s)://host[:port]"]);
    refused(&format!("log = \"{}\"", "x".repeat(9999)), &["xx…"]);
}

#[test]
fn variables_and_flags_are_judged_by_the_same_rules() {
    let variable = error(with_variable("GAPLESS_FETCH_CONCURRENCY", "many"));
    assert!(
        variable.contains("environment GAPLESS_FETCH_CONCURRENCY"),
        "{variable}"
    );
    assert!(variable.contains("\"many\""), "{variable}");
    for upstream in [
        "https://a",
        "jet=https://a",
        "pds=",
        "pds=https://a/x",
        "pds=https://u@a",
    ] {
        let flags = Flags {
            upstream: vec![upstream.to_owned()],
            ..Flags::default()
        };
        let error = error(load(&flags, &[], folder().path()));
        assert!(
            error.contains("flag --upstream") && error.contains(upstream),
            "{error}"
        );
    }
    // What names nothing must not come to mean everything.
    let named = [
        ("app.bsky.feed.*, a.b", "\"a.b\""),
        (" ,, ", "\" ,, \""),
        ("", "\"\""),
    ];
    for (collections, shown) in named {
        let flags = Flags {
            collections: Some(collections.to_owned()),
            ..Flags::default()
        };
        let error = error(load(&flags, &[], folder().path()));
        assert!(
            error.contains("flag --collections") && error.contains(shown),
            "{error}"
        );
    }
}

#[test]
fn what_is_to_be_found_must_be_possible() {
    let relay = "[[upstream]]\nkind = \"relay\"\nurl = \"https://relay.example.com\"";
    let pds = "[[upstream]]\nkind = \"pds\"\nurl = \"https://pds.example.com\"";
    let with = |keys: &str, upstream: &str| format!("[discover]\n{keys}\n{upstream}");
    let network = with_file(&with(
        "network = true\nfollow = \"hosts\"\nevery = \"1h\"",
        relay,
    ));
    let network = network.expect("right").config.mirror.discover;
    assert!(network.network && network.follow == FollowWhat::Hosts);
    assert_eq!(network.every, Duration::from_secs(3600));
    let things = "collections = [\"com.example.thing\", \"com.example.*\"]";
    let config = with_file(&with(things, pds)).expect("right").config;
    assert_eq!(config.mirror.discover.collections.len(), 2);
    let alone = format!("{things}\ncollection_source = \"https://collections.example.com\"");
    let config = with_file(&with(&alone, "")).expect("right").config;
    assert!(config.mirror.has_sources());
    for (keys, upstream, words) in [
        ("network = true", pds, "at least one relay"),
        (
            "network = true\ncollections = [\"com.example.thing\"]",
            relay,
            "either this",
        ),
        (things, "", "an upstream, or discover.collection_source"),
        (
            "collection_source = \"https://a.example.com\"",
            relay,
            "discover.collections beside it",
        ),
        ("follow = \"hosts\"", relay, "unless discover.network"),
        ("follow = \"everybody\"", relay, "relays or hosts"),
        (
            "collections = [\"nonsense\"]",
            relay,
            "discover.collections",
        ),
    ] {
        refused(&with(keys, upstream), &[words]);
    }
    let flags = Flags {
        network: true,
        upstream: vec!["relay=https://relay.example.com".to_owned()],
        ..Flags::default()
    };
    let loaded = load(&flags, &[], folder().path()).expect("right");
    assert!(loaded.config.mirror.discover.network);
    let flags = Flags {
        discover_collection: vec!["com.example.a".to_owned(), "com.example.b".to_owned()],
        ..flags
    };
    let flags = Flags {
        network: false,
        ..flags
    };
    let loaded = load(&flags, &[], folder().path()).expect("right");
    assert_eq!(loaded.config.mirror.discover.collections.len(), 2);
}

#[test]
fn a_bad_line_in_the_file_of_dids_has_a_number() {
    let here = folder();
    let path = here.path().join("dids");
    fs::write(&path, format!("{DID}\n# fine\nalice.example.com\n")).expect("written");
    let flags = Flags {
        dids: Some(path.display().to_string()),
        ..Flags::default()
    };
    let bad = error(load(&flags, &[], here.path()));
    assert!(
        bad.contains("line 3") && bad.contains("alice.example.com"),
        "{bad}"
    );
    fs::write(&path, [0xff, 0xfe, 0x00]).expect("written");
    let bad = error(load(&flags, &[], here.path()));
    assert!(bad.contains("the file of DIDs"), "{bad}");
}

#[test]
fn a_byte_order_mark_is_no_part_of_a_file() {
    let here = folder();
    let path = here.path().join("dids");
    fs::write(&path, format!("\u{feff}{DID}\r\n")).expect("written");
    let text = format!("\u{feff}dids = {path:?}");
    let config = with_file(&text).expect("nothing is wrong").config;
    assert_eq!(config.mirror.dids.len(), 1);
}

#[test]
fn an_address_that_others_reach_needs_a_token() {
    let open = error(with_file("bind = \"0.0.0.0:7070\""));
    assert!(
        open.contains("0.0.0.0:7070") && open.contains("--token"),
        "{open}"
    );
    let closed = with_file("bind = \"0.0.0.0:7070\"\ntoken = \"a-long-secret\"");
    assert!(closed.is_ok());
    let redacted = error(with_file("token = \"(redacted)\""));
    assert!(redacted.contains("token"), "{redacted}");
    let short = error(with_file("token = \"hunter2\""));
    assert!(
        !short.contains("hunter2"),
        "a token is never shown: {short}"
    );
    assert!(short.contains("8 to 512"), "{short}");
}

#[test]
fn what_is_shown_can_be_read_again_and_hides_the_token() {
    let text = "token = \"a-long-secret\"\nlog = \"json\"\nlive_grace = \"1500ms\"\n\
                collections = [\"app.bsky.*\"]\nmin_free_disk = \"1536MiB\"\n\
                [[upstream]]\nkind = \"pds\"\nurl = \"http://a:1\"\nhost = \"b\"";
    let loaded = with_file(text).expect("right");
    let shown = loaded.to_toml();
    assert!(!shown.contains("a-long-secret"), "{shown}");
    assert!(!format!("{loaded:?}").contains("a-long-secret"));
    assert!(!loaded.to_json().to_string().contains("a-long-secret"));
    assert!(
        shown.contains("bind = \"127.0.0.1:7070\"  # default"),
        "{shown}"
    );
    let log = shown
        .lines()
        .find(|line| line.starts_with("log = "))
        .expect("shown");
    assert!(log.ends_with("gapless.toml"), "{log}");
    let again = with_file(&shown).expect("its own words").config;
    let expected = Config {
        token: None,
        ..loaded.config.clone()
    };
    assert_eq!(again, expected);
    assert_eq!(loaded.to_json()["log"]["value"], "json");
    assert_eq!(loaded.to_json()["upstream"]["value"][0]["host"], "b");
}

#[test]
fn patterns_match_names_and_what_is_below() {
    let matches =
        |pattern: &str, name: &str| Pattern::parse(pattern).is_some_and(|of| of.matches(name));
    assert!(matches("app.bsky.feed.post", "app.bsky.feed.post"));
    assert!(!matches("app.bsky.feed.post", "app.bsky.feed.postgate"));
    assert!(matches("app.bsky.*", "app.bsky.feed.post"));
    assert!(matches("app.bsky.feed.*", "app.bsky.feed.post"));
    assert!(!matches("app.bsky.feed.*", "app.bsky.feedback.post"));
    assert!(!matches("app.bsky.feed.*", "app.bsky.feed."));
    for wrong in [
        "",
        "*",
        ".*",
        "app.*",
        "app.bsky.fe*",
        "app.*.feed.*",
        "app..feed.*",
        "app.bsky.feed.*x",
    ] {
        assert_eq!(Pattern::parse(wrong), None, "{wrong}");
    }
}

#[test]
fn a_file_of_certificates_is_read_or_refused_by_name() {
    let folder = folder();
    let file = folder.path().join("authorities.pem");
    let load = |text: &str| {
        std::fs::write(&file, text).expect("a file");
        let told = [("GAPLESS_CA_FILE".to_owned(), file.display().to_string())];
        load(&Flags::default(), &told, folder.path())
    };
    for (text, why) in [
        ("", "it contains no certificate"),
        ("nonsense\n", "it contains no certificate"),
        (
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
            "certificate 1 cannot be read",
        ),
    ] {
        let error = load(text).expect_err("it is of no use").to_string();
        for word in ["authorities.pem", why, "PEM"] {
            assert!(error.contains(word), "{word:?} is missing in: {error}");
        }
    }
    let key = rcgen::generate_simple_self_signed(["a.example".to_owned()]).expect("one");
    let loaded = load(&key.cert.pem()).expect("it is one");
    assert_eq!(loaded.config.mirror.authorities, [key.cert.der().clone()]);
    assert!(loaded.to_toml().contains("authorities.pem"));
}

#[test]
fn a_host_is_a_name_or_the_origin_that_documents_have() {
    for (said, meant) in [
        ("pds.example.com", "pds.example.com"),
        ("https://PDS.example.com/", "pds.example.com"),
        ("https://pds.example.com:8443", "pds.example.com:8443"),
        ("http://127.0.0.1:2583", "http://127.0.0.1:2583"),
    ] {
        let text = format!(
            "allow_private = true\n[[upstream]]\nkind = \"pds\"\nurl = \"http://proxy:1\"\nhost = \"{said}\""
        );
        let config = with_file(&text).expect("it is right").config;
        assert_eq!(config.mirror.upstreams[0].host.as_deref(), Some(meant));
    }
}
