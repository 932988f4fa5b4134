//! Tests the settings that say how long the log and what its consumers need are kept.

use std::time::Duration;

use crate::config::{defaults, refused, with_file, with_variable};

const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn without_a_setting_the_log_is_kept_for_ever_and_a_consumer_holds_for_three_days() {
    let config = defaults();
    assert_eq!(config.mirror.keep_log, None);
    assert_eq!(config.mirror.hold, 72 * HOUR);
}

#[test]
fn the_log_is_kept_for_a_time_or_for_ever() {
    let kept = |text: &str| {
        let loaded = with_file(&format!("keep_log = \"{text}\"")).expect("it is valid");
        loaded.config.mirror.keep_log
    };
    assert_eq!(kept("all"), None);
    assert_eq!(kept("30d"), Some(30 * 24 * HOUR));
    assert_eq!(kept("0s"), Some(Duration::ZERO));
    let loaded = with_variable("GAPLESS_KEEP_LOG", "1h").expect("it is valid");
    assert_eq!(loaded.config.mirror.keep_log, Some(HOUR));
    let loaded = with_variable("GAPLESS_HOLD", "90s").expect("it is valid");
    assert_eq!(loaded.config.mirror.hold, Duration::from_secs(90));
}

#[test]
fn a_wrong_value_is_named_with_what_is_expected() {
    refused("keep_log = \"ever\"", &["`keep_log`", "all, or a duration"]);
    refused("keep_log = \"999999d\"", &["`keep_log`"]);
    refused("keep_log = true", &["`keep_log`", "all, or a duration"]);
    refused("hold = \"all\"", &["`hold`", "a duration"]);
    refused("hold = \"0s\"", &["`hold`", "at least 1s"]);
    refused("keep_lgo = \"1h\"", &["did you mean `keep_log`?"]);
}

#[test]
fn what_is_shown_can_be_read_again() {
    for (text, shown) in [
        ("", "keep_log = \"all\"  # default"),
        (
            "keep_log = \"36h\"\nhold = \"7d\"",
            "keep_log = \"36h\"  # ",
        ),
    ] {
        let loaded = with_file(text).expect("it is valid");
        let toml = loaded.to_toml();
        assert!(toml.contains(shown), "{toml}");
        let again = with_file(&toml).expect("its own output is valid").config;
        assert_eq!(again, loaded.config);
    }
    let loaded = with_file("hold = \"7d\"").expect("it is valid");
    let json = loaded.to_json();
    assert_eq!(
        (&json["keep_log"]["value"], &json["hold"]["value"]),
        (&"all".into(), &"7d".into())
    );
}
