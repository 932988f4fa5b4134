//! Downloads a repository from its host and streams it into a sink.
//!
//! Nothing is buffered here. [`FetchLimits`] bound the time to the first byte, each
//! stall, the rate, the bytes and the total time, so a slow host occupies only its own
//! permits. Only the time spent waiting for the host counts towards the rate, not the
//! time that the sink takes.

use std::time::Duration;

use gapless_atp::syntax::{Did, Rev};
use gapless_core::ledger::Account;
use reqwest::Response;
use tokio::time::{Instant, timeout};

use super::client::{
    MOST_REDIRECTS, Net, acquire_permit, apply_requested_pause, authority, read_answer, wait_of,
};
use super::error::{AskClass, AskError, classify_error};
use super::xrpc::{Failure, HostAddress, refusal};

/// The most bytes of an error's body that are read.
const ERROR_BYTES: u64 = 64 * 1024;

/// The limits of a download.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FetchLimits {
    pub bytes: u64,
    pub total: Duration,
    /// The longest wait until the response begins.
    pub first_byte: Duration,
    /// The longest wait without a byte.
    pub stall: Duration,
    /// The lowest rate in bytes per second, measured over each `window`.
    pub min_rate: u64,
    pub window: Duration,
}

impl Default for FetchLimits {
    fn default() -> FetchLimits {
        FetchLimits {
            bytes: 8_000_000_000,
            total: Duration::from_secs(3600),
            first_byte: Duration::from_secs(30),
            stall: Duration::from_secs(30),
            min_rate: 1000,
            window: Duration::from_secs(30),
        }
    }
}

/// A complete download. The sink decides whether the bytes are a repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Downloaded {
    pub bytes: u64,
}

/// Why a repository was not downloaded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GetRepoError {
    #[error("the host does not serve the repository: {0:?}")]
    State(Account),
    #[error(transparent)]
    Ask(#[from] AskError),
    #[error("the downloaded repository could not be processed: {0}")]
    Sink(String),
}

impl From<Failure> for GetRepoError {
    fn from(failure: Failure) -> GetRepoError {
        match failure {
            Failure::State(state) => GetRepoError::State(state),
            Failure::Ask(error) => GetRepoError::Ask(error),
        }
    }
}

/// Receives the pieces of a download, in order. An error from the sink ends the download.
pub(crate) type Sink<'a> = dyn FnMut(&[u8]) -> Result<(), String> + Send + 'a;

impl Net {
    /// Streams a repository, or the difference since a rev, into the sink.
    pub async fn get_repo(
        &self,
        host: &HostAddress,
        did: &Did,
        since: Option<Rev>,
        sink: &mut Sink<'_>,
        limits: &FetchLimits,
    ) -> Result<Downloaded, GetRepoError> {
        let since = since.map(|rev| rev.to_string());
        let mut query = vec![("did", did.as_str())];
        query.extend(since.as_deref().map(|rev| ("since", rev)));
        let url = self.method_url(host, "getRepo", &query)?;
        let name = authority(&url);
        let _permit = acquire_permit(&self.0.hosts, &name).await?;

        let deadline = Instant::now() + limits.total;
        let wait = limits.first_byte.min(limits.total);
        let opened = timeout(wait, self.open(url, host.trust, MOST_REDIRECTS)).await;
        let response = opened.map_err(|_| {
            let what = format!("getRepo of {did} did not begin within {wait:?}");
            AskError::new(AskClass::Timeout, &name, what)
        })??;
        let (status, retry_after) = (response.status().as_u16(), wait_of(&response));
        apply_requested_pause(&self.0.hosts, &name, status, retry_after);
        if status != 200 {
            return Err(read_refusal(&name, did, response, limits).await.into());
        }
        let mut download = CarDownload {
            name: &name,
            did,
            limits,
            deadline,
            bytes: 0,
            waited: Duration::ZERO,
            window_bytes: 0,
        };
        download.run(response, sink).await
    }
}

/// Reads the body of an error response, within the time of a stall.
async fn read_refusal(name: &str, did: &Did, response: Response, limits: &FetchLimits) -> Failure {
    let status = response.status().as_u16();
    let retry_after = wait_of(&response);
    match timeout(limits.stall, read_answer(name, response, ERROR_BYTES)).await {
        Ok(Ok(answer)) => refusal(name, "getRepo", &answer),
        // The status is known, and says more than the failure to read the body.
        Ok(Err(_)) | Err(_) => {
            let what = format!("getRepo of {did} was answered with {status}, without a reason");
            let error = AskError::new(AskClass::Http(status), name, what);
            Failure::Ask(error.after(retry_after))
        }
    }
}

struct CarDownload<'a> {
    name: &'a str,
    did: &'a Did,
    limits: &'a FetchLimits,
    deadline: Instant,
    bytes: u64,
    /// The time spent waiting for the host, and the bytes received, in this window.
    waited: Duration,
    window_bytes: u64,
}

impl CarDownload<'_> {
    async fn run(
        &mut self,
        mut response: Response,
        sink: &mut Sink<'_>,
    ) -> Result<Downloaded, GetRepoError> {
        let most = self.limits.bytes;
        if response
            .content_length()
            .is_some_and(|length| length > most)
        {
            return Err(self.too_large().into());
        }
        loop {
            let began = Instant::now();
            let left = self.deadline.saturating_duration_since(began);
            if left.is_zero() {
                return Err(self.silent(true).into());
            }
            let wait = left.min(self.limits.stall);
            let piece = match timeout(wait, response.chunk()).await {
                Ok(piece) => piece.map_err(|error| classify_error(self.name, error))?,
                Err(_) => return Err(self.silent(left <= wait).into()),
            };
            let Some(piece) = piece else {
                return Ok(Downloaded { bytes: self.bytes });
            };
            self.count(began.elapsed(), piece.len() as u64)?;
            sink(&piece).map_err(GetRepoError::Sink)?;
        }
    }

    /// Counts a piece, and checks the rate at the end of a window.
    fn count(&mut self, waited: Duration, bytes: u64) -> Result<(), AskError> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > self.limits.bytes {
            return Err(self.too_large());
        }
        self.waited += waited;
        self.window_bytes += bytes;
        if self.waited < self.limits.window {
            return Ok(());
        }
        let owed = self.limits.min_rate as f64 * self.waited.as_secs_f64();
        if (self.window_bytes as f64) < owed {
            let what = format!(
                "getRepo of {} delivered {} bytes in {:?}, fewer than {} per second",
                self.did, self.window_bytes, self.waited, self.limits.min_rate
            );
            return Err(AskError::new(AskClass::Slow, self.name, what));
        }
        (self.waited, self.window_bytes) = (Duration::ZERO, 0);
        Ok(())
    }

    fn too_large(&self) -> AskError {
        let what = format!(
            "getRepo of {} has more than {} bytes",
            self.did, self.limits.bytes
        );
        AskError::new(AskClass::TooLarge, self.name, what)
    }

    fn silent(&self, over: bool) -> AskError {
        let (class, what) = if over {
            (
                AskClass::Timeout,
                format!("did not end within {:?}", self.limits.total),
            )
        } else {
            (
                AskClass::Slow,
                format!("stalled for {:?}", self.limits.stall),
            )
        };
        let what = format!("getRepo of {} {what} after {} bytes", self.did, self.bytes);
        AskError::new(class, self.name, what)
    }
}
