//! Tests bad parameters, unknown methods and access control of the serving methods.

use reqwest::Method;

use crate::serve::served::{Served, mirrored, small};

/// A method, its parameters, and words of the refusal.
type Case<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a str);

#[tokio::test(flavor = "multi_thread")]
async fn every_bad_parameter_is_named() {
    let (mut world, served) = mirrored(small(1)).await;
    let did = world.did(0);
    let did = did.as_str();
    let path = [("collection", "a.b.c"), ("rkey", "a")];
    let cases: [Case<'_>; 26] = [
        ("sync.getRepo", &[], "`did` is missing"),
        ("sync.getRepo", &[("did", "")], "`did` is missing"),
        ("sync.getRepo", &[("did", "alice.test")], "`did`"),
        ("sync.getRepo", &[("did", did), ("since", "x")], "`since`"),
        (
            "sync.getRecord",
            &[("did", did), path[0]],
            "`rkey` is missing",
        ),
        (
            "sync.getRecord",
            &[("did", did), path[1]],
            "`collection` is missing",
        ),
        (
            "sync.getRecord",
            &[("did", did), ("collection", "a"), path[1]],
            "`collection`",
        ),
        (
            "sync.getRecord",
            &[("did", did), path[0], ("rkey", "..")],
            "`rkey`",
        ),
        ("sync.getBlocks", &[("did", did)], "`cids` is missing"),
        ("sync.getBlocks", &[("did", did), ("cids", "x")], "`cids`"),
        ("sync.getLatestCommit", &[("did", "did:x:y")], "`did`"),
        ("sync.getRepoStatus", &[], "`did` is missing"),
        ("sync.listRepos", &[("limit", "0")], "`limit`"),
        ("sync.listRepos", &[("limit", "1001")], "from 1 to 1000"),
        ("sync.listRepos", &[("limit", "-1")], "`limit`"),
        ("sync.listRepos", &[("cursor", "x")], "`cursor`"),
        ("sync.listReposByCollection", &[], "`collection` is missing"),
        (
            "sync.listReposByCollection",
            &[path[0], ("limit", "2001")],
            "from 1 to 2000",
        ),
        ("repo.getRecord", &path, "`repo` is missing"),
        (
            "repo.getRecord",
            &[("repo", "not a name"), path[0], path[1]],
            "`repo`",
        ),
        (
            "repo.getRecord",
            &[("repo", did), path[0], path[1], ("cid", "x")],
            "`cid`",
        ),
        (
            "repo.listRecords",
            &[("repo", did)],
            "`collection` is missing",
        ),
        (
            "repo.listRecords",
            &[("repo", did), path[0], ("limit", "101")],
            "from 1 to 100",
        ),
        (
            "repo.listRecords",
            &[("repo", did), path[0], ("reverse", "1")],
            "`reverse`",
        ),
        (
            "repo.listRecords",
            &[("repo", did), path[0], ("cursor", "a/b")],
            "`cursor`",
        ),
        ("repo.describeRepo", &[], "`repo` is missing"),
    ];
    for (method, query, named) in cases {
        let words = served.bad(method, query, "InvalidRequest").await;
        assert!(words.contains(named), "{method} {query:?}: {words}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn there_are_no_other_methods() {
    let (mut world, served) = mirrored(small(1)).await;
    for method in ["sync.getBlob", "repo.createRecord", "sync.getRepo2"] {
        for verb in [Method::GET, Method::POST] {
            let got = served
                .ask(verb, &format!("/xrpc/com.atproto.{method}"))
                .await;
            let (status, error, _) = got.refused();
            assert_eq!((status, error.as_str()), (501, "MethodNotImplemented"));
        }
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn any_client_may_read_unless_reading_is_closed() {
    let (mut world, open) = mirrored(small(1)).await;
    let closed = Served::with(&world, false).await;
    let did = world.did(0);
    let asked = crate::serve::served::path("sync.getLatestCommit", &[("did", did.as_str())]);
    for (served, wanted) in [(&open, 200), (&closed, 403)] {
        let url = format!("http://{}{asked}", served.address);
        let foreign = served.http.get(url).header("host", "mirror.example.com");
        let foreign = foreign.send().await.expect("it answers");
        assert_eq!(foreign.status().as_u16(), wanted);
    }
    // What is not public stays closed to strangers.
    let url = format!("http://{}/v1/status", open.address);
    let foreign = open.http.get(url).header("host", "mirror.example.com");
    assert_eq!(
        foreign.send().await.expect("it answers").status().as_u16(),
        403
    );
    assert_eq!(
        closed.ask(Method::GET, &asked).await.status,
        200,
        "from here"
    );
    world.stop().await;
}
