//! The script: what is broken, one thing after another, and what must be so before
//! the next one. Each act says what it broke, with the names of the faults that must
//! have fired; how it was repaired is for the mirror to tell.

use std::time::Duration;

use gapless_atp::crypto::Curve;
use gapless_atp::syntax::Did;
use gapless_testnet::{Fault, NewAccount, Place, Spec, Status, Write};

use crate::demo::DemoError;
use crate::demo::stage::Stage;
use crate::demo::traffic::{new_path, record};
use gapless_mirror::api::{Inspect as _, RepoAnswer, UpstreamAnswer};

/// Accounts of each host that nobody writes to but the script.
pub const CAST: usize = 6;
/// Repositories that a wiped host loses. Fewer than ten could be an accident.
const LOST: usize = 12;
/// So many of each host at least: its cast, and those that it can lose.
pub const LEAST_PER_HOST: usize = CAST + LOST;
/// Events that a host keeps for whoever comes back.
const WINDOW: usize = 50_000;
/// How often it is looked whether something has happened.
const LOOK_EVERY: Duration = Duration::from_millis(10);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    LostEvent,
    LostDelete,
    CutCar,
    StrangersCar,
    RefusedDials,
    WindowPassed,
    SequenceRestart,
    KeyRotation,
    DirectoryDown,
    Migration,
    WipedHost,
}

pub const ACTS: &[Act] = &[
    Act::LostEvent,
    Act::LostDelete,
    Act::CutCar,
    Act::StrangersCar,
    Act::RefusedDials,
    Act::WindowPassed,
    Act::SequenceRestart,
    Act::KeyRotation,
    Act::DirectoryDown,
    Act::Migration,
    Act::WipedHost,
];

/// What an act broke.
pub struct Breakage {
    /// For people, in a line.
    pub what: String,
    /// The repositories that must be complete at their owners' heads again.
    pub dids: Vec<Did>,
    /// The mirror was started anew meanwhile, and counts from zero.
    pub restarted: bool,
}

impl Breakage {
    fn new(what: impl Into<String>, dids: Vec<Did>) -> Breakage {
        Breakage {
            what: what.into(),
            dids,
            restarted: false,
        }
    }
}

/// What was done to end a fault that does not end by itself.
pub struct Mended {
    pub what: String,
}

impl Act {
    pub fn name(self) -> &'static str {
        match self {
            Act::LostEvent => "event lost, then silence",
            Act::LostDelete => "delete inside a gap",
            Act::CutCar => "repository cut short",
            Act::StrangersCar => "repository signed by a stranger",
            Act::RefusedDials => "stream refused",
            Act::WindowPassed => "cursor window passed while down",
            Act::SequenceRestart => "sequence restart",
            Act::KeyRotation => "key rotation",
            Act::DirectoryDown => "directory down",
            Act::Migration => "migration with missed events",
            Act::WipedHost => "wiped host",
        }
    }

    /// The faults that must have fired by the end of it.
    pub fn faults(self) -> &'static [&'static str] {
        match self {
            Act::LostEvent => &["drop"],
            Act::LostDelete => &["drop", "http-error"],
            Act::CutCar => &["drop", "car-cut"],
            Act::StrangersCar => &["drop", "car-other-key"],
            Act::RefusedDials => &["disconnect", "dial-error"],
            Act::WindowPassed => &["window"],
            Act::SequenceRestart => &["seq-restart"],
            Act::KeyRotation => &["rotate-key"],
            Act::DirectoryDown => &["plc-down", "rotate-key"],
            Act::Migration => &["drop", "migrate"],
            Act::WipedHost => &["lost-account"],
        }
    }

    /// Breaks something.
    pub async fn play(self, stage: &Stage) -> Result<Breakage, DemoError> {
        let play = Play { stage };
        match self {
            Act::LostEvent => {
                let did = play.cast(0, 0)?;
                play.lose(&did)?;
                let words = "a commit is lost on its way to us, and nothing follows it";
                Ok(Breakage::new(words, vec![did]))
            }
            Act::LostDelete => {
                let did = play.cast(1, 0)?;
                let (status, retry_after) = (503, None);
                let route = Some("getRepo".to_owned());
                let fails = Fault::HttpError {
                    status,
                    retry_after,
                    route,
                };
                play.set(Spec::new(fails).of(&did).times(2))?;
                play.set(drop_next(&did))?;
                let path = play.some_path(&did)?;
                play.write(&did, Write::Delete { path })?;
                play.post(&did)?;
                let words = "a delete is lost, a commit follows, and getRepo answers 503 twice";
                Ok(Breakage::new(words, vec![did]))
            }
            Act::CutCar => {
                let did = play.cast(2, 0)?;
                // A difference first, then the whole: both are cut.
                play.spoil(&did, Fault::CarCut {}, 2)?;
                let words = "a commit is lost, and getRepo ends half way, at a block boundary";
                Ok(Breakage::new(words, vec![did]))
            }
            Act::StrangersCar => {
                let did = play.cast(0, 1)?;
                play.spoil(&did, Fault::CarOtherKey {}, 2)?;
                let words = "a commit is lost, and getRepo is whole, but signed by another key";
                Ok(Breakage::new(words, vec![did]))
            }
            Act::RefusedDials => play.refuse_dials().await,
            Act::WindowPassed => play.pass_window().await,
            Act::SequenceRestart => {
                let before = play.upstream(1)?.epoch;
                let host = Place::Pds(1);
                play.set(Spec::new(Fault::SeqRestart { next: 1 }).on(host))?;
                play.until("its numbers are doubted", || {
                    Ok(play.upstream(1)?.epoch > before)
                })
                .await?;
                let words = "a host forgets its numbers and counts from 1 again";
                Ok(Breakage::new(words, stage.living_on(1)))
            }
            Act::KeyRotation => {
                let did = play.cast(2, 1)?;
                play.set(Spec::new(Fault::RotateKey { quiet: true }).of(&did))?;
                play.post(&did)?;
                let words = "an account has a new key, and no event says so; it writes";
                Ok(Breakage::new(words, vec![did]))
            }
            Act::DirectoryDown => {
                play.set(Spec::new(Fault::PlcDown {}))?;
                let did = play.cast(0, 2)?;
                play.set(Spec::new(Fault::RotateKey { quiet: true }).of(&did))?;
                play.post(&did)?;
                let newcomer = play.newcomer(1)?;
                play.until("the directory is asked", || {
                    let answered = stage.net.faults().fired("plc-down") > 0;
                    Ok(answered && play.in_doubt(&did)?)
                })
                .await?;
                let words = "the directory answers 503 while an account has a new key and another one is new";
                Ok(Breakage::new(words, vec![did, newcomer]))
            }
            Act::Migration => {
                let did = play.cast(0, 3)?;
                let lost = play.set(Spec::new(Fault::Drop { unnumbered: false }).of(&did))?;
                play.post(&did)?;
                let (to, import) = (Some(1), false);
                play.set(Spec::new(Fault::Migrate { to, import }).of(&did))?;
                play.post(&did)?;
                play.clear(lost);
                let words = "an account moves to another host; every event about it is lost";
                Ok(Breakage::new(words, vec![did]))
            }
            Act::WipedHost => play.wipe().await,
        }
    }

    /// Ends what does not end by itself, once the mirror has seen it.
    pub async fn mend(self, stage: &Stage, broken: &Breakage) -> Result<Option<Mended>, DemoError> {
        let play = Play { stage };
        match self {
            Act::DirectoryDown => {
                stage.net.clear_faults(Some("plc-down"));
                let what = "nothing was believed that could not be checked; the directory is back";
                Ok(Some(Mended { what: what.into() }))
            }
            Act::RefusedDials => {
                play.until("the stream is there again", || {
                    Ok(play.upstream(2)?.connected)
                })
                .await?;
                Ok(None)
            }
            Act::WindowPassed => {
                play.set(Spec::new(Fault::Window { events: WINDOW }).on(Place::Pds(0)))?;
                Ok(None)
            }
            Act::WipedHost => {
                let mut kept = 0;
                for did in &broken.dids {
                    let answer = play.repo(did)?;
                    let held = answer.filter(|answer| answer.account == "active");
                    let records = held.and_then(|answer| answer.records).unwrap_or(0);
                    if records == 0 {
                        return Err(DemoError::Wrong(format!("{did}: nothing of it is left")));
                    }
                    kept += records;
                    let restored = stage.net.set_status(did, Status::Active);
                    restored.map_err(|error| DemoError::Network(error.to_string()))?;
                }
                let many = broken.dids.len();
                let what = format!(
                    "hiding suspended, nothing purged: all {kept} records of the {many} are held; the host has them again"
                );
                Ok(Some(Mended { what }))
            }
            _ => Ok(None),
        }
    }
}

fn drop_next(did: &Did) -> Spec {
    let fault = Fault::Drop { unnumbered: false };
    Spec::new(fault).of(did).times(1)
}

/// What the acts do to the network, and what they wait for.
struct Play<'a> {
    stage: &'a Stage,
}

impl Play<'_> {
    /// An account of a host that only the script writes to.
    fn cast(&self, host: usize, number: usize) -> Result<Did, DemoError> {
        let dids = self.stage.net.truth().dids();
        let place = number * crate::demo::stage::HOSTS + host;
        let did = dids.get(place).cloned();
        did.ok_or_else(|| DemoError::Network("there are too few accounts".to_owned()))
    }

    fn set(&self, spec: Spec) -> Result<Option<u64>, DemoError> {
        let set = self.stage.net.fault(spec);
        set.map(|set| set.id)
            .map_err(|error| DemoError::Network(error.to_string()))
    }

    fn clear(&self, id: Option<u64>) {
        if let Some(id) = id {
            self.stage.net.clear_fault(id);
        }
    }

    fn write(&self, did: &Did, write: Write) -> Result<(), DemoError> {
        let written = self.stage.net.write(did, &[write]);
        written
            .map(drop)
            .map_err(|error| DemoError::Network(error.to_string()))
    }

    fn post(&self, did: &Did) -> Result<(), DemoError> {
        let path = new_path();
        let record = record(&path);
        self.write(did, Write::Create { path, record })
    }

    /// A commit that gets a number and is never sent.
    fn lose(&self, did: &Did) -> Result<(), DemoError> {
        self.set(drop_next(did))?;
        self.post(did)
    }

    /// Loses a commit, so that the next one does not chain, and damages the fetched
    /// repository this many times.
    fn spoil(&self, did: &Did, fault: Fault, times: u64) -> Result<(), DemoError> {
        self.set(Spec::new(fault).of(did).times(times))?;
        self.lose(did)?;
        self.post(did)
    }

    fn some_path(&self, did: &Did) -> Result<String, DemoError> {
        let records = self.stage.net.truth().records(did).unwrap_or_default();
        let path = records.into_keys().next();
        path.ok_or_else(|| DemoError::Network(format!("{did} has no record")))
    }

    fn newcomer(&self, host: usize) -> Result<Did, DemoError> {
        let new = NewAccount {
            host,
            curve: Curve::K256,
            web: false,
            records: 10,
        };
        let created = self.stage.net.create_account(new);
        created.map_err(|error| DemoError::Network(error.to_string()))
    }

    fn repo(&self, did: &Did) -> Result<Option<RepoAnswer>, DemoError> {
        let mirror = self.stage.running()?;
        let answer = mirror.inspector().repo(did);
        answer.map_err(|error| DemoError::Mirror(error.to_string()))
    }

    /// What the mirror says of a host's stream.
    fn upstream(&self, host: usize) -> Result<UpstreamAnswer, DemoError> {
        let all = self.stage.running()?.inspector().upstreams();
        let all = all.map_err(|error| DemoError::Mirror(error.to_string()))?;
        let url = &self.stage.net.urls().pds[host];
        let ours = all.into_iter().find(|one| one.url == *url);
        ours.ok_or_else(|| DemoError::Mirror(format!("it does not follow {url}")))
    }

    fn in_doubt(&self, did: &Did) -> Result<bool, DemoError> {
        Ok(self.repo(did)?.is_none_or(|answer| !answer.complete))
    }

    /// Waits until something has happened.
    async fn until(
        &self,
        what: &str,
        holds: impl Fn() -> Result<bool, DemoError>,
    ) -> Result<(), DemoError> {
        let began = std::time::Instant::now();
        while !holds()? {
            if began.elapsed() > crate::demo::REPAIR_TIMEOUT {
                return Err(DemoError::Wrong(format!("in vain waited until {what}")));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(())
    }

    async fn refuse_dials(&self) -> Result<Breakage, DemoError> {
        let host = Place::Pds(2);
        let refused = self.stage.net.faults().fired("dial-error");
        self.set(
            Spec::new(Fault::DialError { status: 503 })
                .on(host)
                .times(2),
        )?;
        self.set(Spec::new(Fault::Disconnect {}).on(host))?;
        let dids = [self.cast(2, 2)?, self.cast(2, 3)?];
        for did in &dids {
            self.post(did)?;
            self.post(did)?;
        }
        self.until("a connection is refused", || {
            Ok(self.stage.net.faults().fired("dial-error") > refused)
        })
        .await?;
        let words =
            "a host closes its stream and refuses the next connections with 503; commits go on";
        Ok(Breakage::new(words, dids.to_vec()))
    }

    async fn pass_window(&self) -> Result<Breakage, DemoError> {
        self.stage.take_down().await?;
        for number in 0..CAST {
            let did = self.cast(0, number)?;
            for _ in 0..3 {
                self.post(&did)?;
            }
        }
        self.set(Spec::new(Fault::Window { events: 1 }).on(Place::Pds(0)))?;
        self.stage.put_up().await?;
        let words = "the mirror is down, and its host keeps no event of that time";
        Ok(Breakage {
            restarted: true,
            ..Breakage::new(words, self.stage.living_on(0))
        })
    }

    async fn wipe(&self) -> Result<Breakage, DemoError> {
        let mut lost = self.stage.living_on(2);
        lost.truncate(LOST);
        let silent = self.set(Spec::new(Fault::LostAccount {}).on(Place::Pds(2)))?;
        for did in &lost {
            let gone = self.stage.net.set_status(did, Status::Deleted);
            gone.map_err(|error| DemoError::Network(error.to_string()))?;
        }
        self.clear(silent);
        let url = self.stage.net.urls().pds[2].clone();
        self.until("the mirror doubts the host", || {
            let status = self.stage.running()?.inspector().status();
            let status = status.map_err(|error| DemoError::Mirror(error.to_string()))?;
            let suspended = status.hiding_suspended.contains(&url);
            let mut in_doubt = lost.iter().map(|did| self.in_doubt(did));
            Ok(suspended && in_doubt.try_fold(true, |all, one| Ok::<_, DemoError>(all && one?))?)
        })
        .await?;
        let many = lost.len();
        let words = format!("a host has lost {many} repositories, and says nothing of it");
        Ok(Breakage::new(words, lost))
    }
}
