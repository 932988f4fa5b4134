//! `gapless hosts`: the hosts that are known, and how each is.

use serde_json::json;

use super::client::{Client, talk};
use super::table::{or_dash, plain, say, table};
use super::{Failure, Outcome, Server};
use crate::api::{HostAnswer, HostsPage};

/// Entries asked for at a time.
const PAGE: usize = 1000;

pub fn list(server: &Server, limit: usize, failing: bool) -> Result<Outcome, Failure> {
    let client = Client::new(server)?;
    let all = talk(async {
        let mut all = HostsPage::default();
        while all.hosts.len() < limit {
            let count = (limit - all.hosts.len()).min(PAGE);
            let mut query = vec![("limit", count.to_string())];
            query.extend(all.cursor.map(|cursor| ("cursor", cursor.to_string())));
            if failing {
                query.push(("failing", "true".to_owned()));
            }
            let reply = client.get(client.url(&["v1", "hosts"], &query)).await?;
            let page: HostsPage = reply.read()?;
            let moved = page.cursor > all.cursor;
            all.hosts.extend(page.hosts);
            all = HostsPage {
                hosts: all.hosts,
                ..page
            };
            if all.cursor.is_none() || !moved {
                break;
            }
        }
        Ok(all)
    })?;
    match server.json {
        true => say(&json!(all).to_string()),
        false => print(&all),
    }
    Ok(match failing && !all.hosts.is_empty() {
        true => Outcome::Finding,
        false => Outcome::Fine,
    })
}

fn print(page: &HostsPage) {
    let row = |host: &HostAnswer| {
        let listed = host.repos_listed.map(|listed| listed.to_string());
        let tries = match host.failures {
            0 => None,
            failures => Some(failures.to_string()),
        };
        let state = match &host.never_reached_since {
            None => host.state.clone(),
            Some(since) => format!("{}, never reached since {since}", host.state),
        };
        vec![
            host.host.clone(),
            host.known_by.clone(),
            or_dash(host.named_by.as_deref()).to_owned(),
            or_dash(host.followed.as_deref()).to_owned(),
            state,
            or_dash(listed.as_deref()).to_owned(),
            or_dash(host.last_sweep.as_deref()).to_owned(),
            or_dash(host.failing_since.as_deref()).to_owned(),
            or_dash(tries.as_deref()).to_owned(),
            or_dash(host.next_try.as_deref()).to_owned(),
            or_dash(host.error.as_deref()).to_owned(),
        ]
    };
    let head = [
        "HOST",
        "KNOWN BY",
        "NAMED BY",
        "FOLLOWED",
        "STATE",
        "LISTED",
        "LAST SWEEP",
        "FAILING SINCE",
        "TIMES",
        "NEXT TRY",
        "ERROR",
    ];
    if !page.hosts.is_empty() {
        let rows: Vec<Vec<String>> = page.hosts.iter().map(row).collect();
        say(&table(&head, &rows));
    }
    let more = match page.cursor {
        Some(_) => " More than these: --limit.",
        None => "",
    };
    say(&format!(
        "{} hosts, {} swept, {} failing.{more}",
        page.total, page.swept, page.failing
    ));
    if page.refused > 0 {
        say(&format!(
            "{} names of new hosts were refused since the start: too many.",
            page.refused
        ));
    }
    for one in &page.refused_by {
        let limit = one.limit.map(|limit| limit.to_string());
        say(&plain(&format!(
            "  {} of them named by {}, which named {} of at most {}",
            one.refused,
            one.named_by,
            one.hosts,
            or_dash(limit.as_deref())
        )));
    }
}
