//! The endpoint `/subscribe` of a Jetstream server.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::body::Body;
use axum::http::Request;
use gapless_atp::syntax::Did;

use super::{Log, Message};
use crate::faults::{Faults, Place};
use crate::http::{Answer, Query, text_answer};
use crate::net::Net;
use crate::stream::socket::{self, Incoming, Socket, TEXT, write_frame};
use crate::stream::subscribe::stay_silent;
use tokio::io::AsyncWriteExt;

/// The number of messages that are read, filtered and written at once.
const BATCH: usize = 256;
const MOST_COLLECTIONS: usize = 100;
const MOST_DIDS: usize = 10_000;

#[derive(Debug, Default)]
struct Filter {
    /// Whole names.
    collections: BTreeSet<String>,
    /// Beginnings of names, including the final dot.
    prefixes: Vec<String>,
    dids: BTreeSet<Did>,
}

impl Filter {
    fn of(query: &Query) -> Result<Filter, String> {
        let mut filter = Filter::default();
        for wanted in query.all("wantedCollections") {
            match wanted.strip_suffix('*') {
                Some(prefix) if prefix.ends_with('.') => filter.prefixes.push(prefix.to_owned()),
                Some(_) => return Err(format!("invalid collection: {wanted}")),
                None => {
                    filter.collections.insert(wanted.to_owned());
                }
            }
        }
        for wanted in query.all("wantedDids") {
            let did = Did::parse(wanted).map_err(|_| format!("invalid DID: {wanted}"))?;
            filter.dids.insert(did);
        }
        if filter.collections.len() + filter.prefixes.len() > MOST_COLLECTIONS {
            return Err(format!("too many collections: at most {MOST_COLLECTIONS}"));
        }
        if filter.dids.len() > MOST_DIDS {
            return Err(format!("too many DIDs: at most {MOST_DIDS}"));
        }
        Ok(filter)
    }

    fn lets_pass(&self, message: &Message) -> bool {
        if !self.dids.is_empty() && !self.dids.contains(&message.did) {
            return false;
        }
        let Some(collection) = &message.collection else {
            return true;
        };
        let any = self.collections.is_empty() && self.prefixes.is_empty();
        let by_prefix = |prefix: &String| collection.starts_with(prefix.as_str());
        any || self.collections.contains(collection) || self.prefixes.iter().any(by_prefix)
    }
}

pub(crate) fn answer(net: &Net, request: Request<Body>) -> Answer {
    if request.uri().path() != "/subscribe" {
        return text_answer(200, "This is the Jetstream of a Gapless test network.\n");
    }
    let query = Query::of(&request);
    let filter = match Filter::of(&query) {
        Ok(filter) => filter,
        Err(message) => return text_answer(400, message),
    };
    let cursor = match query.get("cursor").map(str::parse::<u64>) {
        None => None,
        Some(Ok(cursor)) => Some(cursor),
        Some(Err(_)) => return text_answer(400, "invalid cursor"),
    };
    let log = net.world().jetstream.as_ref().map(|it| it.log.clone());
    let Some(log) = log else {
        return text_answer(404, "no Jetstream");
    };
    let faults = net.faults.clone();
    // Chosen before the handshake is answered, so that everything after it is sent.
    let position = log.position(cursor);
    match socket::accept(request) {
        Ok(handshake) => handshake.run(move |socket| serve(log, faults, filter, position, socket)),
        Err(refusal) => *refusal,
    }
}

async fn serve(
    log: Arc<Log>,
    faults: Arc<Faults>,
    filter: Filter,
    mut position: u64,
    mut socket: Socket,
) {
    if stay_silent(&faults, Place::Jetstream, &mut socket).await {
        return;
    }
    let mut changed = log.changed.subscribe();
    loop {
        changed.mark_unchanged();
        let (messages, next) = log.read(position, BATCH);
        position = next;
        if !messages.is_empty() {
            let mut bytes = Vec::new();
            for message in messages.iter().filter(|message| filter.lets_pass(message)) {
                write_frame(&mut bytes, TEXT, message.text.as_bytes());
            }
            if socket.out.write_all(&bytes).await.is_err() {
                return;
            }
            continue;
        }
        tokio::select! {
            message = socket.incoming.recv() => match message {
                Some(Incoming::Ping(payload)) => {
                    let silent = faults.swallow_pong(Place::Jetstream);
                    if !silent && socket.pong(&payload).await.is_err() {
                        return;
                    }
                }
                Some(Incoming::Message(_)) => (),
                None | Some(Incoming::Close) => return,
            },
            result = changed.changed() => if result.is_err() { return },
        }
    }
}
