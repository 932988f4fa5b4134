//! A fake mirror that gives the answers that a test wants, served by the real HTTP interface on
//! a real socket.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use gapless::config::Token;
use gapless::web::{App, Running, WebSettings, serve};
use gapless_atp::syntax::Did;
use gapless_mirror::api::*;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

pub(crate) const COMPLETE: &str = "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa";
pub(crate) const BROKEN: &str = "did:plc:bbbbbbbbbbbbbbbbbbbbbbbb";
pub(crate) const UNKNOWN: &str = "did:plc:cccccccccccccccccccccccc";
pub(crate) const WEB: &str = "did:web:localhost%3A8080";
/// An upstream of the configuration.
pub(crate) const CONFIGURED: &str = "https://configured.example";
pub(crate) const TOKEN: &str = "a-long-secret";

/// Repositories of the pages.
pub(crate) const REPOS: u64 = 2500;

#[derive(Default)]
pub(crate) struct Fake {
    /// Every call that changes something, in words.
    pub orders: Mutex<Vec<String>>,
    pub status: Mutex<Status>,
    pub failing: AtomicBool,
    pub no_gaps: AtomicBool,
    /// Hosts whose repositories may not all be known.
    pub host_gaps: Mutex<Vec<HostGap>>,
    /// Blocks in the verification of everything until the test lets go.
    pub endless: AtomicBool,
    pub stopped: AtomicBool,
    pub unready: AtomicBool,
    pub panicking: AtomicBool,
    /// Numbers of dead letters.
    pub dead: Mutex<Vec<u64>>,
    pub consumers: Mutex<Vec<ConsumerAnswer>>,
    /// Repositories of the report that cannot be recomputed.
    pub not_recomputable: AtomicU64,
}

/// Of a mirror that follows a relay alone.
pub(crate) fn reach() -> Reach {
    let reach = Reach {
        repos: REPOS,
        relays: vec!["https://relay.example.com".to_owned()],
        scope: "upstreams".to_owned(),
        ..Reach::default()
    };
    reach.in_words()
}

impl Fake {
    fn order(&self, order: String) {
        self.orders.lock().expect("no panic").push(order);
    }

    pub(crate) fn orders(&self) -> Vec<String> {
        self.orders.lock().expect("no panic").clone()
    }

    fn repository(&self, did: &str) -> RepoAnswer {
        let complete = did != BROKEN;
        RepoAnswer {
            did: did.to_owned(),
            host: Some("pds.example.com".to_owned()),
            account: "active".to_owned(),
            rev: Some("3jzfcijpj2z2a".to_owned()),
            complete,
            reasons: if complete {
                vec![]
            } else {
                vec!["host_behind".to_owned()]
            },
            records: Some(7),
            ..RepoAnswer::default()
        }
    }
}

fn page(after: Option<u64>, limit: usize) -> (std::ops::Range<u64>, Option<u64>) {
    let first = after.map_or(0, |after| after + 1).min(REPOS);
    let end = (first + limit as u64).min(REPOS);
    (first..end, (end < REPOS).then_some(end.saturating_sub(1)))
}

impl Inspect for Fake {
    fn status(&self) -> Result<Status, ApiError> {
        if self.failing.load(Ordering::Relaxed) {
            return Err(ApiError::Unavailable("the store has failed".to_owned()));
        }
        assert!(!self.panicking.load(Ordering::Relaxed), "a bug of ours");
        Ok(self.status.lock().expect("no panic").clone())
    }

    fn repo(&self, did: &Did) -> Result<Option<RepoAnswer>, ApiError> {
        let known = [COMPLETE, BROKEN, WEB].contains(&did.as_str());
        Ok(known.then(|| self.repository(did.as_str())))
    }

    fn repos(&self, after: Option<u64>, limit: usize) -> Result<ReposPage, ApiError> {
        let (numbers, cursor) = page(after, limit);
        let repos = numbers.map(|number| self.repository(&format!("did:plc:{number}")));
        Ok(ReposPage {
            repos: repos.collect(),
            cursor,
        })
    }

    fn gaps(&self, after: Option<u64>, limit: usize) -> Result<GapsPage, ApiError> {
        let hosts = self.host_gaps.lock().expect("no panic").clone();
        let hosts = hosts.into_iter().filter(|_| after.is_none());
        let hosts: Vec<HostGap> = hosts.collect();
        let hosts_total = hosts.len() as u64;
        if self.no_gaps.load(Ordering::Relaxed) {
            return Ok(GapsPage {
                hidden: 2,
                hosts,
                hosts_total,
                reach: Some(reach()),
                ..GapsPage::default()
            });
        }
        let (numbers, cursor) = page(after, limit);
        let gap = |number| Gap {
            did: format!("did:plc:{number}"),
            reasons: vec!["no_snapshot".to_owned()],
            since: None,
            doing: "First this. Then that. At last this.".to_owned(),
            can_do: "Wait. Or do not.".to_owned(),
            last_error: None,
        };
        Ok(GapsPage {
            gaps: numbers.map(gap).collect(),
            hidden: u64::from(cursor.is_none()) * 3,
            cursor,
            hosts,
            hosts_total,
            reach: after.is_none().then(reach),
        })
    }

    fn hosts(
        &self,
        after: Option<u64>,
        limit: usize,
        failing: bool,
    ) -> Result<HostsPage, ApiError> {
        // Three of them, the last of which does not answer.
        let host = |number: u64| HostAnswer {
            number,
            host: format!("https://pds{number}.example.com"),
            known_by: "listed".to_owned(),
            state: if number == 3 { "failing" } else { "swept" }.to_owned(),
            failures: if number == 3 { 7 } else { 0 },
            error: (number == 3).then(|| "nobody is there\u{1b}[2J".to_owned()),
            never_reached_since: (number == 3).then(|| "2026-01-01T00:00:00Z".to_owned()),
            named_by: Some("the relay https://relay.example.com".to_owned()),
            ..HostAnswer::default()
        };
        let shown = (1..=3).filter(|number| !failing || *number == 3);
        let shown: Vec<u64> = shown
            .filter(|number| *number > after.unwrap_or(0))
            .collect();
        let page = shown.iter().take(limit);
        Ok(HostsPage {
            hosts: page.map(|number| host(*number)).collect(),
            total: 3,
            swept: 2,
            failing: 1,
            refused: 4,
            refused_by: vec![NamerAnswer {
                named_by: "the relay https://relay.example.com".to_owned(),
                hosts: 30_000,
                limit: Some(30_000),
                refused: 4,
            }],
            cursor: shown.get(limit).and_then(|_| shown.get(limit - 1).copied()),
        })
    }

    fn upstreams(&self) -> Result<Vec<UpstreamAnswer>, ApiError> {
        Ok(self.status()?.upstreams)
    }

    fn tracked(&self, after: Option<&Did>, _: usize) -> Result<TrackedPage, ApiError> {
        Ok(match after {
            None => TrackedPage {
                found: Default::default(),
                tracked: vec![COMPLETE.to_owned()],
                cursor: Some(COMPLETE.to_owned()),
            },
            Some(_) => TrackedPage {
                found: Default::default(),
                tracked: vec![WEB.to_owned()],
                cursor: None,
            },
        })
    }

    fn verify(&self, did: &Did) -> Result<VerifyAnswer, ApiError> {
        Ok(VerifyAnswer {
            did: did.to_string(),
            verified: did.as_str() != BROKEN,
            expected: Some("bafyexpected".to_owned()),
            computed: Some("bafycomputed".to_owned()),
            records: 7,
            ..VerifyAnswer::default()
        })
    }

    fn verify_all(
        &self,
        progress: &dyn Fn(VerifyProgress) -> bool,
    ) -> Result<VerifyReport, ApiError> {
        if self.failing.load(Ordering::Relaxed) {
            return Err(ApiError::Internal("the disk does not read".to_owned()));
        }
        let mut done = 0;
        loop {
            done += 1;
            let go_on = progress(VerifyProgress {
                done,
                of: 3,
                mismatches: 0,
            });
            if !go_on {
                self.stopped.store(true, Ordering::SeqCst);
                return Ok(VerifyReport {
                    stopped: true,
                    ..VerifyReport::default()
                });
            }
            if done >= 3 && !self.endless.load(Ordering::Relaxed) {
                break;
            }
            std::thread::yield_now();
        }
        let mut report = VerifyReport {
            repos: 3,
            proven: 3,
            not_recomputable: self.not_recomputable.load(Ordering::Relaxed),
            ..VerifyReport::default()
        };
        if self.no_gaps.load(Ordering::Relaxed) {
            return Ok(report);
        }
        report.proven = 2;
        report.mismatches = 1;
        report.found = vec![VerifyAnswer {
            did: BROKEN.to_owned(),
            ..VerifyAnswer::default()
        }];
        Ok(report)
    }

    fn dead(&self, after: Option<u64>, limit: usize) -> Result<DeadPage, ApiError> {
        let letters = self.dead.lock().expect("no panic");
        let open = letters.iter().copied();
        let open = open.filter(|number| after.is_none_or(|after| *number > after));
        let mut numbers: Vec<u64> = open.collect();
        let more = numbers.len() > limit;
        numbers.truncate(limit);
        let cursor = numbers.last().copied().filter(|_| more);
        let letter = |number| DeadAnswer {
            number,
            class: "invalid".to_owned(),
            error: "no such thing".to_owned(),
            ..DeadAnswer::default()
        };
        Ok(DeadPage {
            dead: numbers.into_iter().map(letter).collect(),
            cursor,
        })
    }

    fn purges(&self, after: Option<u64>, limit: usize) -> Result<PurgesPage, ApiError> {
        let purge = |number| PurgeAnswer {
            number,
            did: WEB.to_owned(),
            state: "finished".to_owned(),
            ..PurgeAnswer::default()
        };
        let from = after.unwrap_or(0) + 1;
        let purges: Vec<PurgeAnswer> = (from..4).take(limit).map(purge).collect();
        let last = purges.last().map(|last| last.number);
        Ok(PurgesPage {
            cursor: last.filter(|last| *last < 3),
            purges,
        })
    }

    fn consumers(&self) -> Result<ConsumersAnswer, ApiError> {
        let consumers = self.consumers.lock().expect("no panic").clone();
        Ok(ConsumersAnswer {
            head: 100,
            first: 1,
            consumers,
            audit: vec![AuditAnswer {
                at: Some("2026-01-02T03:04:05.000006Z".to_owned()),
                by: "operator".to_owned(),
                consumer: "old\u{1b}[2J".to_owned(),
                what: "removed at 7".to_owned(),
            }],
        })
    }

    fn metrics(&self) -> Result<String, ApiError> {
        Ok("# TYPE gapless_repos gauge\ngapless_repos 1\n# EOF\n".to_owned())
    }

    fn ready(&self) -> Readiness {
        if self.unready.load(Ordering::Relaxed) {
            Readiness {
                ready: false,
                reasons: vec!["an upstream is silent".to_owned()],
            }
        } else {
            Readiness {
                ready: true,
                reasons: Vec::new(),
            }
        }
    }
}

impl Operate for Fake {
    fn add_upstream(&self, new: NewUpstream) -> Result<UpstreamAnswer, ApiError> {
        if new.url == "http://twice.example" {
            return Err(ApiError::Conflict("it is already followed".to_owned()));
        }
        self.order(format!(
            "add {} {} {:?}",
            new.kind.name(),
            new.url,
            new.host
        ));
        Ok(UpstreamAnswer {
            url: new.url,
            ..UpstreamAnswer::default()
        })
    }

    fn remove_upstream(&self, url: &str) -> Result<UpstreamRemoved, ApiError> {
        self.order(format!("remove {url}"));
        Ok(UpstreamRemoved::new(url, url == CONFIGURED))
    }

    fn confirm_loss(&self, url: &str) -> Result<(), ApiError> {
        self.order(format!("confirm {url}"));
        Ok(())
    }

    fn track(&self, dids: &[Did]) -> Result<TrackedChange, ApiError> {
        self.order(format!("track {dids:?}"));
        Ok(TrackedChange {
            changed: dids.len() as u64,
            unchanged: 0,
        })
    }

    fn untrack(&self, dids: &[Did]) -> Result<TrackedChange, ApiError> {
        self.order(format!("untrack {dids:?}"));
        Ok(TrackedChange {
            changed: 0,
            unchanged: dids.len() as u64,
        })
    }

    fn resync(&self, did: &Did, accept_rollback: bool) -> Result<RepoAnswer, ApiError> {
        self.order(format!("resync {did} {accept_rollback}"));
        Ok(self.repository(did.as_str()))
    }

    fn remove_consumer(&self, which: &ConsumerSelector) -> Result<ConsumerRemoved, ApiError> {
        let mut consumers = self.consumers.lock().expect("no panic");
        let removed = which.select(&consumers)?.clone();
        consumers.retain(|one| *one != removed);
        Ok(ConsumerRemoved {
            let_go: removed.holds_alone.clone(),
            removed,
        })
    }

    fn resolve_dead(&self, number: Option<u64>) -> Result<DeadResolved, ApiError> {
        let mut letters = self.dead.lock().expect("no panic");
        let before = letters.len();
        letters.retain(|one| number.is_some_and(|number| number != *one));
        match before - letters.len() {
            0 if number.is_some() => Err(ApiError::NotFound("no such letter".to_owned())),
            resolved => Ok(DeadResolved {
                resolved: resolved as u64,
            }),
        }
    }
}

/// A served mirror; it stops when dropped.
pub(crate) struct Served {
    pub fake: Arc<Fake>,
    pub address: SocketAddr,
    pub stop: Option<oneshot::Sender<()>>,
    pub done: Option<std::thread::JoinHandle<()>>,
}

impl Served {
    /// On a thread of its own, so that tests may block.
    pub(crate) fn start(token: bool, loopback: bool) -> Served {
        let fake = Arc::new(Fake::default());
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("for tokio");
        let address = listener.local_addr().expect("bound");
        let (stop, stopped) = oneshot::channel::<()>();
        let app = App::new(WebSettings {
            token: token.then(|| Token::parse(TOKEN).expect("a token")),
            loopback,
            open: true,
        });
        app.set_running(Running {
            inspector: fake.clone(),
            control: fake.clone(),
            serving: None,
            importer: None,
        });
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Runtime::new().expect("a runtime");
            runtime.block_on(async move {
                let listener = TcpListener::from_std(listener).expect("a listener");
                let shutdown = async {
                    let _ = stopped.await;
                };
                serve(listener, app, shutdown).await.expect("served");
            });
        });
        Served {
            fake,
            address,
            stop: Some(stop),
            done: Some(thread),
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // The thread ends with the process at the latest; a test that failed does
        // not wait for it.
        drop(self.stop.take());
    }
}
