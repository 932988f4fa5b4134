//! Tests the guarded HTTP client: bounds on answers, rules for addresses, redirects, and
//! WebSockets.

use super::*;

#[tokio::test]
async fn no_answer_is_larger_than_its_bound() {
    let (url, _) = serve(|_| endless()).await;
    let net = net_of("https://plc.directory", true);
    let error = within(net.get(&url, Trust::Named, LIMITS)).await;
    assert_eq!(error.unwrap_err().class, AskClass::TooLarge);
    let host = HostAddress::named(&url);
    let page = within(net.list_repos(&host, None)).await.unwrap_err();
    assert_eq!(page.class, AskClass::TooLarge);

    let did = Did::parse("did:plc:7iza6de2dwap2sbkpav7c6c6").unwrap();
    let limits = FetchLimits {
        bytes: 50_000,
        ..FetchLimits::default()
    };
    let mut taken = 0;
    let mut sink = |piece: &[u8]| {
        taken += piece.len();
        Ok(())
    };
    let fetched = within(net.get_repo(&host, &did, None, &mut sink, &limits)).await;
    assert_eq!(class(fetched.unwrap_err()), AskClass::TooLarge);
    assert!(taken <= 50_000, "{taken} bytes reached the sink");
    // Forever and fast is too long as well.
    let limits = FetchLimits {
        total: Duration::from_millis(200),
        ..FetchLimits::default()
    };
    let mut sink = |_: &[u8]| Ok(());
    let fetched = within(net.get_repo(&host, &did, None, &mut sink, &limits)).await;
    assert_eq!(class(fetched.unwrap_err()), AskClass::Timeout);
    let mut full = |_: &[u8]| Err("the disk is full".to_owned());
    let fetched = within(net.get_repo(&host, &did, None, &mut full, &limits)).await;
    assert_eq!(
        fetched,
        Err(GetRepoError::Sink("the disk is full".to_owned()))
    );
}

#[tokio::test]
async fn strangers_cannot_send_us_into_our_own_network() {
    let (inside, asked) = serve(|_| answer(200, "secret")).await;
    let port = inside.rsplit(':').next().unwrap().to_owned();
    let guarded = net_of("https://plc.directory", false);
    for url in [
        inside.clone(),
        format!("https://localhost:{port}"),
        format!("https://127.0.0.1:{port}"),
        "https://127.0.0.1".to_owned(),
        "https://localhost".to_owned(),
    ] {
        let error = within(guarded.get(&url, Trust::Named, LIMITS)).await;
        assert_eq!(error.unwrap_err().class, AskClass::Refused, "{url}");
        let error = within(guarded.dial(&url, Trust::Named))
            .await
            .err()
            .unwrap();
        assert_eq!(error.class, AskClass::Refused, "{url}");
    }
    let web = Did::parse(&format!("did:web:localhost%3A{port}")).unwrap();
    match within(guarded.resolve(&web, KnownIdentity::default())).await {
        Err(ResolveError::Ask(error)) => assert_eq!(error.class, AskClass::Refused),
        other => panic!("{other:?}"),
    }
    // Not even by way of a host that the operator trusts, be it to another port of it.
    for to in [inside.replace("127.0.0.1", "localhost"), inside.clone()] {
        let (trusted, _) = serve(move |_| redirect(&to)).await;
        let error = within(guarded.get(&trusted, Trust::Configured, LIMITS)).await;
        assert_eq!(error.unwrap_err().class, AskClass::Refused);
        let error = within(guarded.dial(&trusted, Trust::Configured)).await;
        assert_eq!(error.err().unwrap().class, AskClass::Refused);
    }
    assert_eq!(asked.load(Ordering::SeqCst), 0);

    // What the operator configured is reached.
    let answer = within(guarded.get(&inside, Trust::Configured, LIMITS)).await;
    assert_eq!(answer.unwrap().body, "secret");
}

#[tokio::test]
async fn redirects_are_followed_a_few_times() {
    let (url, asked) = serve(|request| match request.uri().path() {
        "/2" => redirect("/1"),
        "/1" => redirect("/0"),
        "/0" => answer(200, "here"),
        _ => redirect("/again"),
    })
    .await;
    let net = net_of("https://plc.directory", true);
    let reached = within(net.get(&format!("{url}/2"), Trust::Named, LIMITS)).await;
    assert_eq!(reached.unwrap().body, "here");
    assert_eq!(asked.swap(0, Ordering::SeqCst), 3);
    let round = within(net.get(&url, Trust::Named, LIMITS)).await;
    assert_eq!(round.unwrap_err().class, AskClass::Refused);
    assert_eq!(asked.swap(0, Ordering::SeqCst), 4);
    // A document must come from its own place.
    let port = url.rsplit(':').next().unwrap();
    let web = Did::parse(&format!("did:web:localhost%3A{port}")).unwrap();
    let resolved = within(net.resolve(&web, KnownIdentity::default())).await;
    assert!(
        matches!(resolved, Err(ResolveError::Ask(..))),
        "{resolved:?}"
    );
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn sockets_open_or_say_why_not() {
    let (testnet, net, did, host, place) = settled().await;
    let url = format!("{}/xrpc/com.atproto.sync.subscribeRepos?cursor=0", host.url);
    let mut socket = within(net.dial(&url, Trust::Named)).await.unwrap();
    let first = within(socket.next()).await.unwrap().unwrap();
    assert!(first.is_binary());

    let refusal = Fault::DialError { status: 503 };
    testnet
        .fault(Spec::new(refusal).on(place).times(1))
        .unwrap();
    let error = within(net.dial(&url, Trust::Named)).await.err().unwrap();
    assert_eq!(
        (error.class, error.status),
        (AskClass::Http(503), Some(503))
    );
    assert!(
        error.to_string().contains("upstream is not available"),
        "{error}"
    );
    assert_eq!(testnet.faults().fired("dial-error"), 1);

    let to = url.clone();
    let (hop, _) = serve(move |_| redirect(&to)).await;
    let mut socket = within(net.dial(&hop, Trust::Named)).await.unwrap();
    assert!(within(socket.next()).await.unwrap().is_ok());
    let (round, asked) = serve(|_| redirect("/")).await;
    let error = within(net.dial(&round, Trust::Named)).await.err().unwrap();
    assert_eq!(error.class, AskClass::Refused);
    assert_eq!(asked.load(Ordering::SeqCst), 4);

    testnet.write(&did, &[]).unwrap();
    let unserved = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let closed = format!("ws://{}", unserved.local_addr().unwrap());
    drop(unserved);
    let error = within(net.dial(&closed, Trust::Named)).await.err().unwrap();
    assert_eq!(error.class, AskClass::Unreachable);
}

#[tokio::test]
async fn hosts_are_told_who_asks() {
    let (url, asked) = serve(|request| {
        let agent = request.headers()["user-agent"].to_str().unwrap();
        answer(404, agent.to_owned())
    })
    .await;
    let net = net_of("https://plc.directory", true);
    let agent = format!(
        "gapless/{} (mailto:ops@example.com)",
        env!("CARGO_PKG_VERSION")
    );
    let got = within(net.get(&url, Trust::Named, LIMITS)).await.unwrap();
    assert_eq!((got.status, got.body), (404, agent.clone().into()));
    let refused = within(net.dial(&url, Trust::Named)).await.err().unwrap();
    assert!(refused.to_string().contains(&agent), "{refused}");
    assert_eq!(asked.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_host_that_many_redirect_to_is_asked_at_its_pace() {
    let (crowded, asked) = serve(|_| answer(200, "here")).await;
    let mut hops = Vec::new();
    for _ in 0..4 {
        let to = crowded.clone();
        hops.push(serve(move |_| redirect(&to)).await.0);
    }
    let settings = NetSettings {
        allow_private: true,
        contact: None,
        authorities: Vec::new(),
        plc: "https://plc.directory".to_owned(),
        plc_requests_per_second: 100.0,
    };
    let limits = HostLimits {
        concurrency: 4,
        requests_per_second: 10.0,
        burst: 1,
    };
    let net = Net::with_limits(settings, limits).unwrap();
    let began = Instant::now();
    for hop in &hops {
        within(net.get(hop, Trust::Named, LIMITS)).await.unwrap();
    }
    assert_eq!(asked.load(Ordering::SeqCst), 4);
    assert!(
        began.elapsed() >= Duration::from_millis(300),
        "three waited"
    );
}
