//! A load that is prepared in advance: many signed commits over many repositories.
//!
//! A tree does not depend on its owner, so all repositories go through the same states.
//! The blocks of each state exist once, and a commit costs only 96 bytes and one
//! signature. Frames are assembled from these parts when they are sent, by copying alone.
//!
//! Commits go round the repositories, in another order each time. The numbers of the
//! stream are 1, 2, 3 … without a gap.

mod serve;

pub use serve::LoadServer;

use bytes::Bytes;
use data_encoding::BASE32_NOPAD;
use gapless_atp::car::{write_block, write_header};
use gapless_atp::cid::{CODEC_DAG_CBOR, Cid, base32_encode};
use gapless_atp::crypto::{Curve, PublicKey, SIGNATURE_BYTES, SigningKey};
use gapless_atp::frame::{Action, CommitEvent, RawOp, encode_commit};
use gapless_atp::mst::{self, TreeError, Visit};
use gapless_atp::repo::Commit;
use gapless_atp::syntax::{Did, Rev, Tid};
use sha2::{Digest, Sha256};

use crate::rng::Rng;
use crate::world::{BlockStore, Clock, Drawer, Repo, WRITES_PER_COMMIT, Write, timestamp};

/// The number of keys that all repositories share. A key for each would make preparing
/// slow.
const KEYS: usize = 64;
const MOST_REPOS: u32 = 50_000_000;
const MOST_COMMITS: u64 = 50_000_000;
/// The stride of a round is near this fraction of the number of repositories.
const GOLDEN: f64 = 0.618_033_988_75;

/// The size of a load.
#[derive(Debug, Clone)]
pub struct LoadConfig {
    pub repos: u32,
    /// Records of every repository before the load.
    pub records: usize,
    /// The number of commits, with one operation each.
    pub commits: u64,
    pub seed: u64,
    /// The port of the directory; the host has the next one. 0 takes free ports.
    pub port: u16,
}

impl Default for LoadConfig {
    fn default() -> LoadConfig {
        LoadConfig {
            repos: 1000,
            records: 1000,
            commits: 10_000,
            seed: 1,
            port: 0,
        }
    }
}

/// Why a load cannot be prepared or served.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("a load needs 1 to {MOST_REPOS} repositories, not {0}")]
    Repos(u32),
    #[error("a load needs 1 to {MOST_COMMITS} commits, not {0}")]
    Commits(u64),
    #[error("two ports from {0} on end above 65535")]
    Ports(u16),
    #[error("cannot listen on port {port} of loopback: {error}")]
    Bind { port: u16, error: std::io::Error },
}

/// The state of every repository after its n-th commit, and the step that led to it.
struct State {
    data: Cid,
    /// `None` for the state before the load.
    step: Option<Step>,
}

struct Step {
    path: String,
    cid: Cid,
    prev_data: Cid,
    /// All blocks of the event's CAR except the commit, already encoded.
    tail: Bytes,
}

/// The parts of a commit that no other commit shares.
#[derive(Clone, Copy)]
struct Signed {
    signature: [u8; SIGNATURE_BYTES],
    digest: [u8; 32],
}

/// A load that is ready to be sent.
pub struct Load {
    config: LoadConfig,
    keys: Vec<SigningKey>,
    /// The states before the load, after the first commit, after the second, and so on.
    states: Vec<State>,
    signed: Vec<Signed>,
    store: BlockStore,
    base_micros: u64,
    stride: u64,
    inverse: u64,
}

impl Load {
    /// Builds all states and signs all commits, on all cores.
    pub fn prepare(config: LoadConfig) -> Result<Load, LoadError> {
        let mut load = Load::unsigned(config)?;
        load.signed = load.sign_all();
        Ok(load)
    }

    /// Builds a load without its commits, for a caller that only needs the state before
    /// the load. Such a load cannot be sent.
    pub fn unsigned(config: LoadConfig) -> Result<Load, LoadError> {
        if !(1..=MOST_REPOS).contains(&config.repos) {
            return Err(LoadError::Repos(config.repos));
        }
        if !(1..=MOST_COMMITS).contains(&config.commits) {
            return Err(LoadError::Commits(config.commits));
        }
        let mut rng = Rng::new(config.seed);
        let keys: Vec<SigningKey> = (0..KEYS).map(|_| rng.key(Curve::K256)).collect();
        let mut clock = Clock::logical();
        let mut store = BlockStore::default();
        let rounds = config.commits.div_ceil(u64::from(config.repos));
        let states = build_states(&config, rounds, &keys[0], &mut rng, &mut clock, &mut store);
        let (stride, inverse) = stride(u64::from(config.repos));
        Ok(Load {
            keys,
            states,
            signed: Vec::new(),
            store,
            base_micros: clock.tick(),
            stride,
            inverse,
            config,
        })
    }

    /// The state of a repository before the load: rev, root, signed commit block.
    pub fn beginning(&self, repo: u32) -> (Rev, Cid, Vec<u8>) {
        let (rev, block) = self.commit(repo, 0);
        (rev, self.states[0].data, block)
    }

    /// Every record of the state before the load, with its bytes.
    pub fn first_records(&self) -> Vec<(Vec<u8>, Cid, Bytes)> {
        let mut records = Vec::new();
        let walked = mst::walk::<TreeError>(self.states[0].data, &self.store, |met| {
            if let Visit::Key { key, value, .. } = met
                && let Some(bytes) = self.store.get(&value)
            {
                records.push((key.to_vec(), value, bytes.clone()));
            }
            Ok(())
        });
        match walked {
            Ok(_) => records,
            Err(error) => panic!("the shared tree is broken: {error}"),
        }
    }

    pub fn public_key(&self, repo: u32) -> &PublicKey {
        self.key(repo).public()
    }

    pub fn commits(&self) -> u64 {
        self.config.commits
    }

    pub fn repos(&self) -> u32 {
        self.config.repos
    }

    fn sign_all(&self) -> Vec<Signed> {
        let total = self.config.commits as usize;
        let blank = Signed {
            signature: [0; SIGNATURE_BYTES],
            digest: [0; 32],
        };
        let mut signed = vec![blank; total];
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        let share = total.div_ceil(cores);
        std::thread::scope(|scope| {
            for (part, places) in signed.chunks_mut(share).enumerate() {
                scope.spawn(move || {
                    for (offset, place) in places.iter_mut().enumerate() {
                        *place = self.sign((part * share + offset) as u64);
                    }
                });
            }
        });
        signed
    }

    fn sign(&self, index: u64) -> Signed {
        let (repo, nth) = self.place(index);
        let (did, rev) = (self.did(repo), self.rev(index));
        let data = &self.states[nth as usize].data;
        let key = self.key(repo);
        let signature = key.sign(&Commit::unsigned(did.as_str(), rev, data, None));
        let block = Commit::encode(did.as_str(), rev, &signature, data, None);
        let mut digest = [0; 32];
        digest.copy_from_slice(Cid::dag_cbor(&block).digest());
        Signed { signature, digest }
    }

    // --- who and when --------------------------------------------------------

    fn key(&self, repo: u32) -> &SigningKey {
        &self.keys[repo as usize % KEYS]
    }

    /// The account of a repository. The repository's number is part of the name, so that
    /// no table is needed to find it.
    pub fn did(&self, repo: u32) -> Did {
        let noise = Sha256::new()
            .chain_update(self.config.seed.to_be_bytes())
            .chain_update(repo.to_be_bytes())
            .finalize();
        let mut name = [0; 15];
        name[..7].copy_from_slice(&noise[..7]);
        name[7..11].copy_from_slice(&repo.to_be_bytes());
        name[11..].copy_from_slice(&noise[7..11]);
        match Did::parse(&format!("did:plc:{}", base32_encode(&name))) {
            Ok(did) => did,
            Err(error) => panic!("fifteen bytes do not make a did:plc: {error}"),
        }
    }

    /// The repository of an account; `None` if the account is not part of the load.
    pub fn repo_of(&self, did: &Did) -> Option<u32> {
        let name = did.as_str().strip_prefix("did:plc:")?.to_uppercase();
        let name = BASE32_NOPAD.decode(name.as_bytes()).ok()?;
        let number: [u8; 4] = name.get(7..11)?.try_into().ok()?;
        let repo = u32::from_be_bytes(number);
        (repo < self.config.repos && self.did(repo) == *did).then_some(repo)
    }

    /// The repository of the `index`-th commit, and the number of that commit within the
    /// repository, from 1.
    pub fn place(&self, index: u64) -> (u32, u64) {
        let repos = u64::from(self.config.repos);
        let (round, turn) = (index / repos, index % repos);
        let repo = (self.stride * turn + self.shift(round)) % repos;
        (repo as u32, round + 1)
    }

    /// The index in the stream of a repository's `nth` commit (from 1).
    fn index(&self, repo: u32, nth: u64) -> u64 {
        let repos = u64::from(self.config.repos);
        let round = nth - 1;
        let shifted = u64::from(repo) + repos - self.shift(round);
        round * repos + (self.inverse * (shifted % repos)) % repos
    }

    /// The offset of a round: every round begins with another repository.
    fn shift(&self, round: u64) -> u64 {
        Rng::new(self.config.seed ^ round).next_u64() % u64::from(self.config.repos)
    }

    fn rev(&self, index: u64) -> Rev {
        Tid::from_micros(self.base_micros + 1 + index, 0)
    }

    /// The number of commits that a repository has made when `sent` commits of the load
    /// have been sent.
    fn nth_at(&self, repo: u32, sent: u64) -> u64 {
        let whole = sent / u64::from(self.config.repos);
        let next = whole + 1;
        let last = self.index(repo, next);
        if last < sent { next } else { whole }
    }

    // --- blocks --------------------------------------------------------------

    /// The rev and the commit block of a repository after its `nth` commit; 0 means
    /// before the load.
    fn commit(&self, repo: u32, nth: u64) -> (Rev, Vec<u8>) {
        let data = &self.states[nth as usize].data;
        let did = self.did(repo);
        if nth == 0 {
            let rev = Tid::from_micros(self.base_micros, 0);
            return (rev, crate::world::sign(&did, self.key(repo), rev, data));
        }
        let index = self.index(repo, nth);
        let signature = &self.signed[index as usize].signature;
        let rev = self.rev(index);
        (
            rev,
            Commit::encode(did.as_str(), rev, signature, data, None),
        )
    }

    /// The rev of a repository's `nth` commit; 0 means before the load.
    fn rev_at(&self, repo: u32, nth: u64) -> Rev {
        match nth {
            0 => Tid::from_micros(self.base_micros, 0),
            _ => self.rev(self.index(repo, nth)),
        }
    }

    /// The frame of the `index`-th commit. Panics on an unsigned load.
    pub fn frame(&self, index: u64) -> Vec<u8> {
        let (repo, nth) = self.place(index);
        let state = &self.states[nth as usize];
        let Some(step) = &state.step else {
            return Vec::new();
        };
        let did = self.did(repo);
        let signed = &self.signed[index as usize];
        let (rev, digest) = (self.rev(index), signed.digest);
        let commit = Cid::from_digest(CODEC_DAG_CBOR, digest);
        let block = Commit::encode(did.as_str(), rev, &signed.signature, &state.data, None);
        let mut car = Vec::with_capacity(step.tail.len() + block.len() + 128);
        write_header(&mut car, &[commit]);
        write_block(&mut car, &commit, &block);
        car.extend_from_slice(&step.tail);
        let since = match nth {
            1 => Tid::from_micros(self.base_micros, 0),
            _ => self.rev(self.index(repo, nth - 1)),
        };
        encode_commit(&CommitEvent {
            seq: index + 1,
            repo: did.as_str(),
            time: &timestamp(rev.micros()),
            rev: &rev.to_string(),
            since: Some(&since.to_string()),
            commit: Some(commit),
            blocks: &car,
            ops: vec![RawOp {
                action: Action::Create,
                path: &step.path,
                cid: Some(step.cid),
                prev: None,
            }],
            prev_data: Some(step.prev_data),
            too_big: false,
        })
    }
}

/// Builds the states that all repositories go through.
fn build_states(
    config: &LoadConfig,
    rounds: u64,
    key: &SigningKey,
    rng: &mut Rng,
    clock: &mut Clock,
    store: &mut BlockStore,
) -> Vec<State> {
    let did = match Did::parse("did:plc:aaaaaaaaaaaaaaaaaaaaaaaa") {
        Ok(did) => did,
        Err(error) => panic!("the name of the shared tree is not a DID: {error}"),
    };
    let mut drawer = Drawer {
        rng,
        clock,
        others: &[],
    };
    let rev = drawer.clock.rev();
    let (mut repo, _) = Repo::create(&did, key, rev, store);
    let first = drawer.first_records(config.records);
    let commit = |repo: &mut Repo, writes: &[Write], rev, store: &mut BlockStore| match repo
        .commit(&did, key, rev, writes, store)
    {
        Ok(made) => made,
        Err(error) => panic!("the shared tree refused a create: {error}"),
    };
    for batch in first.chunks(WRITES_PER_COMMIT) {
        let rev = drawer.clock.rev();
        commit(&mut repo, batch, rev, store);
    }
    let mut states = vec![State {
        data: repo.data,
        step: None,
    }];
    for _ in 0..rounds {
        let write = drawer.create();
        let prev_data = repo.data;
        let rev = drawer.clock.rev();
        let made = commit(&mut repo, std::slice::from_ref(&write), rev, store);
        let mut tail = Vec::new();
        for cid in made.blocks.iter().skip(1) {
            if let Some(block) = store.get(cid) {
                write_block(&mut tail, cid, block);
            }
        }
        let cid = made.changes.first().and_then(|change| change.cid);
        states.push(State {
            data: made.data,
            step: cid.map(|cid| Step {
                path: write.path().to_owned(),
                cid,
                prev_data,
                tail: Bytes::from(tail),
            }),
        });
    }
    states
}

/// A stride with which a round meets each repository once, and its inverse.
fn stride(repos: u64) -> (u64, u64) {
    let near = ((repos as f64 * GOLDEN) as u64).max(1);
    let inverses = (near..).map(|stride| (stride, inverse(stride, repos)));
    let found = inverses
        .filter_map(|(stride, inverse)| Some((stride, inverse?)))
        .next();
    found.unwrap_or((1, 1))
}

/// The multiplicative inverse of `number` modulo `modulus`, if there is one.
fn inverse(number: u64, modulus: u64) -> Option<u64> {
    let (mut old_r, mut r) = (number as i128, modulus as i128);
    let (mut old_s, mut s) = (1i128, 0i128);
    while r != 0 {
        let quotient = old_r / r;
        (old_r, r) = (r, old_r - quotient * r);
        (old_s, s) = (s, old_s - quotient * s);
    }
    (old_r == 1).then(|| old_s.rem_euclid(modulus as i128) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gapless_atp::frame::{Event, decode};
    use gapless_atp::verify::{Held, Verdict, check_commit};

    fn load(repos: u32, commits: u64) -> Load {
        let config = LoadConfig {
            repos,
            records: 50,
            commits,
            ..LoadConfig::default()
        };
        Load::prepare(config).unwrap()
    }

    #[test]
    fn a_round_meets_every_repository_once() {
        for repos in [1, 2, 3, 10, 97, 1000] {
            let load = load(repos, u64::from(repos) * 2);
            for round in 0..2 {
                let from = round * u64::from(repos);
                let mut met: Vec<u32> = (from..from + u64::from(repos))
                    .map(|index| load.place(index).0)
                    .collect();
                met.sort_unstable();
                assert!(met.iter().copied().eq(0..repos), "{repos}");
            }
            for index in 0..u64::from(repos) * 2 {
                let (repo, nth) = load.place(index);
                assert_eq!(load.index(repo, nth), index);
                assert_eq!(load.nth_at(repo, index), nth - 1);
                assert_eq!(load.nth_at(repo, index + 1), nth);
                assert_eq!(load.repo_of(&load.did(repo)), Some(repo));
            }
        }
    }

    #[test]
    fn every_prepared_commit_follows_the_one_before() {
        let load = load(7, 40);
        for index in 0..40 {
            let (repo, nth) = load.place(index);
            let (rev, block) = load.commit(repo, nth - 1);
            let held = Held {
                rev,
                data: load.states[nth as usize - 1].data,
                commit: Cid::dag_cbor(&block),
            };
            let frame = load.frame(index);
            let Ok(Event::Commit(event)) = decode(&frame) else {
                panic!("no commit");
            };
            assert_eq!(event.seq, index + 1);
            assert_eq!(event.since, Some(rev.to_string().as_str()));
            let key = load.key(repo).public();
            let now = load.base_micros + 1_000_000;
            let verdict = check_commit(&event, key, Some(&held), now, None);
            assert!(matches!(verdict, Verdict::Applies(_)), "{verdict:?}");
        }
    }
}
