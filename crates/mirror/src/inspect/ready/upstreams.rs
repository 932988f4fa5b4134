//! Silent upstreams as reasons of `/ready`: upstreams without a frame for too long, or
//! since they were added. A connection that is still being established is not a fault,
//! but readiness does not count on it.

use std::time::Duration;

use gapless_core::ledger::Time;

use crate::api::timestamp;
use crate::inspect::Inspector;

/// The share of discovered hosts and hosts of tracked repositories that may be silent: one in ten.
/// In a large network, some hosts are always unreachable.
const SILENT_ONE_IN: usize = 10;

/// When an upstream last sent a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Contact {
    Recent,
    /// No frame yet, since a time that is not long ago.
    NotYet(Time),
    /// No frame for too long.
    Lost,
}

/// Classifies an upstream by the time of its last frame, `at`; `down_since` is the time since
/// which the connection is down.
fn contact(now: Time, at: Option<Time>, down_since: Option<Time>, longest: Duration) -> Contact {
    let lately = |at: Time| now.since(at) <= longest;
    match (at, down_since) {
        (Some(at), _) if lately(at) => Contact::Recent,
        (None, Some(since)) if lately(since) => Contact::NotYet(since),
        _ => Contact::Lost,
    }
}

impl Inspector {
    /// Adds a reason for every silent upstream of the operator, and one for the other hosts
    /// if too many of them are silent.
    pub(crate) fn add_silent_upstreams(&self, reasons: &mut Vec<String>) {
        let now = self.services.clock.time();
        let longest = self.settings.ready.max_upstream_age;
        let all: Vec<_> = {
            let covers = self.services.upstreams.read();
            let all = covers.iter().map(|(id, source)| {
                let row = &source.row;
                let operators = row.followed.is_by_operator();
                (id, row.url.clone(), operators, source.stream.heard_at())
            });
            all.collect()
        };
        if all.is_empty() {
            reasons.push(
                "no upstream is followed yet; add one with `gapless upstream add`".to_owned(),
            );
        }
        let (mut hosts, mut silent, mut not_yet) = (0, Vec::new(), Vec::new());
        for (id, url, operators, at) in all {
            let connection = self.following.connection(id).unwrap_or_default();
            let how = contact(now, at, connection.down_since, longest);
            hosts += usize::from(!operators);
            match (how, operators) {
                (Contact::Recent, _) => {}
                (Contact::NotYet(since), true) => reasons.push(connecting(
                    &format!("connecting to {url}"),
                    since,
                    connection.error.as_deref(),
                )),
                (Contact::Lost, true) => reasons.push(format!(
                    "{url} sent nothing for longer than ready.max_upstream_age ({} s)",
                    longest.as_secs()
                )),
                (Contact::NotYet(since), false) => not_yet.push((since, url)),
                (Contact::Lost, false) => silent.push(url),
            }
        }
        if (silent.len() + not_yet.len()) * SILENT_ONE_IN <= hosts {
            return;
        }
        if let Some(one) = silent.first() {
            reasons.push(format!(
                "{} of {hosts} hosts of tracked repositories or of the network, including {one}, sent nothing for longer than ready.max_upstream_age",
                silent.len()
            ));
        }
        if let Some((since, one)) = not_yet.first() {
            let what = format!(
                "connecting to {} of {hosts} hosts of tracked repositories or of the network, including {one}",
                not_yet.len()
            );
            reasons.push(connecting(&what, *since, None));
        }
    }
}

fn connecting(what: &str, since: Time, error: Option<&str>) -> String {
    let since = timestamp(since).unwrap_or_else(|| "the start".to_owned());
    let error = error.map(|error| format!(": {error}")).unwrap_or_default();
    format!("starting: {what}, no frame received since {since}{error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_never_heard_is_not_called_silent_for_long_before_it_is() {
        let longest = Duration::from_micros(100);
        let at = |micros| Some(Time(micros));
        let of = |now, heard_at, followed| contact(Time(now), heard_at, followed, longest);
        assert_eq!(of(1_050, None, at(1_000)), Contact::NotYet(Time(1_000)));
        assert_eq!(of(1_101, None, at(1_000)), Contact::Lost);
        assert_eq!(of(1_050, at(1_000), None), Contact::Recent);
        assert_eq!(of(1_101, at(1_000), at(1_090)), Contact::Lost);
        assert_eq!(of(1_050, None, None), Contact::Lost);
    }

    #[test]
    fn it_is_said_what_is_waited_for_and_since_when() {
        let said = connecting("connecting to https://a.example", Time(0), Some("refused"));
        assert!(
            said.contains("https://a.example, no frame received since 1970-01-01"),
            "{said}"
        );
        assert!(said.ends_with(": refused"), "{said}");
    }
}
