//! Tests requests to hosts: heads, listings, repositories and states; pauses, and hosts that do
//! not answer.

use super::*;

#[tokio::test]
async fn a_host_tells_its_heads_its_listing_and_its_repositories() {
    let (testnet, net, did, host, _) = settled().await;
    let truth = testnet.truth().head(&did).unwrap();
    match within(net.latest_commit(&host, &did)).await.unwrap() {
        LatestAnswer::Head(named) => {
            assert_eq!((named.rev, named.commit), (truth.rev, truth.commit));
        }
        other => panic!("{other:?}"),
    }
    let status = within(net.repo_status(&host, &did)).await;
    assert_eq!(status, Ok(Account::Active));

    let mut listed = Vec::new();
    for url in &testnet.urls().pds {
        let page = within(net.list_repos(&HostAddress::named(url), None)).await;
        let page = page.unwrap();
        assert_eq!((page.cursor, page.skipped), (None, 0));
        listed.extend(page.repos);
    }
    assert_eq!(listed.len(), testnet.truth().dids().len());
    let ours = listed.iter().find(|repo| repo.did == did).unwrap();
    assert_eq!(
        (ours.rev, ours.commit),
        (Some(truth.rev), Some(truth.commit))
    );
    assert_eq!(ours.account, Account::Active);

    let whole = fetch(&net, &host, &did, FetchLimits::default())
        .await
        .unwrap();
    let blocks = read_blocks(&whole).unwrap();
    assert_eq!(blocks.roots(), [truth.commit]);
    testnet.write(&did, &[]).unwrap();
    let mut new = Vec::new();
    let mut sink = |piece: &[u8]| {
        new.extend_from_slice(piece);
        Ok(())
    };
    let limits = FetchLimits::default();
    let since = net.get_repo(&host, &did, Some(truth.rev), &mut sink, &limits);
    within(since).await.unwrap();
    assert!(!new.is_empty() && new.len() < whole.len());
}

#[tokio::test]
async fn a_host_tells_the_states_of_accounts() {
    let (testnet, net, did, host, _) = settled().await;
    for (status, state) in [
        (Status::Deactivated, Account::Deactivated),
        (Status::Suspended, Account::Suspended),
        (Status::Takendown, Account::Takendown),
        (Status::Deleted, Account::NotFound),
    ] {
        testnet.set_status(&did, status).unwrap();
        let latest = within(net.latest_commit(&host, &did)).await;
        assert_eq!(latest, Ok(LatestAnswer::State(state)));
        assert_eq!(within(net.repo_status(&host, &did)).await, Ok(state));
        let refused = fetch(&net, &host, &did, FetchLimits::default()).await;
        assert_eq!(refused, Err(GetRepoError::State(state)));
    }
}

#[tokio::test]
async fn the_status_decides_and_a_contradiction_settles_nothing() {
    let did = Did::parse("did:plc:7iza6de2dwap2sbkpav7c6c6").unwrap();
    for (status, body, expected) in [
        (
            200,
            r#"{"active":false,"status":"deleted"}"#,
            Some(Account::Deleted),
        ),
        (400, r#"{"error":"RepoNotFound"}"#, Some(Account::NotFound)),
        (200, r#"{"active":true}"#, None),
        (500, "oh", None),
    ] {
        let (url, asked) = serve(move |request| {
            if request.uri().path().ends_with("getRepoStatus") {
                answer(status, body)
            } else {
                answer(400, r#"{"error":"RepoNotFound","message":"x"}"#)
            }
        })
        .await;
        let net = net_of("https://plc.directory", true);
        let latest = within(net.latest_commit(&HostAddress::named(url), &did)).await;
        match (expected, latest) {
            (Some(state), latest) => assert_eq!(latest, Ok(LatestAnswer::State(state))),
            (None, Err(error)) if status == 200 => {
                assert_eq!(error.class, AskClass::Malformed);
                assert!(error.to_string().contains("contradicts"), "{error}");
            }
            (None, latest) => assert_eq!(latest.unwrap_err().class, AskClass::Http(500)),
        }
        assert_eq!(asked.load(Ordering::SeqCst), 2);
    }
}

#[tokio::test]
async fn a_host_that_wants_a_pause_gets_it() {
    let (testnet, net, did, host, place) = settled().await;
    let limited = Fault::HttpError {
        status: 429,
        retry_after: Some(1),
        route: Some("getLatestCommit".to_owned()),
    };
    testnet
        .fault(Spec::new(limited).on(place).times(1))
        .unwrap();
    let error = within(net.latest_commit(&host, &did)).await.unwrap_err();
    assert_eq!(error.class, AskClass::Http(429));
    assert_eq!(error.retry_after, Some(Duration::from_secs(1)));
    let asked = Instant::now();
    within(net.repo_status(&host, &did)).await.unwrap();
    assert!(
        asked.elapsed() > Duration::from_millis(800),
        "it was not left alone"
    );
    assert_eq!(testnet.faults().fired("http-error"), 1);

    // A long pause is not waited for, and the host is not asked.
    let limited = Fault::HttpError {
        status: 503,
        retry_after: Some(600),
        route: None,
    };
    testnet.fault(Spec::new(limited).on(place)).unwrap();
    assert!(within(net.repo_status(&host, &did)).await.is_err());
    let refused = fetch(&net, &host, &did, FetchLimits::default()).await;
    assert_eq!(class(refused.unwrap_err()), AskClass::Http(429));
    let error = within(net.repo_status(&host, &did)).await.unwrap_err();
    assert!(
        error.retry_after > Some(Duration::from_secs(590)),
        "{error:?}"
    );
    assert_eq!(
        testnet.faults().fired("http-error"),
        2,
        "it was asked in its pause"
    );
}

#[tokio::test]
async fn a_host_that_stalls_or_drips_is_given_up() {
    let (testnet, net, did, host, place) = settled().await;
    let short = Duration::from_millis(300);
    let stall = Fault::Stall {
        ms: None,
        route: Some("getRepo".to_owned()),
    };
    let set = testnet.fault(Spec::new(stall).on(place).times(1)).unwrap();
    let limits = FetchLimits {
        first_byte: short,
        ..FetchLimits::default()
    };
    let stalled = fetch(&net, &host, &did, limits).await;
    assert_eq!(class(stalled.unwrap_err()), AskClass::Timeout);
    assert_eq!(testnet.faults().fired("stall"), 1);
    testnet.clear_fault(set.id.unwrap());

    let drip = Fault::Drip {
        bytes_per_second: 200,
        route: Some("getRepo".to_owned()),
    };
    testnet.fault(Spec::new(drip).on(place)).unwrap();
    let limits = FetchLimits {
        window: short,
        ..FetchLimits::default()
    };
    let dripped = fetch(&net, &host, &did, limits).await;
    assert_eq!(class(dripped.unwrap_err()), AskClass::Slow);
    let limits = FetchLimits {
        total: short,
        ..FetchLimits::default()
    };
    let late = fetch(&net, &host, &did, limits).await;
    assert_eq!(class(late.unwrap_err()), AskClass::Timeout);
    // The stalled answer may have trickled too, once it was let go.
    assert!(testnet.faults().fired("drip") >= 2);

    let (silent, _) = serve(|_| {
        let first = stream::iter([Ok::<_, std::io::Error>(Bytes::from_static(b"first"))]);
        answer(200, Body::from_stream(first.chain(stream::pending())))
    })
    .await;
    let limits = FetchLimits {
        stall: short,
        ..FetchLimits::default()
    };
    let silent = fetch(&net, &HostAddress::named(silent), &did, limits).await;
    assert_eq!(class(silent.unwrap_err()), AskClass::Slow);
}
