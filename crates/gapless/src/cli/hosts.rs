//! `gapless hosts`: lists the known hosts with their state.

use serde_json::json;

use super::client::Client;
use super::pages::{self, Page};
use super::{CommandError, CommandOutcome, Server};
use crate::terminal::{format_table, or_dash, print_line, sanitize};
use gapless_mirror::api::{HostAnswer, HostsPage};

impl Page for HostsPage {
    fn entries(&self) -> usize {
        self.hosts.len()
    }

    fn cursor(&self) -> Option<u64> {
        self.cursor
    }
}

pub(crate) fn list_hosts(
    server: &Server,
    limit: usize,
    failing: bool,
) -> Result<CommandOutcome, CommandError> {
    let client = Client::new(server)?;
    let only = failing.then(|| ("failing", "true".to_owned()));
    let query: Vec<_> = only.into_iter().collect();
    let mut all = HostsPage::default();
    pages::read_pages(&client, "hosts", &query, limit, |page: HostsPage| {
        let mut hosts = std::mem::take(&mut all.hosts);
        hosts.extend(page.hosts);
        all = HostsPage { hosts, ..page };
    })?;
    if server.json {
        print_line(&json!(all).to_string());
    } else {
        print_hosts(&all);
    }
    Ok(if failing && !all.hosts.is_empty() {
        CommandOutcome::Finding
    } else {
        CommandOutcome::Fine
    })
}

fn print_hosts(page: &HostsPage) {
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
        print_line(&format_table(&head, &rows));
    }
    let more = match page.cursor {
        Some(_) => " Show more with --limit.",
        None => "",
    };
    print_line(&format!(
        "{} hosts, {} swept, {} failing.{more}",
        page.total, page.swept, page.failing
    ));
    if page.refused > 0 {
        print_line(&format!(
            "{} new hosts were refused since the start, because a quota is exhausted.",
            page.refused
        ));
    }
    for one in &page.refused_by {
        let limit = one.limit.map(|limit| limit.to_string());
        print_line(&sanitize(&format!(
            "  {} of the refused hosts named by {}, which named {} of at most {} hosts",
            one.refused,
            one.named_by,
            one.hosts,
            or_dash(limit.as_deref())
        )));
    }
}
