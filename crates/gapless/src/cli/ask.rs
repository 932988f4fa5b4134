//! The commands that only read: `status`, `repo`, `gaps`, and the lists of upstreams and
//! of tracked repositories.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::json;

use super::client::{Client, run_requests};
use super::pages::{self, Page};
use super::{CommandError, CommandOutcome, Server, check_did, consumers};
use crate::terminal::{format_age, format_table, or_dash, print_line, sanitize};
use gapless_mirror::api::{
    DiscoverStatus, Gap, GapsPage, HostGap, Reach, RepoAnswer, Status, TrackedPage, UpstreamAnswer,
    sentences,
};

/// Entries per request.
const PAGE_ENTRIES: usize = 1000;
/// Sentences printed about a gap, the most important first. `--json` has all of them.
const DOING_SENTENCES: usize = 2;
const CAN_DO_SENTENCES: usize = 1;

fn outcome_of(finding: bool) -> CommandOutcome {
    if finding {
        CommandOutcome::Finding
    } else {
        CommandOutcome::Fine
    }
}

pub(crate) fn show_status(server: &Server) -> Result<CommandOutcome, CommandError> {
    let client = Client::new(server)?;
    let reply = run_requests(client.get(client.url(&["v1", "status"], &[])))?;
    let status: Status = reply.read()?;
    let needs = list_problems(&status);
    if server.json {
        print_line(&reply.text);
    } else {
        print_status(&status, &needs);
    }
    Ok(outcome_of(!needs.is_empty()))
}

/// Lists the problems that only the operator can solve.
fn list_problems(status: &Status) -> Vec<String> {
    let mut needs = Vec::new();
    if !status.store.writes {
        needs.push(format!(
            "nothing is written since {}: {}",
            or_dash(status.store.since.as_deref()),
            status.store.error.as_deref().unwrap_or("the store is full")
        ));
    }
    if status.upstreams.is_empty() {
        needs.push("no upstream is followed: gapless upstream add pds URL".to_owned());
    }
    for upstream in status.upstreams.iter().filter(|one| is_followed_whole(one)) {
        if let Some(error) = &upstream.sweep.error {
            needs.push(format!(
                "the last sweep of {} failed, so some repositories of this host may be unknown: {error} \
                 ({} failures in a row, since {})",
                upstream.url,
                upstream.sweep.failures,
                or_dash(upstream.sweep.failing_since.as_deref())
            ));
        }
    }
    for upstream in status
        .upstreams
        .iter()
        // Some hosts of a network are always down; `gapless hosts --failing` lists them.
        .filter(|upstream| !upstream.connected && upstream.followed != "discovered")
    {
        needs.push(format!(
            "{} is down: {}",
            upstream.url,
            upstream.error.as_deref().unwrap_or("not connected yet")
        ));
    }
    for upstream in &status.upstreams {
        needs.extend(describe_strays(upstream));
    }
    for host in &status.hiding_suspended {
        needs.push(format!(
            "so many repositories vanished from {host} that Gapless hides none of them; if the loss is \
             real: gapless upstream confirm-loss URL"
        ));
    }
    if status.dead_letters > 0 {
        let count = status.dead_letters;
        needs.push(format!(
            "{count} dead letters, which are events that Gapless could not use: gapless dead list"
        ));
    }
    needs.extend(consumers::list_overruns(&status.consumers));
    needs
}

/// Describes an upstream that is followed as a host and looks like a relay.
fn describe_strays(upstream: &UpstreamAnswer) -> Option<String> {
    let url = &upstream.url;
    upstream.strays.map(|count| {
        format!(
            "{url} is followed as a host, but brings {count} repositories of other hosts, and covers none of \
             these repositories. If {url} is a relay: gapless upstream remove {url}, then gapless upstream \
             add relay {url}. If DID documents give the host another name, add the upstream with --host"
        )
    })
}

/// Whether the upstream is followed for every repository of its host.
fn is_followed_whole(upstream: &UpstreamAnswer) -> bool {
    upstream.kind == "pds" && !matches!(upstream.followed.as_str(), "for_tracked" | "discovered")
}

fn print_status(status: &Status, needs: &[String]) {
    let repos = &status.repos;
    print_line(&format!(
        "repositories  {} of {} complete, {} proven, {} incomplete, {} hidden",
        repos.complete, repos.total, repos.proven, repos.incomplete, repos.hidden
    ));
    if repos.not_recomputable > 0 {
        print_line(&format!(
            "              {} cannot be proven: not all keys are held (--keep-keys wanted)",
            repos.not_recomputable
        ));
    }
    let head = status.log.head.map(|head| head.to_string());
    print_line(&format!("log           head {}", or_dash(head.as_deref())));
    let oldest = status.debt.oldest_seconds.map(format_age);
    print_line(&match oldest {
        Some(oldest) => format!(
            "owed          to {} repositories, the oldest for {oldest}",
            status.debt.repos
        ),
        None => format!("owed          to {} repositories", status.debt.repos),
    });
    if !status.reach.says.is_empty() {
        print_line(&sanitize(&format!("reach         {}", status.reach.says)));
    }
    print_discover(&status.discover);
    print_line(&format!("parked        {} frames", status.parked));
    if status.claims > 0 {
        print_line(&format!(
            "claimed       {} records, not proven yet",
            status.claims
        ));
    }
    print_line(&format!("dead letters  {}", status.dead_letters));
    print_line("");
    print_upstreams(&status.upstreams);
    if !status.consumers.is_empty() {
        print_line("");
        consumers::print_consumers(&status.consumers);
    }
    if !needs.is_empty() {
        print_line("\nProblems that need a person:");
    }
    for need in needs {
        print_line(&format!("  {}", sanitize(need)));
    }
}

/// Prints the scope, unless it is only the upstreams' and the tracked repositories.
fn print_discover(discover: &DiscoverStatus) {
    let scope = match discover.scope.as_str() {
        "network" => "the whole network".to_owned(),
        "collections" => format!(
            "repositories with records in {}; {} found",
            discover.collections.join(", "),
            discover.found
        ),
        _ => return,
    };
    print_line(&sanitize(&format!(
        "scope         {scope}, by the streams of {}",
        discover.follow
    )));
    print_line(&format!(
        "hosts         {} known, {} swept, {} failing; {} repositories listed",
        discover.hosts, discover.hosts_swept, discover.hosts_failing, discover.repos_listed
    ));
}

fn print_upstreams(upstreams: &[UpstreamAnswer]) {
    if upstreams.is_empty() {
        print_line("No upstream is followed. Add one: gapless upstream add pds URL");
        return;
    }
    let row = |upstream: &UpstreamAnswer| {
        let state = match (upstream.connected, upstream.open) {
            (true, true) => "open",
            (true, false) => "connected",
            (false, _) => "down",
        };
        let cursor = upstream.cursor.map(|cursor| cursor.to_string());
        let lag = upstream.lag_seconds.map(|lag| format!("{lag:.1}s"));
        let unswept = upstream.sweep.error.as_ref();
        let unswept = unswept.map(|error| format!("sweep: {error}"));
        let error = upstream.error.clone().or(unswept);
        vec![
            upstream.url.clone(),
            upstream.kind.clone(),
            state.to_owned(),
            or_dash(cursor.as_deref()).to_owned(),
            or_dash(lag.as_deref()).to_owned(),
            or_dash(upstream.last_frame.as_deref()).to_owned(),
            or_dash(upstream.sweep.last.as_deref()).to_owned(),
            or_dash(error.as_deref()).to_owned(),
        ]
    };
    let rows: Vec<Vec<String>> = upstreams.iter().map(row).collect();
    let head = [
        "UPSTREAM",
        "KIND",
        "STATE",
        "CURSOR",
        "LAG",
        "LAST FRAME",
        "LAST SWEEP",
        "ERROR",
    ];
    print_line(&format_table(&head, &rows));
    print_sources(upstreams);
}

/// Prints which upstream brings events first, late or never, where several upstreams
/// bring the same events.
fn print_sources(upstreams: &[UpstreamAnswer]) {
    let seconds = |value: Option<f64>| match value {
        Some(value) => format!("{value:.3}s"),
        None => "-".to_owned(),
    };
    let row = |upstream: &UpstreamAnswer| {
        let source = upstream.source.as_ref()?;
        Some(vec![
            upstream.url.clone(),
            source.first.to_string(),
            source.late.to_string(),
            seconds(source.late_p99_seconds),
            seconds(source.late_max_seconds),
            source.missed.to_string(),
            or_dash(source.lossy_since.as_deref()).to_owned(),
        ])
    };
    let rows: Vec<Vec<String>> = upstreams.iter().filter_map(row).collect();
    if rows.is_empty() {
        return;
    }
    let head = [
        "SOURCE",
        "FIRST",
        "LATE",
        "LATE P99",
        "LATE MAX",
        "MISSED",
        "LOSSY SINCE",
    ];
    print_line("");
    print_line(&format_table(&head, &rows));
}

#[derive(Deserialize)]
struct UpstreamList {
    upstreams: Vec<UpstreamAnswer>,
}

pub(crate) fn list_upstreams(server: &Server) -> Result<CommandOutcome, CommandError> {
    let client = Client::new(server)?;
    let reply = run_requests(client.get(client.url(&["v1", "upstreams"], &[])))?;
    let found: UpstreamList = reply.read()?;
    if server.json {
        print_line(&reply.text);
    } else {
        print_upstreams(&found.upstreams);
    }
    for stray in found.upstreams.iter().filter_map(describe_strays) {
        if !server.json {
            print_line(&format!("\n{}", sanitize(&stray)));
        }
    }
    Ok(CommandOutcome::Fine)
}

pub(crate) fn show_repo(server: &Server, did: &str) -> Result<CommandOutcome, CommandError> {
    check_did(did)?;
    let client = Client::new(server)?;
    let reply = run_requests(client.get(client.url(&["v1", "repos", did], &[])))?;
    let repo: RepoAnswer = reply.read()?;
    if server.json {
        print_line(&reply.text);
    } else {
        print_repo(&repo);
    }
    Ok(outcome_of(!repo.complete))
}

pub(crate) fn print_repo(repo: &RepoAnswer) {
    let verdict = if repo.complete {
        "complete".to_owned()
    } else {
        format!("not complete: {}", repo.reasons.join(", "))
    };
    let evidence = &repo.evidence;
    let dash = |text: &Option<String>| or_dash(text.as_deref()).to_owned();
    let records = repo.records.map(|records| records.to_string());
    let mut lines = vec![
        ("repository", repo.did.clone()),
        ("verdict", verdict),
        ("as of", dash(&repo.as_of)),
        ("host", dash(&repo.host)),
        ("account", repo.account.clone()),
        ("rev", dash(&repo.rev)),
        ("root", dash(&repo.data)),
        ("commit", dash(&repo.commit)),
        ("records", or_dash(records.as_deref()).to_owned()),
        ("evidence", evidence.level.clone()),
        ("via", dash(&evidence.via)),
        ("proven at", dash(&evidence.proven_at)),
        ("compared at", dash(&evidence.swept_at)),
    ];
    if let Some(awaits) = &repo.awaits {
        lines.push(("awaits", awaits.clone()));
    }
    if let Some(claims) = &repo.claims {
        let by = claims.upstreams.join(", ");
        let rev = or_dash(claims.rev.as_deref());
        let text = format!("{} records up to {rev}, not proven, by {by}", claims.count);
        lines.push(("claimed", text));
    }
    if let Some(debt) = &repo.debt {
        let owed: Vec<String> = debt
            .owed
            .iter()
            .map(|owed| format!("{} ({})", owed.what, owed.why))
            .collect();
        lines.push(("owed", owed.join(", ")));
        lines.push(("tries", debt.attempts.to_string()));
        lines.push(("next try", dash(&debt.next_try)));
    }
    if let Some(last_error) = &repo.last_error {
        let at = or_dash(last_error.at.as_deref());
        lines.push(("last error", format!("{at}  {}", last_error.error)));
    }
    for (name, text) in lines {
        print_line(&format!("{name:<12}  {}", sanitize(&text)));
    }
}

impl Page for GapsPage {
    fn entries(&self) -> usize {
        self.gaps.len()
    }

    fn cursor(&self) -> Option<u64> {
        self.cursor
    }
}

pub(crate) fn list_gaps(server: &Server, limit: usize) -> Result<CommandOutcome, CommandError> {
    let client = Client::new(server)?;
    let mut gaps: Vec<Gap> = Vec::new();
    let mut hidden = 0;
    let (mut hosts, mut hosts_total) = (Vec::new(), 0);
    let mut reach: Option<Reach> = None;
    let cursor = pages::read_pages(&client, "gaps", &[], limit, |page: GapsPage| {
        gaps.extend(page.gaps);
        hidden += page.hidden;
        hosts.extend(page.hosts);
        hosts_total += page.hosts_total;
        reach = reach.take().or(page.reach);
    })?;
    if server.json {
        print_line(
            &json!({
                "gaps": gaps, "cursor": cursor, "hidden": hidden,
                "hosts": hosts, "hosts_total": hosts_total, "reach": reach,
            })
            .to_string(),
        );
    } else {
        print_hosts(&hosts, hosts_total);
        print_gaps(&gaps, hidden, cursor.is_some(), hosts_total > 0);
        if let Some(reach) = &reach {
            print_line(&sanitize(&reach.says));
        }
    }
    Ok(outcome_of(!gaps.is_empty() || hosts_total > 0))
}

/// Prints the hosts whose repositories may not all be known or compared.
fn print_hosts(hosts: &[HostGap], total: u64) {
    for host in hosts {
        print_line(&sanitize(&format!(
            "{}  {}",
            host.host,
            host.reasons.join(", ")
        )));
        if let Some(since) = &host.since {
            print_line(&sanitize(&format!("    since   {since}")));
        }
        if let Some(error) = &host.error {
            print_line(&sanitize(&format!("    error   {error}")));
        }
        print_line(&sanitize(&format!("    doing   {}", host.doing)));
        print_line(&sanitize(&format!("    can do  {}", host.can_do)));
    }
    if total > 0 {
        let many = if total == 1 { "host" } else { "hosts" };
        let shown = match total.saturating_sub(hosts.len() as u64) {
            0 => String::new(),
            more => format!(", {more} of them not shown"),
        };
        print_line(&format!(
            "{total} {many} whose repositories may not all be known or compared{shown}."
        ));
    }
}

fn print_gaps(gaps: &[Gap], hidden: u64, more: bool, doubts: bool) {
    for gap in gaps {
        print_line(&sanitize(&format!(
            "{}  {}",
            gap.did,
            gap.reasons.join(", ")
        )));
        if let Some(since) = &gap.since {
            print_line(&sanitize(&format!("    since   {since}")));
        }
        if let Some(last_error) = &gap.last_error {
            print_line(&sanitize(&format!("    error   {}", last_error.error)));
        }
        let doing = sentences(&gap.doing, DOING_SENTENCES);
        print_line(&sanitize(&format!("    doing   {doing}")));
        let can_do = sentences(&gap.can_do, CAN_DO_SENTENCES);
        print_line(&sanitize(&format!("    can do  {can_do}")));
    }
    let and_hidden = match hidden {
        0 => String::new(),
        hidden => format!(" And {hidden} hidden (deactivated, suspended, taken down or deleted)."),
    };
    print_line(&match (gaps.len(), more) {
        (0, _) if doubts => format!("No known repository has a gap.{and_hidden}"),
        (0, _) if hidden > 0 => {
            format!("No gaps: every known repository that is not hidden is complete.{and_hidden}")
        }
        (0, _) => "No gaps: every known repository is complete.".to_owned(),
        (shown, false) => format!("{shown} not complete.{and_hidden}"),
        (shown, true) => format!("{shown} shown; there are more. Show more with --limit."),
    });
}

pub(crate) fn list_tracked(server: &Server) -> Result<CommandOutcome, CommandError> {
    let client = Client::new(server)?;
    let mut dids: Vec<String> = Vec::new();
    let mut found = BTreeMap::new();
    run_requests(async {
        let mut cursor: Option<String> = None;
        loop {
            let mut query = vec![("limit", PAGE_ENTRIES.to_string())];
            query.extend(cursor.clone().map(|cursor| ("cursor", cursor)));
            let reply = client.get(client.url(&["v1", "tracked"], &query)).await?;
            let page: TrackedPage = reply.read()?;
            dids.extend(page.tracked);
            found.extend(page.found);
            let moved = page.cursor > cursor;
            cursor = page.cursor;
            if cursor.is_none() || !moved {
                return Ok(());
            }
        }
    })?;
    if server.json {
        print_line(&json!({ "tracked": dids, "found": found }).to_string());
    } else {
        dids.iter().for_each(|did| match found.get(did) {
            None => print_line(&sanitize(did)),
            Some(collection) => print_line(&sanitize(&format!("{did}  found by {collection}"))),
        });
    }
    Ok(CommandOutcome::Fine)
}
