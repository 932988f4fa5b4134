//! Tests how answers of hosts are interpreted: errors, account states, pages and addresses.

use serde_json::json;

use super::*;

const HOST: &str = "https://pds.example.com";
const DID: &str = "did:plc:7iza6de2dwap2sbkpav7c6c6";
const REV: &str = "3jzfcijpj2z2a";
const CID: &str = "bafyreigp6shzy6dlcxuowwoxz7u5nemdrkad2my5zwzpwilcnhih7bw6zm";

fn did() -> Did {
    Did::parse(DID).unwrap()
}

fn answered(status: u16, body: &str) -> Failure {
    let answer = Response {
        status,
        retry_after: Some(Duration::from_secs(3)),
        body: body.as_bytes().to_vec().into(),
    };
    refusal("pds.example.com", "getRepo", &answer)
}

#[test]
fn errors_that_name_a_state() {
    for (status, error, message, state) in [
        (400, "RepoTakendown", "", Account::Takendown),
        (400, "RepoSuspended", "", Account::Suspended),
        (403, "RepoDeactivated", "", Account::Deactivated),
        (404, "RepoDeleted", "", Account::Deleted),
        (400, "RepoNotFound", "x", Account::NotFound),
        (404, "NotFound", "Repo not found", Account::NotFound),
        (
            404,
            "NotFound",
            "repository not found: x",
            Account::NotFound,
        ),
        (
            400,
            "InvalidRequest",
            "Could not find repo for DID: x",
            Account::NotFound,
        ),
    ] {
        let body = json!({"error": error, "message": message}).to_string();
        match answered(status, &body) {
            Failure::State(told) => assert_eq!(told, state, "{error}"),
            Failure::Ask(ask) => panic!("{error}: {ask}"),
        }
    }
}

#[test]
fn errors_that_name_none() {
    for (status, body) in [
        (
            400,
            r#"{"error":"InvalidRequest","message":"did must be a did"}"#,
        ),
        (404, r#"{"error":"NotFound","message":"no such page"}"#),
        (404, "<html>404</html>"),
        (404, r#"{"error":5}"#),
        (500, r#"{"error":"RepoNotFound","message":"x"}"#),
        (429, r#"{"error":"RepoDeleted"}"#),
        (401, ""),
    ] {
        match answered(status, body) {
            Failure::Ask(error) => {
                assert_eq!(error.class, AskClass::Http(status));
                assert_eq!(error.retry_after, Some(Duration::from_secs(3)));
                assert!(error.to_string().contains("pds.example.com"), "{error}");
            }
            Failure::State(state) => panic!("{status} {body}: {state:?}"),
        }
    }
}

#[test]
fn status_words() {
    let told = |active: bool, status: Option<&str>| {
        let body = json!({"did": DID, "active": active, "status": status}).to_string();
        read_status(HOST, &did(), body.as_bytes())
    };
    assert_eq!(told(true, None), Ok(Account::Active));
    assert_eq!(told(true, Some("throttled")), Ok(Account::Active));
    for (word, state) in [
        (Some("deactivated"), Account::Deactivated),
        (Some("suspended"), Account::Suspended),
        (Some("takendown"), Account::Takendown),
        (Some("deleted"), Account::Deleted),
        (Some("of the future"), Account::Deactivated),
        (None, Account::Deactivated),
    ] {
        assert_eq!(told(false, word), Ok(state), "{word:?}");
    }
    for word in ["throttled", "desynchronized"] {
        let error = told(false, Some(word)).unwrap_err();
        assert_eq!(error.class, AskClass::Malformed);
        assert!(error.to_string().contains(word), "{error}");
    }
    let other = json!({"did": "did:web:other.com", "active": false}).to_string();
    assert!(read_status(HOST, &did(), other.as_bytes()).is_err());
    for broken in ["{}", "[]", "", r#"{"active":"no"}"#] {
        let error = read_status(HOST, &did(), broken.as_bytes()).unwrap_err();
        assert_eq!(error.class, AskClass::Malformed, "{broken}");
    }
}

#[test]
fn heads() {
    let head = |cid: &str, rev: &str| {
        let body = json!({"cid": cid, "rev": rev}).to_string();
        read_latest(HOST, &did(), body.as_bytes())
    };
    let named = head(CID, REV).unwrap();
    assert_eq!(named.rev.to_string(), REV);
    assert_eq!(named.commit.to_string(), CID);
    for (cid, rev) in [(CID, ""), ("", REV), (CID, CID), (REV, REV)] {
        assert_eq!(head(cid, rev).unwrap_err().class, AskClass::Malformed);
    }
}

#[test]
fn a_page_keeps_what_can_be_followed_and_counts_the_rest() {
    let body = json!({
        "cursor": "next",
        "repos": [
            {"did": DID, "head": CID, "rev": REV, "active": true},
            {"did": DID, "head": CID, "rev": REV},
            {"did": DID, "head": "?", "rev": "", "active": false, "status": "takendown"},
            {"did": DID, "head": CID, "rev": REV, "active": false, "status": "throttled"},
            {"did": "did:key:z6Mk", "head": CID, "rev": REV},
            {"did": 5},
            "x",
        ],
    });
    let body = body.to_string();
    let page = read_page(HOST, Some("before"), body.as_bytes()).unwrap();
    let told: Vec<(bool, bool, Account)> = page
        .repos
        .iter()
        .map(|repo| (repo.rev.is_some(), repo.commit.is_some(), repo.account))
        .collect();
    assert_eq!(
        told,
        [
            (true, true, Account::Active),
            (true, true, Account::Active),
            (false, false, Account::Takendown),
            (true, true, Account::Unknown),
        ]
    );
    assert_eq!((page.skipped, page.bytes), (3, body.len() as u64));
    assert_eq!(page.cursor.as_deref(), Some("next"));
}

#[test]
fn a_page_is_bounded_by_its_entries_and_keeps_nothing_that_is_not_asked_for() {
    let most = MOST_PAGE_ENTRIES as usize;
    let page = |entry: &str, entries: usize| {
        let entries = vec![entry; entries].join(",");
        read_page(HOST, None, format!("{{\"repos\":[{entries}]}}").as_bytes())
    };
    // As many as 4 MB have room for.
    for entry in [r#"{"":0}"#, "0", "[]"] {
        let error = page(entry, PAGE.bytes as usize / (entry.len() + 1)).unwrap_err();
        assert_eq!(error.class, AskClass::Malformed);
        assert!(
            error.to_string().contains("more than 10000 entries"),
            "{error}"
        );
    }
    let good = json!({"did": DID, "rev": REV, "more": [[{"did": "x"}]]}).to_string();
    assert!(page(&good, most + 1).is_err());
    let whole = page(&good, most).unwrap();
    assert_eq!((whole.repos.len(), whole.skipped), (most, 0));
    assert_eq!(page("{}", most).unwrap().skipped, MOST_PAGE_ENTRIES);
    let kept = ENTRY.read(good.as_bytes()).unwrap();
    assert_eq!(kept, json!({"did": DID, "rev": REV}));
}

#[test]
fn a_listing_ends() {
    let page = |asked: Option<&str>, cursor: Json| {
        let body = json!({"repos": [], "cursor": cursor}).to_string();
        read_page(HOST, asked, body.as_bytes())
    };
    for end in [Json::Null, json!("")] {
        assert_eq!(page(Some("a"), end).unwrap().cursor, None);
    }
    assert_eq!(
        read_page(HOST, None, b"{\"repos\":[]}").unwrap().cursor,
        None
    );
    let again = page(Some("a"), json!("a")).unwrap_err();
    assert!(again.to_string().contains("does not end"), "{again}");
    assert!(page(None, json!("x".repeat(CURSOR_BYTES + 1))).is_err());
    assert!(read_page(HOST, None, b"{\"repos\":{}}").is_err());
}

#[test]
fn queries_are_encoded_and_addresses_are_bare() {
    let net = Net::new(crate::NetSettings {
        plc_requests_per_second: 100.0,
        allow_private: false,
        contact: None,
        authorities: Vec::new(),
        plc: "https://plc.example.com/".to_owned(),
    });
    let net = net.unwrap();
    let url = |host: HostAddress| net.method_url(&host, "listRepos", &[("cursor", "a&b=c d%+é")]);
    let made = url(HostAddress::named(HOST)).unwrap();
    assert_eq!(
        made.as_str(),
        "https://pds.example.com/xrpc/com.atproto.sync.listRepos?cursor=a%26b%3Dc+d%25%2B%C3%A9"
    );
    for refused in [
        "https://pds.example.com/path",
        "https://pds.example.com/?x",
        "https://pds.example.com/#x",
        "https://u@pds.example.com",
        "http://pds.example.com",
        "https://localhost:1234",
        "pds.example.com",
        "",
    ] {
        let error = url(HostAddress::named(refused)).unwrap_err();
        assert_eq!(error.class, AskClass::Refused, "{refused}");
    }
    assert!(url(HostAddress::configured("http://localhost:1234")).is_ok());
}
