//! Tests the directory client: documents and their versions, and directories that are down,
//! rate-limited or behind.

use super::*;

#[tokio::test]
async fn documents_have_versions() {
    let (testnet, net, did, _, _) = settled().await;
    let first = within(net.resolve(&did, KnownIdentity::default()))
        .await
        .unwrap();
    assert_eq!((first.version, first.tombstoned), (1, false));
    let handle = first
        .handle
        .as_ref()
        .map(|handle| handle.as_str().to_owned());
    assert_eq!(handle, testnet.truth().handle(&did));
    let key = public_key(&first.key.unwrap()).unwrap();
    assert_eq!(Some(vec![key.to_did_key()]), testnet.truth().keys(&did));
    let again = within(net.resolve(&did, known(&first))).await.unwrap();
    assert_eq!(again, first);

    testnet.rotate_key(&did, true).unwrap();
    let rotated = within(net.resolve(&did, known(&first))).await.unwrap();
    assert!(rotated.version > 1_600_000_000_000_000, "{rotated:?}");
    assert_eq!(rotated.host, first.host);
    assert_ne!(rotated.key, first.key);

    let from = testnet.urls().pds.iter();
    let from = from
        .clone()
        .position(|url| Some(url) == first.host.as_ref());
    let to = 1 - from.unwrap();
    testnet.migrate(&did, to, false).unwrap();
    let moved = within(net.resolve(&did, known(&rotated))).await.unwrap();
    assert!(moved.version > rotated.version);
    assert_eq!(moved.host.as_ref(), Some(&testnet.urls().pds[to]));

    let keys = within(net.former_keys(&did)).await.unwrap();
    let mut keys: Vec<String> = keys.iter().map(PublicKey::to_did_key).collect();
    keys.reverse();
    assert_eq!(Some(keys), testnet.truth().keys(&did));

    testnet.tombstone(&did).unwrap();
    let gone = within(net.resolve(&did, known(&moved))).await.unwrap();
    assert_eq!((gone.tombstoned, gone.version), (true, moved.version));
    assert_eq!((gone.host, gone.key), (None, None));
}

#[tokio::test]
async fn a_directory_that_is_behind_moves_nothing() {
    let (testnet, net, did, _, _) = settled().await;
    let first = within(net.resolve(&did, KnownIdentity::default()))
        .await
        .unwrap();
    let stale = testnet.fault(Spec::new(Fault::PlcStale { seq: None }).on(Place::Plc));
    let stale = stale.unwrap().id.unwrap();
    testnet.rotate_key(&did, true).unwrap();
    // Who saw the new document first knows it as version 1.
    let keys = testnet.truth().keys(&did).unwrap();
    let newest = PublicKey::from_did_key(keys.last().unwrap()).unwrap();
    let ahead = KnownIdentity {
        key: Some(key_bytes(&newest)),
        ..known(&first)
    };
    let behind = within(net.resolve(&did, ahead.clone())).await;
    assert_eq!(behind, Err(ResolveError::Stale));
    assert_eq!(testnet.faults().fired("plc-stale"), 2);
    testnet.clear_fault(stale);
    let settled = within(net.resolve(&did, ahead)).await.unwrap();
    assert_eq!(settled.version, 1);

    // Who knows its moment gets an older one, which moves nothing either.
    let rotated = within(net.resolve(&did, known(&first))).await.unwrap();
    let stale = Fault::PlcStale { seq: None };
    testnet.fault(Spec::new(stale).on(Place::Plc)).unwrap();
    testnet.rotate_key(&did, true).unwrap();
    let ahead = KnownIdentity {
        version: u64::MAX,
        host: first.host.clone(),
        key: None,
    };
    let old = within(net.resolve(&did, ahead)).await.unwrap();
    assert_eq!((old.version, old.key), (rotated.version, rotated.key));
}

#[tokio::test]
async fn a_document_that_is_ahead_of_its_log_is_unsettled() {
    let (testnet, net, did, _, _) = settled().await;
    let first = within(net.resolve(&did, KnownIdentity::default()))
        .await
        .unwrap();
    testnet.rotate_key(&did, true).unwrap();
    // The document is answered from before, the log from after.
    let behind = Fault::PlcStale { seq: None };
    let _ = testnet.fault(Spec::new(behind).on(Place::Plc).times(1));
    testnet.rotate_key(&did, true).unwrap();
    let resolved = within(net.resolve(&did, known(&first))).await;
    assert_eq!(resolved, Err(ResolveError::Unsettled));
    assert_eq!(testnet.faults().fired("plc-stale"), 1);
}

#[tokio::test]
async fn a_directory_that_is_down_limited_or_ignorant() {
    let (testnet, net, did, _, _) = settled().await;
    let down = Spec::new(Fault::PlcDown {}).times(1);
    testnet.fault(down).unwrap();
    match within(net.resolve(&did, KnownIdentity::default())).await {
        Err(ResolveError::Ask(error)) => assert_eq!(error.class, AskClass::Http(503)),
        other => panic!("{other:?}"),
    }
    let unknown = Did::parse("did:plc:aaaaaaaaaaaaaaaaaaaaaaaa").unwrap();
    let resolved = within(net.resolve(&unknown, KnownIdentity::default())).await;
    assert_eq!(resolved, Err(ResolveError::NotFound));

    let limited = Fault::Plc429 {
        retry_after: Some(900),
    };
    testnet.fault(Spec::new(limited)).unwrap();
    for _ in 0..2 {
        let error = within(net.resolve(&did, KnownIdentity::default())).await;
        let wait = error.unwrap_err().retry_after().unwrap();
        assert!(wait > Duration::from_secs(890), "{wait:?}");
    }
    let faults = testnet.faults();
    assert_eq!((faults.fired("plc-down"), faults.fired("plc-429")), (1, 1));
}

#[tokio::test]
async fn a_did_web_counts_its_documents() {
    let testnet = network().await;
    let net = net_of(&testnet.urls().plc, true);
    let (did, first) = account(&testnet, &net, DidMethod::Web).await;
    assert_eq!(first.version, 1);
    let latest = within(net.latest_commit(&home(&first), &did)).await;
    assert!(matches!(latest, Ok(LatestAnswer::Head(_))), "{latest:?}");
    testnet.rotate_key(&did, true).unwrap();
    let second = within(net.resolve(&did, known(&first))).await.unwrap();
    assert_eq!(second.version, 2);
    assert_ne!(second.key, first.key);
    let third = within(net.resolve(&did, known(&second))).await.unwrap();
    assert_eq!(third.version, 2);
    assert_eq!(within(net.former_keys(&did)).await, Ok(Vec::new()));
}
