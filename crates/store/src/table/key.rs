//! Encodes and decodes the keys of all tables.
//!
//! Numbers are big-endian, so that keys sort as numbers do. A path comes last in its
//! key, verbatim: the records of a repository are then in the order of its tree, ready
//! for computing the root. If something follows a path, the path's length comes before
//! it.

use gapless_atp::cid::Cid;
use gapless_atp::limits;
use gapless_atp::syntax::{Did, Rev};
use gapless_core::ledger::{HostId, RepoId, UpstreamId, tag};

use crate::codec::{RowFault, RowReader};

pub(crate) const REPO_BYTES: usize = 8;

/// The byte after an upstream's number, which tells its row from its cursor.
const UPSTREAM_ROW: u8 = 0;
const UPSTREAM_CURSOR: u8 = 1;

pub fn did(did: &Did) -> Vec<u8> {
    did.as_str().as_bytes().to_vec()
}

/// Key in `repo` and `debt`; prefix of a repository's keys in other tables.
pub fn repo(repo: RepoId) -> [u8; REPO_BYTES] {
    repo.0.to_be_bytes()
}

pub(crate) fn read_repo(key: &[u8]) -> Result<RepoId, RowFault> {
    match key.try_into() {
        Ok(bytes) => Ok(RepoId(u64::from_be_bytes(bytes))),
        Err(_) => Err(RowFault::Value("key")),
    }
}

/// Key in `record` and `claimed`.
pub fn path(repo: RepoId, path: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(REPO_BYTES + path.len());
    write_path(&mut key, repo, path);
    key
}

/// Writes a key in `record` and `claimed` into a buffer, which is cleared first.
pub(crate) fn write_path(key: &mut Vec<u8>, repo: RepoId, path: &[u8]) {
    debug_assert!(path.len() <= limits::KEY_BYTES, "paths are bounded");
    key.clear();
    key.extend_from_slice(&repo.0.to_be_bytes());
    key.extend_from_slice(path);
}

pub(crate) fn read_path(key: &[u8]) -> Result<(RepoId, &[u8]), RowFault> {
    let mut reader = RowReader::new(key);
    let repo = RepoId(reader.wide()?);
    Ok((repo, reader.remainder()))
}

/// Key in `version`. When a host's older state was adopted, a rev can occur twice with
/// different contents, so the key also has the beginning of the CID's hash.
pub fn version(repo: RepoId, path: &[u8], rev: Rev, cid: &Cid) -> Vec<u8> {
    let mut key = versions_of(repo, path);
    key.extend_from_slice(&rev.to_bits().to_be_bytes());
    key.extend_from_slice(&tag(cid).to_be_bytes());
    key
}

/// Prefix of all superseded versions of one record.
pub(crate) fn versions_of(repo: RepoId, path: &[u8]) -> Vec<u8> {
    debug_assert!(path.len() <= limits::KEY_BYTES, "paths are bounded");
    let mut key = Vec::with_capacity(REPO_BYTES + 2 + path.len() + 16);
    key.extend_from_slice(&repo.0.to_be_bytes());
    key.extend_from_slice(&(path.len() as u16).to_be_bytes());
    key.extend_from_slice(path);
    key
}

/// The repository, the path and the rev of a key in `version`.
pub(crate) fn read_version(key: &[u8]) -> Result<(RepoId, &[u8], Rev), RowFault> {
    let mut reader = RowReader::new(key);
    let repo = RepoId(reader.wide()?);
    let length = u16::from_be_bytes(reader.array()?);
    let path = reader.raw(length.into())?;
    let rev = reader.rev()?;
    reader.wide()?;
    match reader.left() {
        0 => Ok((repo, path, rev)),
        _ => Err(RowFault::Long),
    }
}

pub fn parked(repo: RepoId, rev: Rev) -> [u8; 16] {
    let mut key = [0; 16];
    let (id, place) = key.split_at_mut(REPO_BYTES);
    id.copy_from_slice(&repo.0.to_be_bytes());
    place.copy_from_slice(&rev.to_bits().to_be_bytes());
    key
}

pub(crate) fn read_parked(key: &[u8]) -> Result<(RepoId, Rev), RowFault> {
    let (repo, rest) = read_path(key)?;
    let rev = read_repo(rest)?;
    Ok((repo, Rev::from_bits(rev.0)))
}

/// Key in `log` and `dead`.
pub fn seq(seq: u64) -> [u8; 8] {
    seq.to_be_bytes()
}

pub(crate) fn read_seq(key: &[u8]) -> Result<u64, RowFault> {
    Ok(read_repo(key)?.0)
}

pub fn upstream(upstream: UpstreamId) -> [u8; 5] {
    upstream_part(upstream, UPSTREAM_ROW)
}

pub fn cursor(upstream: UpstreamId) -> [u8; 5] {
    upstream_part(upstream, UPSTREAM_CURSOR)
}

fn upstream_part(upstream: UpstreamId, part: u8) -> [u8; 5] {
    let [a, b, c, d] = upstream.0.to_be_bytes();
    [a, b, c, d, part]
}

/// The upstream of a key, and true for its row or false for its cursor.
pub(crate) fn read_upstream(key: &[u8]) -> Result<(UpstreamId, bool), RowFault> {
    let mut reader = RowReader::new(key);
    let upstream = UpstreamId(u32::from_be_bytes(reader.array()?));
    match (reader.byte()?, reader.left()) {
        (UPSTREAM_ROW, 0) => Ok((upstream, true)),
        (UPSTREAM_CURSOR, 0) => Ok((upstream, false)),
        _ => Err(RowFault::Value("key")),
    }
}

/// Key in `host`; prefix in `hosted`.
pub fn host(host: HostId) -> [u8; 4] {
    host.0.to_be_bytes()
}

pub(crate) fn read_host(key: &[u8]) -> Result<HostId, RowFault> {
    match key.try_into() {
        Ok(bytes) => Ok(HostId(u32::from_be_bytes(bytes))),
        Err(_) => Err(RowFault::Value("key")),
    }
}

pub fn hosted(host: HostId, repo: RepoId) -> [u8; 12] {
    let mut key = [0; 12];
    let (first, second) = key.split_at_mut(4);
    first.copy_from_slice(&host.0.to_be_bytes());
    second.copy_from_slice(&repo.0.to_be_bytes());
    key
}

pub(crate) fn read_hosted(key: &[u8]) -> Result<(HostId, RepoId), RowFault> {
    let mut reader = RowReader::new(key);
    let host = HostId(u32::from_be_bytes(reader.array()?));
    Ok((host, read_repo(reader.remainder())?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_path() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            "[a-z]{1,3}\\.[a-z]{1,3}\\.[a-zA-Z]{1,4}/[A-Za-z0-9._:~-]{1,5}"
                .prop_map(String::into_bytes),
            prop::collection::vec(any::<u8>(), 1..40),
        ]
    }

    proptest! {
        #[test]
        fn keys_come_back(
            id in any::<u64>(),
            path in any_path(),
            rev in any::<u64>(),
            host in any::<u32>(),
        ) {
            let (repo, rev, host) = (RepoId(id), Rev::from_bits(rev), HostId(host));
            let record = super::path(repo, &path);
            prop_assert_eq!(read_path(&record), Ok((repo, &path[..])));
            let cid = Cid::dag_cbor(&path);
            let key = version(repo, &path, rev, &cid);
            prop_assert_eq!(read_version(&key), Ok((repo, &path[..], rev)));
            prop_assert!(key.starts_with(&versions_of(repo, &path)));
            prop_assert_eq!(read_parked(&parked(repo, rev)), Ok((repo, rev)));
            prop_assert_eq!(read_hosted(&hosted(host, repo)), Ok((host, repo)));
            prop_assert_eq!(read_host(&super::host(host)), Ok(host));
            let upstream = UpstreamId(host.0);
            prop_assert_eq!(read_upstream(&super::upstream(upstream)), Ok((upstream, true)));
            prop_assert_eq!(read_upstream(&cursor(upstream)), Ok((upstream, false)));
        }

        #[test]
        fn records_sort_by_repository_and_then_as_the_tree_does(
            a in (0..3u64, any_path()),
            b in (0..3u64, any_path()),
        ) {
            let keys = super::path(RepoId(a.0), &a.1).cmp(&super::path(RepoId(b.0), &b.1));
            prop_assert_eq!(keys, a.cmp(&b));
        }

        #[test]
        fn versions_of_one_path_are_not_those_of_a_longer_one(
            path in any_path(),
            more in any_path(),
            rev in any::<u64>(),
        ) {
            let longer = [&path[..], &more].concat();
            let key = version(RepoId(1), &longer, Rev::from_bits(rev), &Cid::raw(&more));
            prop_assert!(!key.starts_with(&versions_of(RepoId(1), &path)));
        }

        #[test]
        fn any_bytes_end_in_a_value_or_an_error(key in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = (read_repo(&key), read_path(&key), read_version(&key), read_parked(&key));
            let _ = (read_upstream(&key), read_host(&key), read_hosted(&key));
        }
    }

    #[test]
    fn the_longest_legal_path_fits() {
        let longest = vec![b'a'; limits::KEY_BYTES];
        let key = path(RepoId(u64::MAX), &longest);
        assert_eq!(read_path(&key).unwrap().1, &longest[..]);
        let version = version(RepoId(1), &longest, Rev::from_bits(7), &Cid::raw(b""));
        assert_eq!(read_version(&version).unwrap().1, &longest[..]);
    }
}
