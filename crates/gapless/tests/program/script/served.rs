//! Compares the records that a server of repositories holds with the truth.
//!
//! A server that answers `getRepo` is compared record by record and byte by byte. A mirror that
//! does not serve repositories recomputes its root, which is the truth's root only if the
//! records are; its disk is compared byte by byte whenever it is down.

use gapless_atp::repo::{ImportError, RepoCar};
use gapless_atp::syntax::{Did, Rev};
use gapless_harness::http::{ask, begin};
use gapless_harness::oracle::{self, HeldRecords};
use gapless_mirror::api::{Verdict, VerifyAnswer};
use gapless_testnet::Truth;

/// What was compared.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Compared {
    pub(crate) records: u64,
    /// The answer began and did not end, so there is nothing to compare.
    pub(crate) cut: bool,
    /// Each difference in words; empty if the server holds exactly what was signed.
    pub(crate) different: Vec<String>,
}

/// The request by which a server is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    Car,
    Root,
}

impl By {
    /// `Car` if the server answers `getRepo`, otherwise `Root`; `None` if it does not answer.
    pub(crate) async fn best(port: u16, did: &Did) -> Option<By> {
        let (status, body) = ask(port, "GET", &get_repo(did)).await?;
        let known = status == 200 || !named(&body, "NotFound");
        Some(if known { By::Car } else { By::Root })
    }

    /// Compares one repository; `None` if the server holds nothing of it or does not answer.
    pub(crate) async fn compare(self, port: u16, truth: &Truth, did: &Did) -> Option<Compared> {
        match self {
            By::Car => {
                let (status, body) = begin(port, "GET", &get_repo(did)).await?;
                let cut = Compared {
                    cut: true,
                    ..Compared::default()
                };
                (status == 200).then(|| body.map_or(cut, |body| compare_car(truth, did, &body)))
            }
            By::Root => {
                let path = format!("/v1/repos/{}/verify", in_path(did));
                let (status, body) = ask(port, "POST", &path).await?;
                let answer = (status == 200).then_some(body)?;
                compare_root(truth, did, &answer)
            }
        }
    }
}

fn named(body: &[u8], error: &str) -> bool {
    let json: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    json["error"] == error
}

/// A did:web may carry a percent sign of its own.
fn in_path(did: &Did) -> String {
    did.as_str().replace('%', "%25")
}

fn get_repo(did: &Did) -> String {
    format!("/xrpc/com.atproto.sync.getRepo?did={}", in_path(did))
}

fn compare_car(truth: &Truth, did: &Did, car: &[u8]) -> Compared {
    let mut compared = Compared::default();
    let read = match RepoCar::read(car) {
        Ok(read) => read,
        Err(error) => {
            compared
                .different
                .push(format!("{did}: no repository: {error}"));
            return compared;
        }
    };
    let mut held = HeldRecords::new();
    let walked = read.records(|path, _, bytes| {
        let path = String::from_utf8_lossy(path).into_owned();
        held.insert(path, Some(bytes.to_vec()));
        Ok::<_, ImportError>(())
    });
    if let Err(error) = walked {
        compared
            .different
            .push(format!("{did}: not whole: {error}"));
        return compared;
    }
    let rev = read.commit.rev;
    let commits = truth.commits(did).unwrap_or_default();
    if !commits
        .iter()
        .any(|one| one.rev == rev && one.commit == read.commit_cid)
    {
        compared
            .different
            .push(format!("{did}: {rev} was never signed"));
    }
    let signed = truth.records_at(did, rev).unwrap_or_default();
    let signed: HeldRecords = signed
        .into_iter()
        .map(|(path, (_, bytes))| (path, Some(bytes.to_vec())))
        .collect();
    compared.records = held.len().max(signed.len()) as u64;
    oracle::differing(did, rev, &held, &signed, &mut compared.different);
    compared
}

fn compare_root(truth: &Truth, did: &Did, body: &[u8]) -> Option<Compared> {
    let answer: VerifyAnswer = serde_json::from_slice(body).expect("as the contract has it");
    if !matches!(answer.verdict, Verdict::Proven | Verdict::Mismatch) {
        return None;
    }
    let rev: Rev = answer.rev.as_deref()?.parse().expect("a rev");
    let mut compared = Compared::default();
    let commits = truth.commits(did).unwrap_or_default();
    let signed = commits.iter().find(|one| one.rev == rev);
    let root = signed.map(|signed| signed.data.to_string());
    if root.is_none() || answer.computed != root {
        compared
            .different
            .push(format!("{did} at {rev}: {answer:?}, signed was {root:?}"));
    }
    let records = truth.records_at(did, rev).unwrap_or_default().len() as u64;
    if records != answer.records {
        let words = format!("{did} at {rev}: {} records of {records}", answer.records);
        compared.different.push(words);
    }
    compared.records = records;
    Some(compared)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gapless_harness::http::from_chunks;
    use gapless_testnet::{Config, Fault, Spec, Testnet};

    #[test]
    fn an_answer_that_was_cut_is_none() {
        let whole = b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
        assert_eq!(from_chunks(whole).as_deref(), Some(&b"abcde"[..]));
        for end in 0..whole.len() - 4 {
            assert_eq!(from_chunks(&whole[..end]), None, "{end}");
        }
    }

    fn port_of(url: &str) -> u16 {
        let (_, port) = url.rsplit_once(':').expect("a port");
        port.parse().expect("a number")
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_server_is_compared_with_the_truth_record_by_record() {
        let config = Config {
            repos: 2,
            pds: 1,
            did_web: false,
            ..Config::default()
        };
        let (net, other) = (
            Testnet::start(config.clone()),
            Testnet::start(Config { seed: 2, ..config }),
        );
        let (net, other) = (
            net.await.expect("it starts"),
            other.await.expect("it starts"),
        );
        let (truth, port) = (net.truth(), port_of(&net.urls().pds[0]));
        let did = truth.dids().remove(0);
        assert_eq!(By::best(port, &did).await, Some(By::Car));
        let compared = By::Car
            .compare(port, &truth, &did)
            .await
            .expect("an answer");
        assert_eq!(compared.different, Vec::<String>::new());
        assert_eq!(
            compared.records,
            truth.records(&did).expect("it exists").len() as u64
        );
        // An older state is right at the rev that it states; a cut one is nothing.
        net.fault(Spec::new(Fault::CarOld { commits: 1 }).times(1))
            .expect("it is set");
        let compared = By::Car
            .compare(port, &truth, &did)
            .await
            .expect("an answer");
        assert_eq!(compared.different, Vec::<String>::new());
        for (fault, words) in [
            (Fault::CarCut {}, "not whole"),
            (Fault::CarMinusLeaf {}, "not whole"),
            (Fault::CarOtherKey {}, "was never signed"),
        ] {
            net.fault(Spec::new(fault).times(1)).expect("it is set");
            let compared = By::Car
                .compare(port, &truth, &did)
                .await
                .expect("an answer");
            assert!(compared.different[0].contains(words), "{compared:?}");
        }
        let compared = By::Car
            .compare(port, &other.truth(), &did)
            .await
            .expect("an answer");
        assert!(compared.different.len() > 20, "{compared:?}");
    }
}
