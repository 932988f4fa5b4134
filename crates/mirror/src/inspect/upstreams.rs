//! Answers about the upstreams that are followed: connection, cursor, lag and sweeps.

use crate::api::{ApiError, RefusedAnswer, SweepAnswer, UpstreamAnswer, followed_name, timestamp};
use crate::inspect::Inspector;
use crate::inspect::source_report::source_answer;

impl Inspector {
    pub(crate) fn upstream_answers(&self) -> Result<Vec<UpstreamAnswer>, ApiError> {
        self.services.upstreams.sources.expire_due();
        let view = self.services.store.view();
        let sources: Vec<_> = {
            let covers = self.services.upstreams.read();
            covers
                .iter()
                .map(|(id, source)| (id, source.clone()))
                .collect()
        };
        let mut all = Vec::new();
        for (id, source) in sources {
            let connection = self.following.connection(id).unwrap_or_default();
            let host = source
                .row
                .host
                .and_then(|host| self.services.hosts.get(host));
            let sweep = source.row.host.and_then(|host| self.sweeps.get(host));
            let refused = source
                .row
                .host
                .and_then(|host| self.services.hosts.refused_by(host));
            let sweep = sweep.unwrap_or_default();
            let failing = sweep.failing.as_ref();
            all.push(UpstreamAnswer {
                url: source.row.url.clone(),
                kind: source.row.kind.name().to_owned(),
                host: host.as_ref().map(|host| host.name.clone()),
                followed: followed_name(source.row.followed).to_owned(),
                connected: source.stream.is_connected(),
                open: source.stream.open_epoch(&source.row).is_some(),
                cursor: view.cursor(id)?.map(|cursor| cursor.seq),
                epoch: source.row.epoch.0,
                first_cursor_since_reset: source.row.first_cursor_since_reset,
                lag_seconds: connection.lag.get().map(|lag| lag.as_secs_f64()),
                last_frame: connection.last_frame.and_then(timestamp),
                sweep: SweepAnswer {
                    every_seconds: self.sweep_every().as_secs(),
                    last: host
                        .and_then(|host| host.swept)
                        .and_then(|swept| timestamp(swept.at)),
                    suspects: sweep.suspects,
                    failures: sweep.failures(),
                    error: failing.map(|failing| failing.error.clone()),
                    failing_since: failing.and_then(|failing| timestamp(failing.since)),
                },
                error: connection.error.filter(|_| !source.stream.is_connected()),
                next_dial: connection.next_dial.and_then(timestamp),
                refused: refused.map(|refused| RefusedAnswer {
                    at: timestamp(refused.at),
                    did: refused.did.to_string(),
                    reason: refused.class.to_owned(),
                    error: refused.error,
                }),
                strays: source
                    .row
                    .host
                    .and_then(|host| self.services.admission.strays.reported_count(host)),
                source: source_answer(&self.services, id),
            });
        }
        Ok(all)
    }
}
