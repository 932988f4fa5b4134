//! The parameters of a method: each within bounds, each checked by its syntax, each
//! refused by its name.

use axum::http::Uri;
use gapless_atp::cid::Cid;
use gapless_atp::syntax::{AtIdentifier, Did, Nsid, RecordKey, Rev};
use url::form_urlencoded;

use crate::serve::Refusal;

/// Parameters of one request: `getBlocks` has the most.
const PARAMETERS: usize = 1_000;

/// What stands after the question mark.
pub struct Parameters(Vec<(String, String)>);

impl Parameters {
    pub fn of(uri: &Uri) -> Result<Parameters, Refusal> {
        let query = uri.query().unwrap_or("");
        let pairs = form_urlencoded::parse(query.as_bytes());
        let pairs: Vec<_> = pairs.take(PARAMETERS + 1).collect();
        if pairs.len() > PARAMETERS {
            return Err(Refusal::invalid(format!(
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

    /// The first of this name; an empty one is none.
    fn get(&self, name: &str) -> Option<&str> {
        self.all(name).find(|value| !value.is_empty())
    }

    fn must(&self, name: &str) -> Result<&str, Refusal> {
        let missing = || Refusal::invalid(format!("`{name}` is missing"));
        self.get(name).ok_or_else(missing)
    }

    pub fn did(&self) -> Result<Did, Refusal> {
        Did::parse(self.must("did")?).map_err(|error| wrong("did", &error))
    }

    /// `repo`: a DID or a handle.
    pub fn who(&self) -> Result<AtIdentifier, Refusal> {
        AtIdentifier::parse(self.must("repo")?).map_err(|error| wrong("repo", &error))
    }

    pub fn collection(&self) -> Result<Nsid, Refusal> {
        Nsid::parse(self.must("collection")?).map_err(|error| wrong("collection", &error))
    }

    pub fn record_key(&self) -> Result<RecordKey, Refusal> {
        RecordKey::parse(self.must("rkey")?).map_err(|error| wrong("rkey", &error))
    }

    pub fn since(&self) -> Result<Option<Rev>, Refusal> {
        let since = self.get("since").map(str::parse).transpose();
        since.map_err(|error| wrong("since", &error))
    }

    pub fn cid(&self) -> Result<Option<Cid>, Refusal> {
        let cid = self.get("cid").map(str::parse).transpose();
        cid.map_err(|error| wrong("cid", &error))
    }

    pub fn cids(&self) -> Result<Vec<Cid>, Refusal> {
        self.must("cids")?;
        let cids = self.all("cids").map(str::parse);
        cids.collect::<Result<_, _>>()
            .map_err(|error| wrong("cids", &error))
    }

    pub fn limit(&self, unsaid: usize, most: usize) -> Result<usize, Refusal> {
        let Some(text) = self.get("limit") else {
            return Ok(unsaid);
        };
        let number = text.parse().ok();
        number
            .filter(|number| (1..=most).contains(number))
            .ok_or_else(|| Refusal::invalid(format!("`limit` must be a number from 1 to {most}")))
    }

    /// A cursor that is a number here.
    pub fn cursor(&self) -> Result<Option<u64>, Refusal> {
        let cursor = self.get("cursor").map(str::parse).transpose();
        cursor.map_err(|_| not_a_cursor())
    }

    /// A cursor that is a record key.
    pub fn cursor_key(&self) -> Result<Option<RecordKey>, Refusal> {
        let cursor = self.get("cursor").map(RecordKey::parse).transpose();
        cursor.map_err(|_| not_a_cursor())
    }

    pub fn reverse(&self) -> Result<bool, Refusal> {
        match self.get("reverse") {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(_) => Err(Refusal::invalid("`reverse` must be true or false")),
        }
    }
}

fn wrong(name: &str, error: &dyn std::fmt::Display) -> Refusal {
    Refusal::invalid(format!("`{name}`: {error}"))
}

fn not_a_cursor() -> Refusal {
    Refusal::invalid("`cursor` must be the `cursor` of the page before, or left out")
}
