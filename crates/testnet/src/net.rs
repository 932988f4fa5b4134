//! What all servers share: the world behind its lock, the faults and the addresses; and
//! the function that answers every request.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::body::Body;
use axum::http::Request;
use gapless_atp::syntax::Did;
use serde::Serialize;

use crate::config::Config;
use crate::faults::{Faults, Place, drip, gate};
use crate::http::{Answer, Query, Refusal};
use crate::stream::subscribe::{self, Subscription};
use crate::stream::{Feed, Manners, socket};
use crate::world::World;
use crate::{jetstream, pds, plc, relay};

/// The addresses of all servers.
#[derive(Debug, Clone, Serialize)]
pub struct Urls {
    pub plc: String,
    pub pds: Vec<String>,
    pub relay: Option<String>,
    pub jetstream: Option<String>,
    /// The server for control and truth.
    pub control: String,
}

/// A running network, as its servers see it.
pub(crate) struct Net {
    pub config: Arc<Config>,
    pub faults: Arc<Faults>,
    pub urls: Urls,
    world: Mutex<World>,
    /// Held while waiting for the world, so that a task which releases the world and
    /// wants it again at once queues behind the tasks that wait already.
    turn: Mutex<()>,
}

impl Net {
    pub(crate) fn new(config: Arc<Config>, faults: Arc<Faults>, urls: Urls, world: World) -> Net {
        Net {
            config,
            faults,
            urls,
            world: Mutex::new(world),
            turn: Mutex::new(()),
        }
    }

    /// Locks the world for one call. Never held across an await.
    pub(crate) fn world(&self) -> MutexGuard<'_, World> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One server of the network.
pub(crate) struct Server {
    pub net: Arc<Net>,
    pub place: Place,
}

/// Answers a request to any server but control: first the faults, then the server itself.
pub(crate) async fn answer(server: Arc<Server>, request: Request<Body>) -> Answer {
    let Server { net, place } = &*server;
    let path = request.uri().path().to_owned();
    let (route, did) = match place {
        Place::Plc => plc::route(&path),
        _ => {
            let method = path.rsplit(['/', '.']).next().unwrap_or_default();
            let query = Query::of(&request);
            let did = query.get("did").or_else(|| query.get("repo"));
            (method, did.and_then(|did| Did::parse(did).ok()))
        }
    };
    if let Some(refused) = gate(&net.faults, *place, route, did.as_ref()).await {
        return refused;
    }
    let given = match place {
        Place::Plc => plc::answer(net, &request),
        Place::Pds(index) => pds::answer(net, *index, request),
        Place::Relay => relay::answer(net, request),
        Place::Jetstream => jetstream::answer(net, request),
    };
    drip(&net.faults, *place, route, did.as_ref(), given).await
}

/// Opens a subscription to the feed of a PDS or the relay.
pub(crate) fn subscribe_repos(
    net: &Net,
    place: Place,
    feed: Arc<Feed>,
    manners: Manners,
    request: Request<Body>,
) -> Answer {
    let query = Query::of(&request);
    let cursor = match query.get("cursor").map(str::parse::<i64>) {
        None => None,
        // Negative cursors have no meaning and count as the oldest.
        Some(Ok(cursor)) => Some(cursor.max(0) as u64),
        Some(Err(_)) => {
            let message = "Error: Params/cursor must be an integer";
            return Refusal::invalid(message).answer();
        }
    };
    let buffer_events = net.config.buffer_events;
    let faults = net.faults.clone();
    let subscription = Subscription::new(feed, faults, place, manners, cursor, buffer_events);
    match socket::accept(request) {
        Ok(handshake) => handshake.run(|socket| subscribe::serve(subscription, socket)),
        Err(refusal) => *refusal,
    }
}
