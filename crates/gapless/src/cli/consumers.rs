//! `gapless consumers`: lists the consumers of the log, and removes one of them.
//!
//! A removal cannot be undone, so the command says what will be let go and asks first. Where no
//! person can be asked, the command removes nothing without `--yes`.

use gapless_net::operator::Method;

use super::client::{Client, Reply, run_requests};
use super::{CommandError, CommandOutcome, Server};
use crate::terminal::{ask_yes, can_ask, format_age, format_table, or_dash, print_line, sanitize};
use gapless_mirror::api::{
    ApiError, AuditAnswer, ConsumerAnswer, ConsumerRemoved, ConsumerSelector, ConsumersAnswer,
    HeldAlone, HeldNumbers,
};

fn ask_consumers(client: &Client) -> Result<Reply, CommandError> {
    run_requests(client.get(client.url(&["v1", "consumers"], &[])))
}

/// Lists the consumers. The outcome is a finding if one is overrun.
pub(crate) fn list_consumers(server: &Server) -> Result<CommandOutcome, CommandError> {
    let client = Client::new(server)?;
    let reply = ask_consumers(&client)?;
    let answer: ConsumersAnswer = reply.read()?;
    if server.json {
        print_line(&reply.text);
    } else {
        print_answer(&answer);
    }
    Ok(if answer.consumers.iter().any(|one| one.overrun) {
        CommandOutcome::Finding
    } else {
        CommandOutcome::Fine
    })
}

fn print_answer(answer: &ConsumersAnswer) {
    let last = answer.head.saturating_sub(1);
    print_line(&if last < answer.first {
        format!("log  no rows; the next number is {}", answer.head)
    } else {
        format!("log  numbers {} to {last}", answer.first)
    });
    print_line("");
    if answer.consumers.is_empty() {
        print_line("The log has no consumers.");
    } else {
        print_consumers(&answer.consumers);
    }
    for one in answer.consumers.iter().filter(|one| holds_alone(one)) {
        print_line(&sanitize(&format!(
            "\n{} alone holds back:\n{}",
            one.full_name(),
            describe_held(&one.holds_alone)
        )));
    }
    for overrun in list_overruns(&answer.consumers) {
        print_line(&sanitize(&format!("\n{overrun}")));
    }
    if answer.audit.is_empty() {
        return;
    }
    let row = |row: &AuditAnswer| {
        let at = or_dash(row.at.as_deref()).to_owned();
        vec![at, row.by.clone(), row.consumer.clone(), row.what.clone()]
    };
    let rows: Vec<Vec<String>> = answer.audit.iter().map(row).collect();
    print_line("\nThe last orders and overruns:");
    print_line(&format_table(&["AT", "BY", "CONSUMER", "WHAT"], &rows));
}

/// Prints the table of consumers.
pub(super) fn print_consumers(consumers: &[ConsumerAnswer]) {
    let row = |one: &ConsumerAnswer| {
        let age = one.behind_seconds.map(format_age);
        let holds = match one.holds_numbers {
            0 => "-".to_owned(),
            numbers => format!("{numbers} of {}", one.needs),
        };
        let state = match (one.overrun, one.behind) {
            (true, _) => "overrun",
            (false, 0) => "at the head",
            (false, _) => "behind",
        };
        vec![
            one.name.clone(),
            one.class.clone(),
            one.id.to_string(),
            one.lane.to_string(),
            one.next.to_string(),
            one.behind.to_string(),
            or_dash(age.as_deref()).to_owned(),
            holds,
            or_dash(one.moved_at.as_deref()).to_owned(),
            state.to_owned(),
        ]
    };
    let rows: Vec<Vec<String>> = consumers.iter().map(row).collect();
    let head = [
        "CONSUMER", "CLASS", "ID", "LANE", "NEXT", "BEHIND", "AGE", "HOLDS", "MOVED", "STATE",
    ];
    print_line(&format_table(&head, &rows));
}

/// Names each overrun consumer, and says what an operator can do.
pub(super) fn list_overruns(consumers: &[ConsumerAnswer]) -> Vec<String> {
    let overrun = consumers.iter().filter(|one| one.overrun);
    let describe = |one: &ConsumerAnswer| {
        let ConsumerAnswer { name, behind, .. } = one;
        format!(
            "{}, a consumer of the log, is overrun: its position is {behind} numbers behind and has not \
             moved since {}, so Gapless keeps nothing for {name}. Start {name} again, or remove it: \
             gapless consumers remove {name}",
            one.full_name(),
            or_dash(one.moved_at.as_deref())
        )
    };
    overrun.map(describe).collect()
}

fn holds_alone(one: &ConsumerAnswer) -> bool {
    one.holds_alone != HeldAlone::default()
}

/// Lists what one consumer alone holds back, one line for each kind.
fn describe_held(held: &HeldAlone) -> String {
    let line = |what: &str, numbers: &HeldNumbers| {
        let HeldNumbers { from, to, since } = numbers;
        let count = to.saturating_sub(*from).saturating_add(1);
        let since = or_dash(since.as_deref());
        format!("    {what}  numbers {from} to {to} ({count}), since {since}")
    };
    let log = held.log.as_ref();
    let versions = held.versions.as_ref();
    let lines: Vec<String> = [
        log.map(|numbers| line("rows of the log   ", numbers)),
        versions.map(|numbers| line("superseded records", numbers)),
    ]
    .into_iter()
    .flatten()
    .collect();
    lines.join("\n")
}

/// Says what a removal lets go.
fn describe_removal(one: &ConsumerAnswer) -> String {
    let name = one.full_name();
    if holds_alone(one) {
        format!(
            "{name} alone holds back:\n{}\nWhat of this is older than keep_log and keep_versions goes.",
            describe_held(&one.holds_alone)
        )
    } else if one.overrun {
        format!("{name} is overrun and holds nothing back.")
    } else {
        format!("{name} holds nothing back that no other consumer needs.")
    }
}

fn api_error(error: ApiError) -> CommandError {
    match error {
        ApiError::Invalid(text) => CommandError::Usage(text),
        other => CommandError::Failed(other.to_string()),
    }
}

/// Asks the person at the terminal whether a consumer is to be removed. Returns the consumer by
/// all that names it, so that the order cannot reach another one.
fn confirm_removal(
    client: &Client,
    which: &ConsumerSelector,
) -> Result<ConsumerSelector, CommandError> {
    if !can_ask() {
        return Err(CommandError::Usage(
            "the removal of a consumer cannot be undone, and there is no terminal to ask at: pass --yes to \
             remove the consumer"
                .to_owned(),
        ));
    }
    let answer: ConsumersAnswer = ask_consumers(client)?.read()?;
    let one = which.select(&answer.consumers).map_err(api_error)?;
    eprintln!("{}", sanitize(&describe_removal(one)));
    eprintln!(
        "The removal cannot be undone: the consumer can only begin again from the beginning."
    );
    if !ask_yes(&format!("Remove {}?", sanitize(&one.name))) {
        return Err(CommandError::Failed(
            "not confirmed; the consumer stays".to_owned(),
        ));
    }
    Ok(ConsumerSelector {
        name: Some(one.name.clone()),
        class: Some(one.class.clone()),
        id: Some(one.id),
        lane: Some(one.lane),
    })
}

pub(crate) fn remove_consumer(
    server: &Server,
    which: &ConsumerSelector,
    yes: bool,
) -> Result<CommandOutcome, CommandError> {
    let client = Client::new(server)?;
    let which = if yes {
        which.clone()
    } else {
        confirm_removal(&client, which)?
    };
    let parts = [
        ("name", which.name),
        ("class", which.class),
        ("id", which.id.map(|id| id.to_string())),
        ("lane", which.lane.map(|lane| lane.to_string())),
    ];
    let query: Vec<(&str, String)> = parts
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
        .collect();
    let url = client.url(&["v1", "consumers"], &query);
    let reply = run_requests(client.ask(Method::DELETE, url, None))?;
    let gone: ConsumerRemoved = reply.read()?;
    if server.json {
        print_line(&reply.text);
        return Ok(CommandOutcome::Fine);
    }
    let name = gone.removed.full_name();
    print_line(&sanitize(&if gone.let_go == HeldAlone::default() {
        format!("{name} is removed. Nothing was held back for this consumer alone.")
    } else {
        format!(
            "{name} is removed. No consumer holds back any more:\n{}",
            describe_held(&gone.let_go)
        )
    }));
    Ok(CommandOutcome::Fine)
}
