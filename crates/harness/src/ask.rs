//! The questions of a test to a [`World`]: to the truth, to the mirror, and to both at once.

use gapless_atp::syntax::Did;
use gapless_core::ledger::{Repo, Tick, UpstreamId};
use gapless_mirror::Mirror;
use gapless_mirror::api::{
    Gap, GapsPage, Inspect as _, PurgeAnswer, Readiness, RepoAnswer, Status, UpstreamAnswer,
};
use gapless_mirror::metrics::Metrics;
use gapless_store::table::log::{FIRST_SEQ, LogKind};
use gapless_testnet::Place;

use crate::{World, oracle};

impl World {
    /// The account with this number.
    pub fn did(&self, number: usize) -> Did {
        self.net.truth().dids()[number].clone()
    }

    /// The account with this number among the accounts of a host.
    pub fn account(&self, host: usize, number: usize) -> Did {
        let truth = self.net.truth();
        let there = truth.dids().into_iter();
        let mut there = there.filter(|did| truth.head(did).is_some_and(|head| head.host == host));
        there.nth(number).expect("it has so many")
    }

    /// A path that the repository has.
    pub fn some_path(&self, did: &Did) -> String {
        let records = self.net.truth().records(did).expect("it exists");
        let mut paths = records.into_keys();
        paths.next().expect("it has a record")
    }

    pub fn host_url(&self, host: usize) -> String {
        self.url(Place::Pds(host))
    }

    pub fn url(&self, place: Place) -> String {
        match place {
            Place::Pds(index) => self.net.urls().pds[index].clone(),
            Place::Relay => self.net.urls().relay.clone().expect("there is one"),
            Place::Jetstream => self.net.urls().jetstream.clone().expect("there is one"),
            other => panic!("no upstream follows {other}"),
        }
    }

    /// Calls the mirror on a thread that may block.
    pub async fn ask<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&Mirror) -> T + Send + 'static,
    ) -> T {
        let mirror = self.mirror().clone();
        let asked = tokio::task::spawn_blocking(move || ask(&mirror));
        asked.await.expect("no panic")
    }

    /// The mirror's answer about a repository, compared with the truth at the rev that the
    /// answer states; `None` if the mirror does not know the repository.
    pub async fn repo(&self, did: &Did) -> Option<RepoAnswer> {
        let asked = did.clone();
        let answer = self
            .ask(move |mirror| mirror.inspector().repo(&asked))
            .await;
        let answer = answer.expect("an answer");
        if let Some(answer) = &answer {
            self.check(answer);
        }
        answer
    }

    /// [`World::repo`] of a repository that the mirror knows.
    pub async fn answer(&self, did: &Did) -> RepoAnswer {
        self.repo(did).await.expect("it is known")
    }

    /// [`World::answer`] at a moment when the mirror must know that any state but the head is
    /// old. Fails if the mirror calls an older state complete.
    pub async fn never_stale(&self, did: &Did) -> RepoAnswer {
        let answer = self.answer(did).await;
        let head = self.net.truth().head(did).map(|head| head.rev.to_string());
        assert!(
            !answer.complete || answer.rev == head,
            "complete at {:?}, and the head is {head:?}: {answer:?}",
            answer.rev
        );
        answer
    }

    pub async fn reasons(&self, did: &Did) -> Vec<String> {
        self.answer(did).await.reasons
    }

    /// Checks that a repository is complete at the truth's head. The error describes the answer.
    pub async fn is_complete(&self, did: &Did) -> Result<(), String> {
        let Some(answer) = self.repo(did).await else {
            return Err("unknown".to_owned());
        };
        let head = self.net.truth().head(did).expect("it exists");
        if answer.complete && answer.rev == Some(head.rev.to_string()) {
            Ok(())
        } else {
            Err(format!("{answer:?}, the truth is at {}", head.rev))
        }
    }

    /// Fails unless a repository is complete at the truth's head now.
    pub async fn assert_complete(&self, did: &Did) {
        let complete = self.is_complete(did).await;
        assert_eq!(complete, Ok(()), "{did}");
    }

    pub async fn status(&self) -> Status {
        self.ask(|mirror| mirror.inspector().status().expect("an answer"))
            .await
    }

    pub async fn ready(&self) -> Readiness {
        self.ask(|mirror| mirror.inspector().ready()).await
    }

    /// The first hundred gaps.
    pub async fn gaps(&self) -> GapsPage {
        let page = self.ask(|mirror| mirror.inspector().gaps(None, 100)).await;
        page.expect("an answer")
    }

    pub async fn gap(&self, did: &Did) -> Option<Gap> {
        let gaps = self.gaps().await.gaps;
        gaps.into_iter().find(|gap| gap.did == did.as_str())
    }

    /// The first hundred purges.
    pub async fn purges(&self) -> Vec<PurgeAnswer> {
        let page = self
            .ask(|mirror| mirror.inspector().purges(None, 100))
            .await;
        page.expect("an answer").purges
    }

    pub async fn upstream(&self, place: Place) -> UpstreamAnswer {
        let url = self.url(place);
        let all = self.ask(|mirror| mirror.inspector().upstreams()).await;
        let mut all = all.expect("an answer").into_iter();
        all.find(|one| one.url == url).expect("it is followed")
    }

    /// The value of a metric, if the mirror has it.
    pub async fn measure(&self, name: &str) -> Option<f64> {
        let text = self.ask(|mirror| mirror.inspector().metrics()).await;
        let text = text.expect("an answer");
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|rest| rest.trim().parse().ok())
    }

    pub fn metrics(&self) -> &Metrics {
        &self.mirror().services().metrics
    }

    /// The time of the mirror's clock, in the format of the API.
    pub fn now(&self) -> String {
        let now = self.mirror().services().clock.time();
        gapless_mirror::api::timestamp(now).expect("a time")
    }

    /// The durable row of a repository.
    pub fn row(&self, did: &Did) -> Repo {
        let view = self.mirror().services().store.view();
        let found = view.repo_by_did(did).expect("it can be read");
        found.expect("it is known").1
    }

    /// The next number of the durable log, which does not change while nothing is applied.
    pub fn log_next(&self) -> u64 {
        self.mirror().services().store.durable_head().next_seq
    }

    /// The kinds of a repository's log entries, oldest first.
    pub fn log_of(&self, did: &Did) -> Vec<LogKind> {
        let view = self.mirror().services().store.view();
        let found = view.repo_by_did(did).expect("it can be read");
        let (id, _) = found.expect("it is known");
        let rows = view.log_from(FIRST_SEQ).expect("it can be read");
        let rows = rows.map(|row| row.expect("it can be read").1);
        let ours = rows.filter(|row| row.repo == Some(id));
        ours.map(|row| row.kind).collect()
    }

    pub fn upstream_id(&self, place: Place) -> UpstreamId {
        let url = self.url(place);
        let covers = self.mirror().services().upstreams.read();
        let mut ours = covers.iter().filter(|(_, source)| source.row.url == url);
        ours.next().expect("it is followed").0
    }

    /// The number of the last event that was read from an upstream, durable or not.
    pub fn read(&self, place: Place) -> Option<u64> {
        let id = self.upstream_id(place);
        let covers = self.mirror().services().upstreams.read();
        let stream = &covers.get(id).expect("it is followed").stream;
        stream.read().map(|cursor| cursor.seq)
    }

    /// The durable cursor of a host's stream; `None` if the host is not followed.
    pub fn cursor(&self, host: usize) -> Option<u64> {
        let services = self.mirror().services();
        let url = self.url(Place::Pds(host));
        let covers = services.upstreams.read();
        let (id, _) = covers.iter().find(|(_, source)| source.row.url == url)?;
        let cursor = services.store.view().cursor(id).expect("it can be read");
        cursor.map(|cursor| cursor.seq)
    }

    pub fn epoch(&self, place: Place) -> u64 {
        let id = self.upstream_id(place);
        let covers = self.mirror().services().upstreams.read();
        covers.get(id).expect("it is followed").row.epoch.0
    }

    /// The tick at which the last successful sweep of any host began.
    pub fn swept(&self) -> Option<Tick> {
        let hosts = self.mirror().services().hosts.all();
        let swept = hosts.into_iter().map(|(_, host)| host.swept);
        swept.flatten().map(|swept| swept.tick).max()
    }

    /// Compares an answer with the truth, and with what the store holds.
    fn check(&self, answer: &RepoAnswer) {
        let view = self.mirror().services().store.view();
        let scope = self.scope().widened(self.widened);
        let compared = oracle::compare(&self.net.truth(), &scope, answer, Some(&view));
        compared.expect("the store can be read").expect_true();
    }
}
