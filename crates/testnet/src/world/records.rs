//! Records like those of real accounts: posts, likes, follows, a profile.
//!
//! Records have about 300 bytes and keys that are TIDs (except `self` for the profile);
//! some refer to a blob. Records depend only on the generator and the clock.

use gapless_atp::cbor::from_json;
use gapless_atp::cid::Cid;
use gapless_atp::syntax::{Did, Tid};
use serde_json::{Value as Json, json};

use super::clock::{Clock, timestamp};
use super::repo::{Repo, Write};
use crate::rng::Rng;

pub(crate) const POST: &str = "app.bsky.feed.post";
pub(super) const LIKE: &str = "app.bsky.feed.like";
pub(super) const FOLLOW: &str = "app.bsky.graph.follow";
pub(super) const PROFILE: &str = "app.bsky.actor.profile";
pub(super) const PROFILE_PATH: &str = "app.bsky.actor.profile/self";

const WORDS: &[&str] = &[
    "morning",
    "river",
    "the",
    "a",
    "compiler",
    "garden",
    "slowly",
    "under",
    "rain",
    "green",
    "finally",
    "works",
    "lighthouse",
    "tea",
    "and",
    "with",
    "quiet",
    "index",
    "of",
    "birds",
    "letter",
    "north",
    "winter",
    "bread",
    "maps",
    "orchard",
    "signal",
    "paper",
    "tide",
    "ünïcödé",
];

/// Encodes the JSON form of a record; `None` if it violates the rules of the data model.
pub fn encode(json: &Json) -> Option<Vec<u8>> {
    from_json(json).ok()?.encode()
}

/// The sources of generated records.
pub(crate) struct Drawer<'a> {
    pub rng: &'a mut Rng,
    pub clock: &'a mut Clock,
    /// The accounts that likes and follows refer to.
    pub others: &'a [Did],
}

impl Drawer<'_> {
    fn words(&mut self, count: usize) -> String {
        let words: Vec<&str> = (0..count).map(|_| *self.rng.pick(WORDS)).collect();
        words.join(" ")
    }

    fn record_key(&mut self) -> Tid {
        let clock_id = self.rng.below(1024) as u16;
        Tid::from_micros(self.clock.tick(), clock_id)
    }

    fn other(&mut self) -> String {
        if self.others.is_empty() {
            "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa".to_owned()
        } else {
            self.rng.pick(self.others).to_string()
        }
    }

    fn some_cid(&mut self) -> Cid {
        Cid::dag_cbor(&self.rng.next_u64().to_be_bytes())
    }

    fn post(&mut self) -> Json {
        let count = 8 + self.rng.below(30);
        let mut record = json!({
            "$type": POST,
            "text": self.words(count),
            "langs": ["en"],
            "createdAt": timestamp(self.clock.now()),
        });
        if self.rng.chance(10) {
            let blob = Cid::raw(&self.rng.next_u64().to_be_bytes());
            record["embed"] = json!({
                "$type": "app.bsky.embed.images",
                "images": [{
                    "alt": self.words(4),
                    "image": {
                        "$type": "blob",
                        "ref": { "$link": blob.to_string() },
                        "mimeType": "image/jpeg",
                        "size": 1 + self.rng.below(900_000),
                    },
                }],
            });
        }
        record
    }

    fn like(&mut self) -> Json {
        let uri = format!("at://{}/{POST}/{}", self.other(), self.record_key());
        json!({
            "$type": LIKE,
            "subject": { "uri": uri, "cid": self.some_cid().to_string() },
            "createdAt": timestamp(self.clock.now()),
        })
    }

    fn follow(&mut self) -> Json {
        json!({
            "$type": FOLLOW,
            "subject": self.other(),
            "createdAt": timestamp(self.clock.now()),
        })
    }

    fn profile(&mut self) -> Json {
        json!({
            "$type": PROFILE,
            "displayName": self.words(2),
            "description": self.words(20),
            "createdAt": timestamp(self.clock.now()),
        })
    }

    fn record(&mut self, collection: &str) -> Vec<u8> {
        let json = match collection {
            LIKE => self.like(),
            FOLLOW => self.follow(),
            PROFILE => self.profile(),
            _ => self.post(),
        };
        match encode(&json) {
            Some(bytes) => bytes,
            None => panic!("the network's own record breaks the data model: {json}"),
        }
    }

    fn collection(&mut self) -> &'static str {
        match self.rng.below(10) {
            0..5 => LIKE,
            5..8 => POST,
            _ => FOLLOW,
        }
    }

    /// A new record at a new path.
    pub(crate) fn create(&mut self) -> Write {
        let collection = self.collection();
        let path = format!("{collection}/{}", self.record_key());
        let record = self.record(collection);
        Write::Create { path, record }
    }

    /// The first records of an account: a profile, then random ones.
    pub(crate) fn first_records(&mut self, count: usize) -> Vec<Write> {
        let mut writes = Vec::with_capacity(count);
        if count > 0 {
            let path = PROFILE_PATH.to_owned();
            let record = self.record(PROFILE);
            writes.push(Write::Create { path, record });
        }
        while writes.len() < count {
            writes.push(self.create());
        }
        writes
    }

    /// The next writes of an account: mostly creates, some updates and deletes, sometimes
    /// several at once.
    pub(crate) fn next_writes(&mut self, repo: &Repo) -> Vec<Write> {
        let count = if self.rng.chance(15) {
            2 + self.rng.below(4)
        } else {
            1
        };
        let mut writes: Vec<Write> = Vec::with_capacity(count);
        for _ in 0..count {
            let write = self.next_write(repo);
            if writes.iter().all(|other| other.path() != write.path()) {
                writes.push(write);
            }
        }
        writes
    }

    fn next_write(&mut self, repo: &Repo) -> Write {
        let kind = self.rng.below(100);
        if kind < 70 || repo.records.is_empty() {
            return self.create();
        }
        let nth = self.rng.below(repo.records.len());
        let Some((path, _)) = repo.records.iter().nth(nth) else {
            return self.create();
        };
        let path = path.clone();
        if kind < 85 {
            let collection = path.split('/').next().unwrap_or(POST).to_owned();
            let record = self.record(&collection);
            return Write::Update { path, record };
        }
        Write::Delete { path }
    }
}
