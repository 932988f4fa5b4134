//! The commands that only ask: status, one repository, gaps, lists.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::json;

use super::client::{Client, talk};
use super::pages::{self, Page};
use super::table::{ago, or_dash, plain, say, table};
use super::{Failure, Outcome, Server, a_did};
use crate::api::{
    DiscoverStatus, Gap, GapsPage, HostGap, Reach, RepoAnswer, Status, TrackedPage, UpstreamAnswer,
    sentences,
};

/// Entries asked for at a time.
const PAGE: usize = 1000;
/// Sentences that a person reads about a gap. What matters most comes first, and
/// `--json` has all of it.
const DOING: usize = 2;
const CAN_DO: usize = 1;

fn found(finding: bool) -> Outcome {
    match finding {
        true => Outcome::Finding,
        false => Outcome::Fine,
    }
}

pub fn status(server: &Server) -> Result<Outcome, Failure> {
    let client = Client::new(server)?;
    let reply = talk(client.get(client.url(&["v1", "status"], &[])))?;
    let status: Status = reply.read()?;
    let needs = needs_a_person(&status);
    match server.json {
        true => say(&reply.text),
        false => print_status(&status, &needs),
    }
    Ok(found(!needs.is_empty()))
}

/// What nobody but a person can settle.
fn needs_a_person(status: &Status) -> Vec<String> {
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
    for upstream in status.upstreams.iter().filter(|one| is_whole(one)) {
        if let Some(error) = &upstream.sweep.error {
            needs.push(format!(
                "the last sweep of {} failed, so what lives there may not all be known: {error} \
                 ({} in a row, since {})",
                upstream.url,
                upstream.sweep.failures,
                or_dash(upstream.sweep.failing_since.as_deref())
            ));
        }
    }
    for upstream in status
        .upstreams
        .iter()
        // Of the hosts of a network some are always gone: `gapless hosts --failing`.
        .filter(|upstream| !upstream.connected && upstream.followed != "discovered")
    {
        needs.push(format!(
            "{} is down: {}",
            upstream.url,
            upstream.error.as_deref().unwrap_or("not connected yet")
        ));
    }
    for upstream in &status.upstreams {
        needs.extend(strays(upstream));
    }
    for host in &status.hiding_suspended {
        needs.push(format!(
            "so much vanished from {host} that nothing of it is hidden; if it has really gone: \
             gapless upstream confirm-loss URL"
        ));
    }
    if status.dead_letters > 0 {
        let count = status.dead_letters;
        needs.push(format!(
            "{count} dead letters: input that could not be used; gapless dead list"
        ));
    }
    needs
}

/// An upstream that is followed as a host, and may be none.
fn strays(upstream: &UpstreamAnswer) -> Option<String> {
    let url = &upstream.url;
    upstream.strays.map(|count| {
        format!(
            "{url} brings {count} repositories of other hosts; is it a relay? It is followed as a host, and \
             speaks for none of them: gapless upstream remove {url}, then gapless upstream add relay {url}; \
             if it has another name in DID documents, add it with --host"
        )
    })
}

/// Whether all that lives on its host is wanted.
fn is_whole(upstream: &UpstreamAnswer) -> bool {
    upstream.kind == "pds" && !matches!(upstream.followed.as_str(), "for_tracked" | "discovered")
}

fn print_status(status: &Status, needs: &[String]) {
    let repos = &status.repos;
    say(&format!(
        "repositories  {} of {} complete, {} proven, {} incomplete, {} hidden",
        repos.complete, repos.total, repos.proven, repos.incomplete, repos.hidden
    ));
    if repos.not_recomputable > 0 {
        say(&format!(
            "              {} cannot be proven: not all keys are held (--keep-keys wanted)",
            repos.not_recomputable
        ));
    }
    let head = status.log.head.map(|head| head.to_string());
    say(&format!("log           head {}", or_dash(head.as_deref())));
    let oldest = status.debt.oldest_seconds.map(ago);
    say(&match oldest {
        Some(oldest) => format!(
            "owed          to {} repositories, the oldest for {oldest}",
            status.debt.repos
        ),
        None => format!("owed          to {} repositories", status.debt.repos),
    });
    if !status.reach.says.is_empty() {
        say(&plain(&format!("reach         {}", status.reach.says)));
    }
    print_discover(&status.discover);
    say(&format!("parked        {} frames", status.parked));
    if status.claims > 0 {
        say(&format!(
            "claimed       {} records, not proven yet",
            status.claims
        ));
    }
    say(&format!("dead letters  {}", status.dead_letters));
    say("");
    print_upstreams(&status.upstreams);
    if !needs.is_empty() {
        say("\nThis needs a person:");
    }
    for need in needs {
        say(&format!("  {}", plain(need)));
    }
}

/// What is in scope, unless that is what upstreams have and what is tracked.
fn print_discover(discover: &DiscoverStatus) {
    let scope = match discover.scope.as_str() {
        "network" => "the whole network".to_owned(),
        "collections" => format!(
            "who has records in {}; {} found",
            discover.collections.join(", "),
            discover.found
        ),
        _ => return,
    };
    say(&plain(&format!(
        "scope         {scope}, by the streams of {}",
        discover.follow
    )));
    say(&format!(
        "hosts         {} known, {} swept, {} failing; {} repositories listed",
        discover.hosts, discover.hosts_swept, discover.hosts_failing, discover.repos_listed
    ));
}

fn print_upstreams(upstreams: &[UpstreamAnswer]) {
    if upstreams.is_empty() {
        say("No upstream is followed. Add one: gapless upstream add pds URL");
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
    say(&table(&head, &rows));
    print_sources(upstreams);
}

/// Who brings what first, late or never, where several bring the same.
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
    say("");
    say(&table(&head, &rows));
}

#[derive(Deserialize)]
struct Upstreams {
    upstreams: Vec<UpstreamAnswer>,
}

pub fn upstreams(server: &Server) -> Result<Outcome, Failure> {
    let client = Client::new(server)?;
    let reply = talk(client.get(client.url(&["v1", "upstreams"], &[])))?;
    let found: Upstreams = reply.read()?;
    match server.json {
        true => say(&reply.text),
        false => print_upstreams(&found.upstreams),
    }
    for stray in found.upstreams.iter().filter_map(strays) {
        if !server.json {
            say(&format!("\n{}", plain(&stray)));
        }
    }
    Ok(Outcome::Fine)
}

pub fn repo(server: &Server, did: &str) -> Result<Outcome, Failure> {
    a_did(did)?;
    let client = Client::new(server)?;
    let reply = talk(client.get(client.url(&["v1", "repos", did], &[])))?;
    let repo: RepoAnswer = reply.read()?;
    match server.json {
        true => say(&reply.text),
        false => print_repo(&repo),
    }
    Ok(found(!repo.complete))
}

pub fn print_repo(repo: &RepoAnswer) {
    let verdict = match repo.complete {
        true => "complete".to_owned(),
        false => format!("not complete: {}", repo.reasons.join(", ")),
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
    if let Some(trouble) = &repo.last_error {
        let at = or_dash(trouble.at.as_deref());
        lines.push(("last error", format!("{at}  {}", trouble.error)));
    }
    for (name, text) in lines {
        say(&format!("{name:<12}  {}", plain(&text)));
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

pub fn gaps(server: &Server, limit: usize) -> Result<Outcome, Failure> {
    let client = Client::new(server)?;
    let mut gaps: Vec<Gap> = Vec::new();
    let mut hidden = 0;
    let (mut hosts, mut hosts_total) = (Vec::new(), 0);
    let mut reach: Option<Reach> = None;
    let cursor = pages::read(&client, "gaps", &[], limit, |page: GapsPage| {
        gaps.extend(page.gaps);
        hidden += page.hidden;
        hosts.extend(page.hosts);
        hosts_total += page.hosts_total;
        reach = reach.take().or(page.reach);
    })?;
    match server.json {
        true => say(&json!({
            "gaps": gaps, "cursor": cursor, "hidden": hidden,
            "hosts": hosts, "hosts_total": hosts_total, "reach": reach,
        })
        .to_string()),
        false => {
            print_hosts(&hosts, hosts_total);
            print_gaps(&gaps, hidden, cursor.is_some(), hosts_total > 0);
            if let Some(reach) = &reach {
                say(&plain(&reach.says));
            }
        }
    }
    Ok(found(!gaps.is_empty() || hosts_total > 0))
}

/// Hosts whose repositories may not all be known, or compared.
fn print_hosts(hosts: &[HostGap], total: u64) {
    for host in hosts {
        say(&plain(&format!(
            "{}  {}",
            host.host,
            host.reasons.join(", ")
        )));
        if let Some(since) = &host.since {
            say(&plain(&format!("    since   {since}")));
        }
        if let Some(error) = &host.error {
            say(&plain(&format!("    error   {error}")));
        }
        say(&plain(&format!("    doing   {}", host.doing)));
        say(&plain(&format!("    can do  {}", host.can_do)));
    }
    if total > 0 {
        let many = if total == 1 { "host" } else { "hosts" };
        let shown = match total.saturating_sub(hosts.len() as u64) {
            0 => String::new(),
            more => format!(", {more} of them not shown"),
        };
        say(&format!(
            "{total} {many} whose repositories may not all be known or compared{shown}."
        ));
    }
}

fn print_gaps(gaps: &[Gap], hidden: u64, more: bool, doubts: bool) {
    for gap in gaps {
        say(&plain(&format!("{}  {}", gap.did, gap.reasons.join(", "))));
        if let Some(since) = &gap.since {
            say(&plain(&format!("    since   {since}")));
        }
        if let Some(trouble) = &gap.last_error {
            say(&plain(&format!("    error   {}", trouble.error)));
        }
        let doing = sentences(&gap.doing, DOING);
        say(&plain(&format!("    doing   {doing}")));
        let can_do = sentences(&gap.can_do, CAN_DO);
        say(&plain(&format!("    can do  {can_do}")));
    }
    let and_hidden = match hidden {
        0 => String::new(),
        hidden => format!(" And {hidden} hidden (deactivated, suspended, taken down or deleted)."),
    };
    say(&match (gaps.len(), more) {
        (0, _) if doubts => format!("No repository that is known has a gap.{and_hidden}"),
        (0, _) if hidden > 0 => {
            format!(
                "No gaps: every repository that was heard of, and is shown, is complete.{and_hidden}"
            )
        }
        (0, _) => "No gaps: every repository that was heard of is complete.".to_owned(),
        (shown, false) => format!("{shown} not complete.{and_hidden}"),
        (shown, true) => format!("{shown} shown, and there are more: --limit."),
    });
}

pub fn tracked(server: &Server) -> Result<Outcome, Failure> {
    let client = Client::new(server)?;
    let mut dids: Vec<String> = Vec::new();
    let mut found = BTreeMap::new();
    talk(async {
        let mut cursor: Option<String> = None;
        loop {
            let mut query = vec![("limit", PAGE.to_string())];
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
    match server.json {
        true => say(&json!({ "tracked": dids, "found": found }).to_string()),
        false => dids.iter().for_each(|did| match found.get(did) {
            None => say(&plain(did)),
            Some(collection) => say(&plain(&format!("{did}  found by {collection}"))),
        }),
    }
    Ok(Outcome::Fine)
}
