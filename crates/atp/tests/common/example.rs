//! Builds one account with one good commit, and verifies the commit.

use gapless_atp::crypto::Curve;
use gapless_atp::frame::CommitEvent;
use gapless_atp::verify::{Held, Verdict, check_commit};

use super::{Author, Head, NOW, OwnedCommit, record};

pub(crate) const CURVES: [Curve; 2] = [Curve::K256, Curve::P256];

pub(crate) fn held(head: &Head) -> Held {
    Held {
        rev: head.rev,
        data: head.data,
        commit: head.commit,
    }
}

/// An account with forty records, the head it had, and a commit on it that
/// creates, updates and deletes.
pub(crate) fn example(curve: Curve) -> (Author, Held, OwnedCommit) {
    let mut author = Author::new(curve);
    let paths: Vec<String> = (0..40)
        .map(|n| format!("com.example.post/{n:03}"))
        .collect();
    let writes: Vec<(&str, Option<Vec<u8>>)> = paths
        .iter()
        .zip(0..)
        .map(|(path, n)| (path.as_str(), Some(record(n))))
        .collect();
    author.commit(&writes);
    let before = held(author.head.as_ref().expect("a commit"));
    let commit = author.commit(&[
        ("com.example.post/0075", Some(record(100))),
        ("com.example.post/011", Some(record(101))),
        ("com.example.post/022", None),
    ]);
    assert_eq!(commit.ops.len(), 3);
    (author, before, commit)
}

pub(crate) fn check<'a>(
    author: &Author,
    event: &CommitEvent<'a>,
    held: Option<&Held>,
) -> Verdict<'a> {
    check_commit(event, author.key.public(), held, NOW, None)
}
