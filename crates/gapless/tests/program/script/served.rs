//! What a server of repositories says that it holds, compared with the truth: the one
//! function that the checker looks through.
//!
//! From a server that answers `getRepo`, everything: each record, byte by byte. From a
//! mirror that does not serve repositories, the root that it recomputes from its
//! records, which is the truth's root only if the records are; what lies on its disk
//! is compared byte by byte whenever it is down.

use gapless_atp::repo::{ImportError, RepoCar};
use gapless_atp::syntax::{Did, Rev};
use gapless_harness::oracle::{self, HeldRecords};
use gapless_mirror::api::{Verdict, VerifyAnswer};
use gapless_testnet::Truth;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// What was compared.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Compared {
    pub records: u64,
    /// The answer began and did not end: there is nothing to compare.
    pub cut: bool,
    /// In words. Empty: it is exactly what was signed.
    pub different: Vec<String>,
}

/// How a server is looked into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    Car,
    Root,
}

impl By {
    /// The better of the two, if the server knows it.
    pub async fn best(port: u16, did: &Did) -> Option<By> {
        let (status, body) = ask(port, "GET", &get_repo(did)).await?;
        let known = status == 200 || !named(&body, "NotFound");
        Some(if known { By::Car } else { By::Root })
    }

    /// None: it holds nothing of it, or does not answer just now.
    pub async fn look(self, port: u16, truth: &Truth, did: &Did) -> Option<Compared> {
        match self {
            By::Car => {
                let (status, body) = begin(port, "GET", &get_repo(did)).await?;
                let cut = Compared {
                    cut: true,
                    ..Compared::default()
                };
                (status == 200).then(|| body.map_or(cut, |body| by_car(truth, did, &body)))
            }
            By::Root => {
                let path = format!("/v1/repos/{}/verify", in_path(did));
                let (status, body) = ask(port, "POST", &path).await?;
                let answer = (status == 200).then_some(body)?;
                by_root(truth, did, &answer)
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

/// Status and body; nothing while nobody answers, or when it dies half way.
pub async fn ask(port: u16, method: &str, path: &str) -> Option<(u16, Vec<u8>)> {
    let (status, body) = begin(port, method, path).await?;
    Some((status, body?))
}

/// The same; no body if it began and did not end.
async fn begin(port: u16, method: &str, path: &str) -> Option<(u16, Option<Vec<u8>>)> {
    let mut socket = TcpStream::connect(("localhost", port)).await.ok()?;
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost:{port}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    );
    socket.write_all(request.as_bytes()).await.ok()?;
    let mut answer = Vec::new();
    // What came before an error came all the same.
    let _ = socket.read_to_end(&mut answer).await;
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&answer[..end]).into_owned();
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let body = answer.split_off(end + 4);
    let header = |wanted: &str| {
        let mut lines = head.lines().filter_map(|line| line.split_once(':'));
        let found = lines.find(|(name, _)| name.eq_ignore_ascii_case(wanted));
        found.map(|(_, value)| value.trim().to_owned())
    };
    // Killed in mid-answer, or cut: what did not come says nothing.
    let body = match header("transfer-encoding").is_some_and(|how| how == "chunked") {
        true => from_chunks(&body),
        false => {
            let length: usize = header("content-length")?.parse().ok()?;
            (length == body.len()).then_some(body)
        }
    };
    Some((status, body))
}

/// A body that came in chunks; nothing if the last one did not come.
fn from_chunks(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line = rest.windows(2).position(|two| two == b"\r\n")?;
        let length = std::str::from_utf8(&rest[..line]).ok()?;
        let length = usize::from_str_radix(length, 16).ok()?;
        rest = rest.get(line + 2..)?;
        if length == 0 {
            return Some(body);
        }
        body.extend_from_slice(rest.get(..length)?);
        rest = rest.get(length + 2..)?;
    }
}

fn by_car(truth: &Truth, did: &Did, car: &[u8]) -> Compared {
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
            .push(format!("{did}: nobody signed {rev}"));
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

fn by_root(truth: &Truth, did: &Did, body: &[u8]) -> Option<Compared> {
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
        let compared = By::Car.look(port, &truth, &did).await.expect("an answer");
        assert_eq!(compared.different, Vec::<String>::new());
        assert_eq!(
            compared.records,
            truth.records(&did).expect("it exists").len() as u64
        );
        // An older state is right at the rev that it states; a cut one is nothing.
        net.fault(Spec::new(Fault::CarOld { commits: 1 }).times(1))
            .expect("it is set");
        let compared = By::Car.look(port, &truth, &did).await.expect("an answer");
        assert_eq!(compared.different, Vec::<String>::new());
        for (fault, words) in [
            (Fault::CarCut {}, "not whole"),
            (Fault::CarMinusLeaf {}, "not whole"),
            (Fault::CarOtherKey {}, "nobody signed"),
        ] {
            net.fault(Spec::new(fault).times(1)).expect("it is set");
            let compared = By::Car.look(port, &truth, &did).await.expect("an answer");
            assert!(compared.different[0].contains(words), "{compared:?}");
        }
        let compared = By::Car
            .look(port, &other.truth(), &did)
            .await
            .expect("an answer");
        assert!(compared.different.len() > 20, "{compared:?}");
    }
}
