//! Tests the syntax of DIDs, handles and account identifiers.

use crate::syntax::{
    AtIdentifier, AtIdentifierError, Did, DidFault, DidMethod, Handle, HandleFault, LabelFault,
    did, handle,
};

const PLC: &str = "did:plc:7iza6de2dwap2sbkpav7c6c6";

fn did_fault(text: &str) -> Option<DidFault> {
    did::validate(text).err().map(|error| error.fault)
}

fn syntax_fault(text: &str) -> Option<DidFault> {
    did::validate_syntax(text).err().map(|error| error.fault)
}

#[test]
fn the_general_form_of_dids() {
    let longest = format!("did:method:{}", "v".repeat(2048 - 11));
    let legal = [
        "did:method:val",
        "did:method:VAL",
        "did:method:val123",
        "did:method:123",
        "did:method:val-two",
        "did:method:val_two",
        "did:method:val.two",
        "did:method:val:two",
        "did:method:val%BB",
        "did:m:v",
        "did:method::::val",
        "did:method:-",
        "did:method:-:_:.:%ab",
        "did:method:.",
        "did:method:_",
        "did:method::.",
        "did:onion:2gzyxa5ihm7nsggfxnu52rck2vv4rvmdlkiu3zzui5du4xyclen53wid",
        "did:example:123456789abcdefghi",
        "did:web:localhost%3A1234",
        "did:key:zQ3shZc2QzApp2oymGvQbzP8eKheVshBHbU4ZYjeXqwSKEn6N",
        "did:ethr:0xb9c5714089478a327f09197987f16f9e5d936e8a",
        PLC,
        &longest,
    ];
    for text in legal {
        assert_eq!(syntax_fault(text), None, "{text}");
    }
    let too_long = format!("{longest}v");
    let refused = [
        ("", DidFault::Prefix),
        ("did", DidFault::Prefix),
        ("didmethodval", DidFault::Prefix),
        ("method:did:val", DidFault::Prefix),
        (":did:method:val", DidFault::Prefix),
        ("did.method.val", DidFault::Prefix),
        ("DID:method:val", DidFault::Prefix),
        ("didmethod:val", DidFault::Prefix),
        (" did:method:val", DidFault::Prefix),
        (too_long.as_str(), DidFault::TooLong),
        ("did:", DidFault::Method),
        ("did::val", DidFault::Method),
        ("did:methodval)", DidFault::Method),
        ("did:METHOD:val", DidFault::Method),
        ("did:m123:val", DidFault::Method),
        ("did:méthode:val", DidFault::Method),
        ("did:method:", DidFault::Identifier),
        ("did:method:val/two", DidFault::Identifier),
        ("did:method:val?two", DidFault::Identifier),
        ("did:method:val#two", DidFault::Identifier),
        ("did:method:val ", DidFault::Identifier),
        ("did:method:val\n", DidFault::Identifier),
        ("did:method:vål", DidFault::Identifier),
        ("did:method:val:", DidFault::Ending),
        ("did:method:val%", DidFault::Ending),
    ];
    for (text, fault) in refused {
        assert_eq!(syntax_fault(text), Some(fault), "{text}");
        assert!(Did::parse(text).is_err(), "{text}");
    }
}

#[test]
fn supported_dids() {
    let web_labels = format!("did:web:{}.com", ["abcdefghi"; 24].join("."));
    let legal = [
        (PLC, DidMethod::Plc),
        ("did:plc:z72i7hdynmk6r22z27h6tvur", DidMethod::Plc),
        ("did:plc:aaaaaaaaaaaaaaaaaaaaaaaa", DidMethod::Plc),
        ("did:plc:234567234567234567234567", DidMethod::Plc),
        ("did:web:example.com", DidMethod::Web),
        ("did:web:a.b.c.example.com", DidMethod::Web),
        ("did:web:xn--bcher-kva.tld", DidMethod::Web),
        ("did:web:4chan.org", DidMethod::Web),
        ("did:web:localhost", DidMethod::Web),
        ("did:web:localhost%3A1", DidMethod::Web),
        ("did:web:localhost%3A65535", DidMethod::Web),
        (&web_labels, DidMethod::Web),
    ];
    for (text, method) in legal {
        let did = Did::parse(text).unwrap();
        assert_eq!((did.method(), did.as_str()), (method, text));
        assert_eq!(did::validate(text), Ok(method));
    }
    let long_host = format!("did:web:{}.com", ["abcdefghi"; 26].join("."));
    let refused = [
        ("did:key:zQ3shZc2QzApp2", DidFault::Unsupported),
        ("did:webs:example.com", DidFault::Unsupported),
        ("did:plcx:7iza6de2dwap2sbkpav7c6c6", DidFault::Unsupported),
        ("did:plc:", DidFault::Plc),
        ("did:plc:asdf123", DidFault::Plc),
        ("did:plc:7iza6de2dwap2sbkpav7c6c", DidFault::Plc),
        ("did:plc:7iza6de2dwap2sbkpav7c6c66", DidFault::Plc),
        ("did:plc:7iza6de2dwap2sbkpav7c6c0", DidFault::Plc),
        ("did:plc:7iza6de2dwap2sbkpav7c6c1", DidFault::Plc),
        ("did:plc:7iza6de2dwap2sbkpav7c6c8", DidFault::Plc),
        ("did:plc:7iza6de2dwap2sbkpav7c6c9", DidFault::Plc),
        ("did:plc:7IZA6DE2DWAP2SBKPAV7C6C6", DidFault::Plc),
        ("did:plc:7iza6de2dwap2sbkpav7c6c/", DidFault::Plc),
        ("did:plc:7iza6de2dwap2sbkpav7c6é", DidFault::Plc),
        ("did:web:com", DidFault::WebHost),
        ("did:web:Example.com", DidFault::WebHost),
        ("did:web:example.com:path", DidFault::WebHost),
        ("did:web:example.com%2Fpath", DidFault::WebHost),
        ("did:web:example.com%3a443", DidFault::WebHost),
        ("did:web:127.0.0.1", DidFault::WebHost),
        (long_host.as_str(), DidFault::WebHost),
        ("did:web:example.com%3A443", DidFault::WebPort),
        ("did:web:localhost%3A", DidFault::WebPort),
        ("did:web:localhost%3A0", DidFault::WebPort),
        ("did:web:localhost%3A080", DidFault::WebPort),
        ("did:web:localhost%3A65536", DidFault::WebPort),
        ("did:web:localhost%3A80%3A80", DidFault::WebPort),
        ("did:web:localhost%3A80:u", DidFault::WebPort),
        (
            "did:web:exa_mple.com",
            DidFault::WebLabel(LabelFault::Character),
        ),
        ("did:web:-a.com", DidFault::WebLabel(LabelFault::Hyphen)),
        ("did:web:a..com", DidFault::WebLabel(LabelFault::Empty)),
        ("did:web:a.com.", DidFault::WebLabel(LabelFault::Empty)),
    ];
    for (text, fault) in refused {
        assert_eq!(did_fault(text), Some(fault), "{text}");
    }
}

#[test]
fn a_did_web_names_its_host() {
    let host = |text: &str| Did::parse(text).unwrap().web_host();
    assert_eq!(host("did:web:example.com"), Some("example.com".into()));
    let local = host("did:web:localhost%3A1234");
    assert_eq!(local, Some("localhost:1234".into()));
    assert_eq!(host(PLC), None);
}

#[test]
fn an_error_says_what_was_wrong_and_quotes_it() {
    let error = Did::parse("did:plc:Short").unwrap_err().to_string();
    assert!(error.starts_with("\"did:plc:Short\" is not"), "{error}");
    assert!(error.contains("24 characters"), "{error}");
    let long = Did::parse(&"x".repeat(10_000)).unwrap_err().to_string();
    assert!(long.len() < 150 && long.contains('…'), "{long}");
}

#[test]
fn handles() {
    let longest = format!(
        "shoooort{}.test",
        ".loooooooooooooooooooooooooong".repeat(8)
    );
    let full = format!(
        "{}.{}.{}.{}",
        "a".repeat(63),
        "b".repeat(63),
        "c".repeat(63),
        "d".repeat(61)
    );
    assert_eq!(full.len(), 253);
    let widest = format!("short.{}.test", "o".repeat(63));
    let legal = "A.ISI.EDU XX.LCS.MIT.EDU SRI-NIC.ARPA john.test a234567890123456789.test \
        john2.test john-john.test john.bsky.app jo.hn a.co a.org joh.n j0.h0 john.t \
        jaymome-johnber123456.test jay.mome-johnber123456.test john.test.bsky.app \
        laptop.local laptop.arpa xn--ls8h.test xn--bcher-kva.tld xn--3jk.com \
        expyuzz4wqqyqhjn.onion friend.expyuzz4wqqyqhjn.onion 12345.test 8.cn 4chan.org \
        4chan.o-g blah.4chan.org thing.a01 120.0.0.1.com 0john.test 9sta--ck.com \
        99stack.com 0ohn.test john.t--t thing.0aa.thing sta-ck.com sta---ck.com \
        sta--ck9.com google.co.in xn--fiqa61au8b7zsevnm8ak20mc4a87e.xn--fiqs8s \
        xn--stackoverflow.com stackoverflow.xn--com";
    let more = [longest.as_str(), &full, &widest];
    for text in legal.split_whitespace().chain(more) {
        let handle = Handle::parse(text).unwrap();
        assert_eq!(handle.as_str(), text.to_lowercase());
    }
    let too_wide = format!("short.{}.test", "o".repeat(64));
    let too_long = format!("a{full}");
    let label = HandleFault::Label;
    let refused = [
        (too_long.as_str(), HandleFault::TooLong),
        (too_wide.as_str(), label(LabelFault::TooLong)),
        ("", label(LabelFault::Empty)),
        (".", label(LabelFault::Empty)),
        ("john..test", label(LabelFault::Empty)),
        (".john.test", label(LabelFault::Empty)),
        ("john.test.", label(LabelFault::Empty)),
        ("john.", label(LabelFault::Empty)),
        (".john", label(LabelFault::Empty)),
        ("john-.test", label(LabelFault::Hyphen)),
        ("john.-", label(LabelFault::Hyphen)),
        ("john.-est", label(LabelFault::Hyphen)),
        ("john.tes-", label(LabelFault::Hyphen)),
        ("xn--bcher-.tld", label(LabelFault::Hyphen)),
        ("-john.test", label(LabelFault::Hyphen)),
        ("-notvalid.at-all", label(LabelFault::Hyphen)),
        ("jo_hn.test", label(LabelFault::Character)),
        ("jo!hn.test", label(LabelFault::Character)),
        ("jo%hn.test", label(LabelFault::Character)),
        ("jo&hn.test", label(LabelFault::Character)),
        ("jo@hn.test", label(LabelFault::Character)),
        ("jo*hn.test", label(LabelFault::Character)),
        ("jo|hn.test", label(LabelFault::Character)),
        ("jo:hn.test", label(LabelFault::Character)),
        ("jo/hn.test", label(LabelFault::Character)),
        ("john💩.test", label(LabelFault::Character)),
        ("bücher.test", label(LabelFault::Character)),
        ("john .test", label(LabelFault::Character)),
        (" john.test", label(LabelFault::Character)),
        ("john.test ", label(LabelFault::Character)),
        ("john.test\n", label(LabelFault::Character)),
        ("did:thing.test", label(LabelFault::Character)),
        ("fe80::7325:8a97:c100:94b", label(LabelFault::Character)),
        ("www.masełkowski.pl.com", label(LabelFault::Character)),
        ("john", HandleFault::OneLabel),
        ("org", HandleFault::OneLabel),
        ("io", HandleFault::OneLabel),
        ("john.0", HandleFault::TopLevel),
        ("cn.8", HandleFault::TopLevel),
        ("thing.0aa", HandleFault::TopLevel),
        ("127.0.0.1", HandleFault::TopLevel),
        ("192.168.0.142", HandleFault::TopLevel),
    ];
    for (text, fault) in refused {
        let found = handle::validate(text).err().map(|error| error.fault);
        assert_eq!(found, Some(fault), "{text}");
    }
}

#[test]
fn identifiers_of_accounts() {
    for text in [PLC, "did:web:example.com", "john.test", "xx.lcs.mit.edu"] {
        let identifier = AtIdentifier::parse(text).unwrap();
        assert_eq!(identifier.to_string(), text);
        let is_did = matches!(identifier, AtIdentifier::Did(_));
        assert_eq!(is_did, text.starts_with("did:"));
    }
    assert_eq!(
        AtIdentifier::parse("JOHN.Test").unwrap().as_str(),
        "john.test"
    );
    for text in ["did:thing.test", "did:", "did:method:val", "did:plc:short"] {
        let error = AtIdentifier::parse(text).unwrap_err();
        assert!(matches!(error, AtIdentifierError::Did(_)), "{text}");
    }
    for text in [
        "",
        "did",
        "DID:plc:x",
        "john..test",
        "@handle",
        "a@example.com",
        "blah",
    ] {
        let error = AtIdentifier::parse(text).unwrap_err();
        assert!(matches!(error, AtIdentifierError::Handle(_)), "{text}");
    }
}
