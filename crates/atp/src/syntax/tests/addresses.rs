//! Tests the syntax of NSIDs, record keys, paths and AT-URIs.

use crate::syntax::{
    AtUri, AtUriFault, DidFault, LabelFault, Nsid, NsidFault, PathFault, RecordKey, RecordKeyFault,
    nsid, record_key, split_path, split_path_bytes,
};

#[test]
fn nsids() {
    let widest = format!("com.{}.foo", "o".repeat(63));
    let longest_name = format!("com.example.{}", "o".repeat(63));
    let authority = format!(
        "{}.{}.{}.{}",
        "a".repeat(63),
        "b".repeat(63),
        "c".repeat(63),
        "d".repeat(61)
    );
    let longest = format!("{authority}.{}", "n".repeat(63));
    assert_eq!(longest.len(), 317);
    let legal = "com.example.fooBar com.example.fooBarV2 net.users.bob.ping a.b.c \
        m.xn--masekowski-d0b.pl one.two.three one.two.three.four-and.FiVe one.2.three \
        a-0.b-1.c a0.b1.cc cn.8.lex.stuff test.12345.record a01.thing.record a.0.c \
        xn--fiqs8s.xn--fiqa61au8b7zsevnm8ak20mc4a87e.record.two a0.b1.c3 com.example.f00 \
        onion.expyuzz4wqqyqhjn.spec.getThing org.4chan.lex.getThing app.bsky.feed.post \
        onion.2gzyxa5ihm7nsggfxnu52rck2vv4rvmdlkiu3zzui5du4xyclen53wid.lex.deleteThing";
    let more = [widest.as_str(), &longest_name, &longest];
    for text in legal.split_whitespace().chain(more) {
        let nsid = Nsid::parse(text).unwrap();
        assert_eq!(format!("{}.{}", nsid.authority(), nsid.name()), text);
        assert!(!nsid.name().contains('.'));
    }
    let too_wide = format!("com.{}.foo", "o".repeat(64));
    let too_long_name = format!("com.example.{}", "o".repeat(64));
    let too_long = format!("{longest}n");
    let authority_too_long = format!("{authority}d.n");
    let label = NsidFault::Label;
    let refused = [
        (too_wide.as_str(), label(LabelFault::TooLong)),
        (too_long_name.as_str(), NsidFault::Name),
        (too_long.as_str(), NsidFault::TooLong),
        (authority_too_long.as_str(), NsidFault::TooLong),
        ("", NsidFault::FewParts),
        ("com", NsidFault::FewParts),
        ("example.com", NsidFault::FewParts),
        ("a.", NsidFault::FewParts),
        ("com.example.foo.*", NsidFault::Name),
        ("com.example.foo.blah*", NsidFault::Name),
        ("com.example.foo.*blah", NsidFault::Name),
        ("a-0.b-1.c-3", NsidFault::Name),
        ("a-0.b-1.c-o", NsidFault::Name),
        ("com.example.3", NsidFault::Name),
        ("com.example.fooBar.2", NsidFault::Name),
        ("com.example.", NsidFault::Name),
        ("one.two.three ", NsidFault::Name),
        ("com.atproto.feed.p@st", NsidFault::Name),
        ("com.atproto.feed.p_st", NsidFault::Name),
        ("com.atproto.feed.po#t", NsidFault::Name),
        ("com.atproto.feed.pöst", NsidFault::Name),
        ("1.0.0.127.record", NsidFault::TopLevel),
        ("0two.example.foo", NsidFault::TopLevel),
        (".one.two.three", label(LabelFault::Empty)),
        ("one.two..three", label(LabelFault::Empty)),
        ("com.exa💩ple.thing", label(LabelFault::Character)),
        ("one .two.three", label(LabelFault::Character)),
        (" one.two.three", label(LabelFault::Character)),
        ("com.exam_ple.thing", label(LabelFault::Character)),
        ("com.example-.foo", label(LabelFault::Hyphen)),
        ("-com.example.foo", label(LabelFault::Hyphen)),
    ];
    for (text, fault) in refused {
        let found = nsid::validate(text).err().map(|error| error.fault);
        assert_eq!(found, Some(fault), "{text}");
    }
}

#[test]
fn record_keys() {
    let longest = "o".repeat(512);
    let legal = "self example.com ~1.2-3_ dHJ1ZQ _ literal:self pre:fix : - ~ ... .... self. \
        lang: :lang .a 3jzfcijpj2z2a -- AZaz09";
    for text in legal.split_whitespace().chain([longest.as_str()]) {
        assert_eq!(RecordKey::parse(text).unwrap().as_str(), text);
    }
    let too_long = "o".repeat(513);
    let refused = [
        ("", RecordKeyFault::Empty),
        (too_long.as_str(), RecordKeyFault::TooLong),
        (".", RecordKeyFault::Dots),
        ("..", RecordKeyFault::Dots),
        ("alpha/beta", RecordKeyFault::Character),
        ("#extra", RecordKeyFault::Character),
        ("@handle", RecordKeyFault::Character),
        ("any space", RecordKeyFault::Character),
        ("any+space", RecordKeyFault::Character),
        ("number[3]", RecordKeyFault::Character),
        ("number(3)", RecordKeyFault::Character),
        ("\"quote\"", RecordKeyFault::Character),
        ("dHJ1ZQ==", RecordKeyFault::Character),
        ("%30", RecordKeyFault::Character),
        ("tab\t", RecordKeyFault::Character),
        ("nul\0", RecordKeyFault::Character),
        ("é", RecordKeyFault::Character),
        ("$", RecordKeyFault::Character),
        (",", RecordKeyFault::Character),
        (";", RecordKeyFault::Character),
        ("`", RecordKeyFault::Character),
        ("{", RecordKeyFault::Character),
    ];
    for (text, fault) in refused {
        let found = record_key::validate(text).err().map(|error| error.fault);
        assert_eq!(found, Some(fault), "{text}");
    }
}

#[test]
fn paths_split_at_their_only_slash() {
    let split = split_path("app.bsky.feed.post/3jzfcijpj2z2a");
    assert_eq!(split, Ok(("app.bsky.feed.post", "3jzfcijpj2z2a")));
    assert_eq!(split_path_bytes(b"a.b.c/:"), Ok(("a.b.c", ":")));
    let refused: [(&[u8], PathFault); 11] = [
        (b"", PathFault::Slash),
        (b"app.bsky.feed.post", PathFault::Slash),
        (b"/", PathFault::Collection(NsidFault::FewParts)),
        (
            b"/app.bsky.feed.post/x",
            PathFault::Collection(NsidFault::FewParts),
        ),
        (b"app.bsky/x", PathFault::Collection(NsidFault::FewParts)),
        (b"app.bsky.p_st/x", PathFault::Collection(NsidFault::Name)),
        (
            b"app.bsky.feed.post/",
            PathFault::RecordKey(RecordKeyFault::Empty),
        ),
        (
            b"app.bsky.feed.post/a/b",
            PathFault::RecordKey(RecordKeyFault::Character),
        ),
        (
            b"app.bsky.feed.post//a",
            PathFault::RecordKey(RecordKeyFault::Character),
        ),
        (
            b"app.bsky.feed.post/..",
            PathFault::RecordKey(RecordKeyFault::Dots),
        ),
        (b"app.bsky.feed.post/\xff", PathFault::Text),
    ];
    for (path, fault) in refused {
        let error = split_path_bytes(path).unwrap_err();
        assert_eq!(error.fault, fault, "{error}");
    }
}

#[test]
fn legal_at_uris() {
    let longest_key = format!(
        "at://did:plc:asdf123/com.atproto.feed.post/{}",
        "o".repeat(512)
    );
    // The authority may be a DID that Gapless could not resolve.
    let legal = "at://did:plc:asdf123 at://user.bsky.social at://User.Bsky.Social \
        at://did:plc:asdf123/com.atproto.feed.post at://did:abc:123 \
        at://did:plc:asdf123/com.atproto.feed.post/record \
        at://user.bsky.social/com.atproto.feed.post/record \
        at://did:plc:asdf123/com.atproto.feed.post/a \
        at://did:plc:asdf123/com.atproto.feed.post/asdf-123 \
        at://did:abc:123/io.nsid.someFunc/record-key at://did:abc:123/io.nsid.someFunc/self. \
        at://did:abc:123/io.nsid.someFunc/lang: at://did:abc:123/io.nsid.someFunc/: \
        at://did:abc:123/io.nsid.someFunc/- at://did:abc:123/io.nsid.someFunc/_ \
        at://did:abc:123/io.nsid.someFunc/~ at://did:abc:123/io.nsid.someFunc/... \
        at://did:plc:asdf123/com.atproto.feed.postV2";
    for text in legal.split_whitespace().chain([longest_key.as_str()]) {
        let uri = AtUri::parse(text).unwrap();
        let parts = [Some(uri.authority()), uri.collection(), uri.record_key()];
        let joined: Vec<&str> = parts.into_iter().flatten().collect();
        assert_eq!(format!("at://{}", joined.join("/")), text);
    }
}

#[test]
fn the_parts_of_an_at_uri() {
    let uri = AtUri::parse("at://did:plc:7iza6de2dwap2sbkpav7c6c6/a.b.c/self").unwrap();
    assert_eq!(uri.did().unwrap().as_str(), uri.authority());
    assert_eq!(
        (uri.collection(), uri.record_key()),
        (Some("a.b.c"), Some("self"))
    );
    assert_eq!(uri.handle(), None);
    let uri = AtUri::parse("at://John.Test").unwrap();
    assert_eq!(uri.handle().unwrap().as_str(), "john.test");
    assert_eq!((uri.did(), uri.collection()), (None, None));
    assert_eq!(AtUri::parse("at://did:key:zabc").unwrap().did(), None);
}

#[test]
fn refused_at_uris() {
    let too_long = format!(
        "at://did:plc:asdf123/com.atproto.feed.post/{}",
        "o".repeat(8200)
    );
    let fault = |text: &str| AtUri::validate(text).unwrap_err().fault;
    assert_eq!(fault(&too_long), AtUriFault::TooLong);
    let no_scheme = "a://did:plc:asdf123 at//did:plc:asdf123 at:/a/did:plc:asdf123 \
        at:/did:plc:asdf123 AT://did:plc:asdf123 http://did:plc:asdf123 ://did:plc:asdf123 \
        at:did:plc:asdf123 //did:plc:asdf123 #at://did:plc:asdf123";
    for text in no_scheme.split_whitespace() {
        assert_eq!(fault(text), AtUriFault::Scheme, "{text}");
    }
    assert_eq!(fault(" at://did:plc:asdf123"), AtUriFault::Scheme);
    let bad_did = [
        ("at://did:plc:asdf123 ", DidFault::Identifier),
        ("at://did:plc:asdf123#", DidFault::Identifier),
        ("at://did:plc:asdf123##", DidFault::Identifier),
        ("at://did:plc:asdf123?x", DidFault::Identifier),
        (
            "at://did:plc:asdf@123/com.atproto.feed.post",
            DidFault::Identifier,
        ),
        ("at://did:plc:", DidFault::Identifier),
        ("at://did:plc:a:/a.b.c", DidFault::Ending),
    ];
    for (text, expected) in bad_did {
        assert_eq!(fault(text), AtUriFault::Did(expected), "{text}");
    }
    let bad_handle = "at:///did:plc:asdf123 at://:/did:plc:asdf123 at://name at://name.0 at:// \
        at://diD:plc:asdf123 at://DID:plc:asdf123 at://user.bsky.123 at://bsky at://frag \
        at://user.bsky.social#frag at://user@bsky.social";
    for text in bad_handle.split_whitespace() {
        assert!(matches!(fault(text), AtUriFault::Handle(_)), "{text}");
    }
}

#[test]
fn at_uris_with_refused_paths() {
    let fault = |text: &str| AtUri::validate(text).unwrap_err().fault;
    let bad_collection = [
        "at://did:plc:asdf123/",
        "at://did:plc:asdf123/ ",
        "at://user.bsky.social/",
        "at://user.bsky.social//",
        "at://user.bsky.social//com.atproto.feed.post",
        "at://did:plc:asdf123/short/stuff",
        "at://did:plc:asdf123/12345",
        "at://did:plc:asdf123/com.atproto.feed.post ",
        "at://did:plc:asdf123/com.atproto.feed.post# ",
        "at://did:plc:asdf123/com.atproto.feed.post#/frag",
        "at://did:plc:asdf123/com.atproto.feed.p@st",
        "at://did:plc:asdf123/com.atproto.feed.p$st",
        "at://did:plc:asdf123/com.atproto.feed.p%st",
        "at://did:plc:asdf123/com.atproto.feed.p&st",
        "at://did:plc:asdf123/com.atproto.feed.p()t",
        "at://did:plc:asdf123/com.atproto.feed_post",
        "at://did:plc:asdf123/-com.atproto.feed.post",
    ];
    for text in bad_collection {
        assert!(matches!(fault(text), AtUriFault::Collection(_)), "{text}");
    }
    let bad_keys = [
        "",
        "/",
        "/more",
        "asdf123/more/more",
        "asdf123/asdf",
        "record/",
        "record/#/frag",
        "record#frag",
        "record?query",
        "%23",
        "$@!*)(:,;~.sdf123",
        "~'sdf123\")",
        "$",
        "@",
        "!",
        "*",
        "(",
        ",",
        ";",
        "abc%30123",
        "%30",
        "%3",
        "%",
        "%zz",
        "%%%",
        ".",
        "..",
    ];
    for key in bad_keys {
        let text = format!("at://did:plc:asdf123/com.atproto.feed.post/{key}");
        assert!(matches!(fault(&text), AtUriFault::RecordKey(_)), "{text}");
    }
}
