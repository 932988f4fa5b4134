//! The HTTP client: sends GET requests, guarded and bounded in time and bytes.
//!
//! There are two clients: one for hosts named by documents or redirects, whose
//! resolver refuses addresses that are not public, and one for hosts that the operator
//! configured. Neither reads proxies from the environment. This module follows
//! redirects itself, at most three, and applies the rules of [`super::guard`] to each
//! target. Bodies are read in pieces; a body that exceeds its limit is dropped at once.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::{Bytes, BytesMut};
use reqwest::Client;
use reqwest::header::{HeaderMap, LOCATION};
use tokio::time::{Instant, timeout};
use url::Url;

use super::authorities::{Certificate, tls_config};
use super::error::{AskClass, AskError, chain, classify_error, clean};
use super::guard::{BlockedAddress, Trust, check_url};
use super::headers::retry_after;
use super::host::{HostLimits, Hosts, Permit};
use super::lookup::Lookup;

/// The timeout for name resolution, connection and TLS together.
pub(super) const CONNECT: Duration = Duration::from_secs(10);
/// The most redirects that one request follows.
pub(super) const MOST_REDIRECTS: u32 = 3;
/// The most idle connections kept to one host, and how long each is kept.
const IDLE_CONNECTIONS: usize = 4;
const IDLE_CONNECTION: Duration = Duration::from_secs(60);
/// A request fails at once if the host's pause lasts longer than this.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest wait for a permit to ask a host.
const LONGEST_TURN: Duration = Duration::from_secs(300);
/// The pause after a 429 without a time to wait, and the shortest pause after a 429
/// with one.
const UNNAMED_PAUSE: Duration = Duration::from_secs(10);
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
/// Concurrent requests to the directory.
const DIRECTORY_AT_ONCE: usize = 64;
/// The limits of a host that serves did:web documents.
const WEB_DOCUMENTS: HostLimits = HostLimits {
    concurrency: 2,
    requests_per_second: 1.0,
    burst: 5,
};

/// The settings of outgoing connections.
#[derive(Debug, Clone, PartialEq)]
pub struct NetSettings {
    /// Whether hosts named by others may have private addresses. For test networks.
    pub allow_private: bool,
    /// A contact for operators of hosts, sent in the user agent: a mail address or a URL.
    pub contact: Option<String>,
    /// Certificate authorities in addition to those of the public web.
    pub authorities: Vec<Certificate>,
    /// The URL of the PLC directory.
    pub plc: String,
    /// The rate of requests to the PLC directory. After an idle time, a burst of twice as many
    /// is allowed.
    pub plc_requests_per_second: f64,
}

/// Why the network client cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum NetError {
    #[error("the contact {0:?} cannot be sent in a header: use printable ASCII")]
    Contact(String),
    #[error("the directory {0:?} is not an http or https address")]
    Plc(String),
    #[error("TLS cannot be set up: {0}")]
    Tls(#[from] rustls::Error),
    #[error("the HTTP client cannot be set up: {0}")]
    Client(String),
}

/// The limits of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestLimits {
    pub total: Duration,
    pub bytes: u64,
}

/// A response with any status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    pub status: u16,
    /// How long to wait before the next request, if the host said so.
    pub retry_after: Option<Duration>,
    pub body: Bytes,
}

/// The client for all requests to hosts, the directory and handles. Clones share
/// connections and limits.
#[derive(Clone)]
pub struct Net(pub(super) Arc<Inner>);

pub(super) struct Inner {
    pub allow_private: bool,
    pub agent: String,
    /// The URL of the directory, without a trailing slash.
    pub plc: String,
    pub tls: Arc<rustls::ClientConfig>,
    pub lookup: Lookup,
    guarded: Client,
    configured: Client,
    pub hosts: Hosts,
    pub directory: Hosts,
    pub web_documents: Hosts,
}

impl Net {
    pub fn new(settings: NetSettings) -> Result<Net, NetError> {
        Net::with_limits(settings, HostLimits::default())
    }

    /// Creates a client with limits per host other than the defaults.
    pub fn with_limits(settings: NetSettings, limits: HostLimits) -> Result<Net, NetError> {
        let agent = user_agent(settings.contact.as_deref())?;
        let tls = tls_config(&settings.authorities)?;
        let lookup = Lookup::new(!settings.allow_private);
        Ok(Net(Arc::new(Inner {
            allow_private: settings.allow_private,
            plc: directory_base(&settings.plc)?,
            guarded: client(&agent, &tls, lookup.clone())?,
            configured: client(&agent, &tls, lookup.for_configured())?,
            agent,
            tls: Arc::new(tls),
            lookup,
            hosts: Hosts::new(limits),
            directory: Hosts::new(directory_limits(settings.plc_requests_per_second)),
            web_documents: Hosts::new(WEB_DOCUMENTS),
        })))
    }

    /// The rate limits of the hosts that [`super::xrpc`] asks.
    pub fn hosts(&self) -> &Hosts {
        &self.0.hosts
    }

    /// Sends one GET request and reads the whole response within `limits`. Any status is a
    /// success.
    pub async fn get(
        &self,
        url: &str,
        trust: Trust,
        limits: RequestLimits,
    ) -> Result<Response, AskError> {
        let url = parse(url)?;
        self.get_url(url, trust, MOST_REDIRECTS, limits).await
    }

    pub(super) async fn get_url(
        &self,
        url: Url,
        trust: Trust,
        redirects: u32,
        limits: RequestLimits,
    ) -> Result<Response, AskError> {
        let host = authority(&url);
        let answer = async {
            let response = self.open(url, trust, redirects).await?;
            read_answer(&host, response, limits.bytes).await
        };
        match timeout(limits.total, answer).await {
            Ok(answer) => answer,
            Err(_) => {
                let what = format!("no complete response within {:?}", limits.total);
                Err(AskError::new(AskClass::Timeout, &host, what))
            }
        }
    }

    /// Sends a request, follows redirects, and returns the last response before its body
    /// is read. The caller bounds the time.
    pub(super) async fn open(
        &self,
        mut url: Url,
        mut trust: Trust,
        redirects: u32,
    ) -> Result<reqwest::Response, AskError> {
        for followed in 0..=redirects {
            self.check(&url, trust)?;
            let host = authority(&url);
            let client = match trust {
                Trust::Configured => &self.0.configured,
                Trust::Named => &self.0.guarded,
            };
            let sent = client.get(url.clone()).send().await;
            let response = sent.map_err(|error| classify_error(&host, error))?;
            if !is_redirect(response.status().as_u16()) {
                return Ok(response);
            }
            if followed == redirects {
                break;
            }
            let next = redirect_target(&url, response.headers())?;
            if authority(&next) != host {
                // Many hosts may redirect to one host, whose rate limit holds too.
                self.0.hosts.pass_by(&authority(&next)).await;
            }
            trust = trust.redirected(&url, &next);
            url = next;
        }
        let what = match redirects {
            0 => "it redirects, and this request follows no redirects".to_owned(),
            most => format!("it redirects more than {most} times"),
        };
        Err(AskError::new(AskClass::Refused, &authority(&url), what))
    }

    /// Checks whether a URL may be requested at all.
    pub(super) fn check(&self, url: &Url, trust: Trust) -> Result<(), AskError> {
        match trust {
            Trust::Configured => Ok(()),
            Trust::Named => check_url(url, self.0.allow_private)
                .map_err(|refusal| AskError::refused(&authority(url), &refusal)),
        }
    }
}

/// Waits for a permit to ask a host. Fails at once if the host is in a pause that
/// lasts longer than [`PATIENCE`].
pub(super) async fn acquire_permit(hosts: &Hosts, host: &str) -> Result<Permit, AskError> {
    if let Some(until) = hosts.paused_until(host) {
        let left = until.saturating_duration_since(Instant::now());
        if left > PATIENCE {
            let what = "the pause that it asked for is not over; Gapless asks again later";
            let error = AskError::new(AskClass::Http(429), host, what);
            return Err(error.after(Some(left)));
        }
    }
    let admitted = timeout(LONGEST_TURN, hosts.admit(host)).await;
    admitted.map_err(|_| {
        let what = format!("its rate limit allowed no request within {LONGEST_TURN:?}");
        AskError::new(AskClass::Timeout, host, what)
    })
}

/// Pauses a host for the time that its response asks for.
pub(super) fn apply_requested_pause(
    hosts: &Hosts,
    host: &str,
    status: u16,
    retry_after: Option<Duration>,
) {
    let pause = match (status, retry_after) {
        (429, wait) => Some(wait.map_or(UNNAMED_PAUSE, |wait| wait.max(SHORTEST_PAUSE))),
        (_, wait) => wait,
    };
    if let Some(pause) = pause {
        hosts.pause(host, pause);
    }
}

pub(super) fn parse(url: &str) -> Result<Url, AskError> {
    Url::parse(url).map_err(|_| AskError::refused(&clean(url), &BlockedAddress::Unreadable))
}

/// The name of a host in messages and limits: with its port, if the URL has one.
pub(super) fn authority(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    }
}

pub(super) fn is_redirect(status: u16) -> bool {
    matches!(status, 301 | 302 | 303 | 307 | 308)
}

/// The target of a redirect from `from`.
pub(super) fn redirect_target(from: &Url, headers: &HeaderMap) -> Result<Url, AskError> {
    let target = headers.get(LOCATION).and_then(|to| to.to_str().ok());
    let target = target.and_then(|to| from.join(to).ok());
    target.ok_or_else(|| {
        let what = "it redirects to an address that cannot be parsed";
        AskError::malformed(&authority(from), what)
    })
}

/// How long to wait before the next request, if the response says so.
pub(super) fn wait_of(response: &reqwest::Response) -> Option<Duration> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    retry_after(response.headers(), now.map_or(0, |now| now.as_secs()))
}

/// Reads a whole body. Fails at the first byte over the limit.
pub(super) async fn read_answer(
    host: &str,
    mut response: reqwest::Response,
    most: u64,
) -> Result<Response, AskError> {
    let too_large = || {
        let what = format!("the response has more than {most} bytes");
        AskError::new(AskClass::TooLarge, host, what)
    };
    if response
        .content_length()
        .is_some_and(|length| length > most)
    {
        return Err(too_large());
    }
    let (status, retry_after) = (response.status().as_u16(), wait_of(&response));
    let mut body = BytesMut::new();
    while let Some(piece) = response
        .chunk()
        .await
        .map_err(|e| classify_error(host, e))?
    {
        if (body.len() as u64).saturating_add(piece.len() as u64) > most {
            return Err(too_large());
        }
        body.extend_from_slice(&piece);
    }
    Ok(Response {
        status,
        retry_after,
        body: body.freeze(),
    })
}

fn user_agent(contact: Option<&str>) -> Result<String, NetError> {
    let version = env!("CARGO_PKG_VERSION");
    let Some(contact) = contact else {
        return Ok(format!("gapless/{version}"));
    };
    let printable = |byte: u8| byte == b' ' || byte.is_ascii_graphic();
    if contact.is_empty() || !contact.bytes().all(printable) {
        return Err(NetError::Contact(contact.to_owned()));
    }
    Ok(format!("gapless/{version} ({contact})"))
}

fn directory_limits(requests_per_second: f64) -> HostLimits {
    HostLimits {
        concurrency: DIRECTORY_AT_ONCE,
        requests_per_second,
        burst: (requests_per_second * 2.0).ceil().max(1.0) as u32,
    }
}

fn directory_base(plc: &str) -> Result<String, NetError> {
    let refused = || NetError::Plc(plc.to_owned());
    let url = Url::parse(plc).map_err(|_| refused())?;
    let bare = url.query().is_none() && url.fragment().is_none();
    match url.scheme() {
        "http" | "https" if url.has_host() && bare => {
            Ok(url.as_str().trim_end_matches('/').to_owned())
        }
        _ => Err(refused()),
    }
}

fn client(agent: &str, tls: &rustls::ClientConfig, lookup: Lookup) -> Result<Client, NetError> {
    let built = Client::builder()
        .user_agent(agent)
        .tls_backend_preconfigured(tls.clone())
        .no_proxy()
        .referer(false)
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .connect_timeout(CONNECT)
        .pool_max_idle_per_host(IDLE_CONNECTIONS)
        .pool_idle_timeout(IDLE_CONNECTION)
        .dns_resolver(lookup)
        .build();
    built.map_err(|error| NetError::Client(chain(&error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_refusal_of_the_resolver_is_found_among_the_causes() {
        // Past the check of the text, as a public name with a private address.
        let guarded = client("x", &tls_config(&[]).unwrap(), Lookup::new(true)).unwrap();
        let error = guarded
            .get("https://localhost:1/")
            .send()
            .await
            .unwrap_err();
        let error = classify_error("localhost", error);
        assert_eq!(error.class, AskClass::Refused, "{error}");
        assert!(
            error.to_string().contains("not a public address"),
            "{error}"
        );
    }

    #[test]
    fn settings_are_checked() {
        let version = env!("CARGO_PKG_VERSION");
        let agent = user_agent(Some("https://a.com/ops")).unwrap();
        assert_eq!(agent, format!("gapless/{version} (https://a.com/ops)"));
        assert_eq!(user_agent(None).unwrap(), format!("gapless/{version}"));
        for contact in ["", "a\r\nHost: b", "ä"] {
            assert!(user_agent(Some(contact)).is_err(), "{contact}");
        }
        let base = directory_base("https://plc.directory/").unwrap();
        assert_eq!(base, "https://plc.directory");
        for plc in [
            "plc.directory",
            "ftp://plc.directory",
            "https://a.com?b",
            "",
        ] {
            assert!(directory_base(plc).is_err(), "{plc}");
        }
    }

    #[tokio::test]
    async fn a_host_that_says_too_many_is_left_alone() {
        let hosts = Hosts::new(HostLimits::default());
        let pause = |status, seconds: Option<u64>| {
            let host = format!("{status}{seconds:?}");
            apply_requested_pause(&hosts, &host, status, seconds.map(Duration::from_secs));
            let until = hosts.paused_until(&host)?;
            Some((until - Instant::now()).as_secs_f64().ceil() as u64)
        };
        assert_eq!(pause(429, None), Some(10));
        assert_eq!(pause(429, Some(0)), Some(1));
        assert_eq!(pause(429, Some(7)), Some(7));
        assert_eq!(pause(503, Some(7)), Some(7));
        assert_eq!(pause(200, Some(7)), Some(7));
        assert_eq!(pause(503, None), None);
    }
}
