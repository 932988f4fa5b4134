//! The parameters of a method, each checked for its bounds and its syntax. An error names
//! the parameter.

use axum::http::Uri;
use gapless_atp::cid::Cid;
use gapless_atp::syntax::{AtIdentifier, Did, Nsid, RecordKey, Rev};
use url::form_urlencoded;

use crate::serve::ServeError;

/// Parameters of one request. `getBlocks` has the most.
const PARAMETERS: usize = 1_000;

/// The parameters of a query string.
pub(crate) struct Parameters(Vec<(String, String)>);

impl Parameters {
    pub(crate) fn of(uri: &Uri) -> Result<Parameters, ServeError> {
        let query = uri.query().unwrap_or("");
        let pairs = form_urlencoded::parse(query.as_bytes());
        let pairs: Vec<_> = pairs.take(PARAMETERS + 1).collect();
        if pairs.len() > PARAMETERS {
            return Err(ServeError::invalid(format!(
                "there are more than {PARAMETERS} parameters"
            )));
        }
        let owned = |(name, value): (std::borrow::Cow<'_, str>, std::borrow::Cow<'_, str>)| {
            (name.into_owned(), value.into_owned())
        };
        Ok(Parameters(pairs.into_iter().map(owned).collect()))
    }

    fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        let named = self.0.iter().filter(move |(key, _)| key == name);
        named.map(|(_, value)| value.as_str())
    }

    /// The first non-empty value of this parameter.
    fn get(&self, name: &str) -> Option<&str> {
        self.all(name).find(|value| !value.is_empty())
    }

    fn required(&self, name: &str) -> Result<&str, ServeError> {
        let missing = || ServeError::invalid(format!("`{name}` is missing"));
        self.get(name).ok_or_else(missing)
    }

    pub(crate) fn did(&self) -> Result<Did, ServeError> {
        Did::parse(self.required("did")?).map_err(|error| invalid("did", &error))
    }

    /// `repo`: a DID or a handle.
    pub(crate) fn repo(&self) -> Result<AtIdentifier, ServeError> {
        AtIdentifier::parse(self.required("repo")?).map_err(|error| invalid("repo", &error))
    }

    pub(crate) fn collection(&self) -> Result<Nsid, ServeError> {
        Nsid::parse(self.required("collection")?).map_err(|error| invalid("collection", &error))
    }

    pub(crate) fn record_key(&self) -> Result<RecordKey, ServeError> {
        RecordKey::parse(self.required("rkey")?).map_err(|error| invalid("rkey", &error))
    }

    pub(crate) fn since(&self) -> Result<Option<Rev>, ServeError> {
        let since = self.get("since").map(str::parse).transpose();
        since.map_err(|error| invalid("since", &error))
    }

    pub(crate) fn cid(&self) -> Result<Option<Cid>, ServeError> {
        let cid = self.get("cid").map(str::parse).transpose();
        cid.map_err(|error| invalid("cid", &error))
    }

    pub(crate) fn cids(&self) -> Result<Vec<Cid>, ServeError> {
        self.required("cids")?;
        let cids = self.all("cids").map(str::parse);
        cids.collect::<Result<_, _>>()
            .map_err(|error| invalid("cids", &error))
    }

    pub(crate) fn limit(&self, default: usize, most: usize) -> Result<usize, ServeError> {
        let Some(text) = self.get("limit") else {
            return Ok(default);
        };
        let number = text.parse().ok();
        number
            .filter(|number| (1..=most).contains(number))
            .ok_or_else(|| {
                ServeError::invalid(format!("`limit` must be a number from 1 to {most}"))
            })
    }

    /// A cursor that is a number.
    pub(crate) fn cursor(&self) -> Result<Option<u64>, ServeError> {
        let cursor = self.get("cursor").map(str::parse).transpose();
        cursor.map_err(|_| not_a_cursor())
    }

    /// A cursor that is a record key.
    pub(crate) fn cursor_key(&self) -> Result<Option<RecordKey>, ServeError> {
        let cursor = self.get("cursor").map(RecordKey::parse).transpose();
        cursor.map_err(|_| not_a_cursor())
    }

    pub(crate) fn reverse(&self) -> Result<bool, ServeError> {
        match self.get("reverse") {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(_) => Err(ServeError::invalid("`reverse` must be true or false")),
        }
    }
}

fn invalid(name: &str, error: &dyn std::fmt::Display) -> ServeError {
    ServeError::invalid(format!("`{name}`: {error}"))
}

fn not_a_cursor() -> ServeError {
    ServeError::invalid("`cursor` must be the `cursor` of the page before, or left out")
}
