//! Tests both readers of CAR files on whole files, on files in pieces, on files cut anywhere,
//! and on hostile files.
//!
//! The two readers must agree on every file: on its blocks, and on what is wrong with it.

mod common;

use common::{car, record};
use gapless_atp::car::{CarError, CarStream, read_blocks, write_block, write_header};
use gapless_atp::cbor::{CborError, Writer};
use gapless_atp::cid::{CID_LEN, Cid, CidError};
use gapless_atp::limits;
use proptest::prelude::*;

type Block = (Cid, Vec<u8>);

/// What a file holds: its roots, the blocks before anything went wrong, and
/// what went wrong.
#[derive(Debug, PartialEq)]
struct Outcome {
    roots: Option<Vec<Cid>>,
    blocks: Vec<Block>,
    error: Option<CarError>,
}

fn by_slice(bytes: &[u8]) -> Outcome {
    let mut outcome = Outcome {
        roots: None,
        blocks: Vec::new(),
        error: None,
    };
    let blocks = match read_blocks(bytes) {
        Ok(blocks) => blocks,
        Err(error) => {
            outcome.error = Some(error);
            return outcome;
        }
    };
    outcome.roots = Some(blocks.roots().to_vec());
    for block in blocks {
        match block {
            Ok((cid, data)) => outcome.blocks.push((cid, data.to_vec())),
            Err(error) => outcome.error = Some(error),
        }
    }
    outcome
}

/// Reads a file in pieces, and the most that was ever held back.
fn by_stream(bytes: &[u8], piece: usize) -> (Outcome, usize) {
    let mut stream = CarStream::new();
    let mut outcome = Outcome {
        roots: None,
        blocks: Vec::new(),
        error: None,
    };
    let mut most = 0;
    for part in bytes.chunks(piece) {
        stream.feed(part);
        let error = loop {
            most = most.max(stream.buffered());
            match stream.next_block() {
                Ok(Some((cid, data))) => outcome.blocks.push((cid, data.to_vec())),
                Ok(None) => break None,
                Err(error) => break Some(error),
            }
        };
        if error.is_some() {
            outcome.error = error;
            break;
        }
    }
    outcome.roots = stream.roots().map(<[Cid]>::to_vec);
    if outcome.error.is_none() {
        let finished = stream.finish();
        outcome.error = finished.clone().err();
        assert_eq!(
            finished.unwrap_or(outcome.blocks.len()),
            outcome.blocks.len()
        );
    }
    (outcome, most)
}

fn blocks(count: u64) -> Vec<Block> {
    let records = (0..count).map(record);
    records
        .map(|block| (Cid::dag_cbor(&block), block))
        .collect()
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
    out
}

/// A file whose header is these bytes.
fn with_header(header: &[u8]) -> Vec<u8> {
    let mut file = varint(header.len() as u64);
    file.extend_from_slice(header);
    file
}

/// A good header, then these bytes.
fn with_section(section: &[u8]) -> Vec<u8> {
    let mut file = Vec::new();
    write_header(&mut file, &[Cid::dag_cbor(b"root")]);
    file.extend_from_slice(section);
    file
}

/// Both readers must say `error`, the stream in pieces of several sizes.
fn assert_refused(file: &[u8], error: &CarError) {
    assert_eq!(by_slice(file).error.as_ref(), Some(error));
    for piece in [1, 7, 4096] {
        let (found, _) = by_stream(file, piece);
        assert_eq!(found.error.as_ref(), Some(error), "in pieces of {piece}");
    }
}

#[test]
fn a_file_is_read_as_it_was_written() {
    let blocks = blocks(20);
    let root = blocks[3].0;
    let file = car(root, &blocks);
    let outcome = by_slice(&file);
    assert_eq!(outcome.roots, Some(vec![root]));
    assert_eq!(outcome.blocks, blocks);
    assert_eq!(outcome.error, None);
    let map = read_blocks(&file).and_then(|blocks| blocks.into_map());
    let map = map.expect("a whole file");
    assert_eq!((map.len(), map.is_empty()), (20, false));
    for (cid, data) in &blocks {
        assert_eq!(map.get(cid), Some(data.as_slice()));
    }
    assert_eq!(map.get(&Cid::dag_cbor(b"not there")), None);
    // The same digest under another codec is another block.
    assert_eq!(map.get(&Cid::raw(&blocks[0].1)), None);
}

#[test]
fn roots_are_none_to_sixteen() {
    for count in [0, 1, limits::CAR_ROOTS] {
        let roots: Vec<Cid> = (0..count).map(|n| Cid::raw(&[n as u8])).collect();
        let mut file = Vec::new();
        write_header(&mut file, &roots);
        let outcome = by_slice(&file);
        assert_eq!((outcome.roots, outcome.error), (Some(roots), None));
        assert_eq!(by_stream(&file, 5).0, by_slice(&file));
    }
    let roots = vec![Cid::raw(b""); limits::CAR_ROOTS + 1];
    let mut file = Vec::new();
    write_header(&mut file, &roots);
    assert_refused(&file, &CarError::Roots(limits::CAR_ROOTS + 1));
}

#[test]
fn repeated_empty_and_raw_blocks_are_legal() {
    let empty = (Cid::raw(b""), Vec::new());
    let one = blocks(1).remove(0);
    let twin = (Cid::raw(&one.1), one.1.clone());
    let all = vec![
        empty.clone(),
        one.clone(),
        one.clone(),
        twin.clone(),
        empty.clone(),
    ];
    let file = car(one.0, &all);
    assert_eq!(by_slice(&file).blocks, all);
    assert_eq!(by_stream(&file, 3).0, by_slice(&file));
    let map = read_blocks(&file).and_then(|blocks| blocks.into_map());
    let map = map.expect("a whole file");
    assert_eq!(map.len(), 3);
    for (cid, data) in [&empty, &one, &twin] {
        assert_eq!(map.get(cid), Some(data.as_slice()));
    }
}

#[test]
fn many_small_blocks_are_all_found() {
    // Far more of them than a table sized by the file's bytes expects.
    let blocks: Vec<Block> = (0..20_000u32)
        .map(|n| n.to_be_bytes().to_vec())
        .map(|block| (Cid::raw(&block), block))
        .collect();
    let file = car(blocks[0].0, &blocks);
    let map = read_blocks(&file).and_then(|blocks| blocks.into_map());
    let map = map.expect("a whole file");
    assert_eq!(map.len(), blocks.len());
    for (cid, data) in &blocks {
        assert_eq!(map.get(cid), Some(data.as_slice()));
    }
    for n in 20_000..21_000u32 {
        assert_eq!(map.get(&Cid::raw(&n.to_be_bytes())), None);
    }
}

#[test]
fn a_file_cut_anywhere_but_between_blocks_is_truncated() {
    let blocks = blocks(5);
    let file = car(blocks[0].0, &blocks);
    let mut ends = Vec::new();
    let mut whole = Vec::new();
    write_header(&mut whole, &[blocks[0].0]);
    ends.push(whole.len());
    for (cid, data) in &blocks {
        write_block(&mut whole, cid, data);
        ends.push(whole.len());
    }
    assert_eq!(ends.last(), Some(&file.len()));
    for end in 0..=file.len() {
        let outcome = by_slice(&file[..end]);
        let at_block = ends.iter().position(|at| *at == end);
        match at_block {
            Some(count) => {
                assert_eq!(outcome.error, None, "cut at {end}");
                assert_eq!(outcome.blocks, blocks[..count]);
            }
            None => assert_eq!(outcome.error, Some(CarError::Truncated), "cut at {end}"),
        }
        for piece in [1, 16, 1024] {
            assert_eq!(by_stream(&file[..end], piece).0, outcome, "cut at {end}");
        }
        let map = read_blocks(&file[..end]).and_then(|blocks| blocks.into_map());
        assert_eq!(map.map(drop).err(), outcome.error);
    }
}

#[test]
fn pieces_of_every_size_give_the_same_blocks() {
    let mut blocks = blocks(4);
    blocks.push((Cid::raw(&[7; 300]), vec![7; 300]));
    let file = car(blocks[0].0, &blocks);
    let whole = by_slice(&file);
    assert_eq!(whole.error, None);
    for piece in 1..=file.len() {
        let (outcome, most) = by_stream(&file, piece);
        assert_eq!(outcome, whole, "in pieces of {piece}");
        assert!(most <= piece + CID_LEN + 300 + 2, "{most} held back");
    }
}

#[test]
fn a_stream_holds_back_one_block_and_one_piece() {
    let piece = 64 << 10;
    let block = vec![1; limits::BLOCK_BYTES];
    let cid = Cid::raw(&block);
    let file = car(cid, &vec![(cid, block); 8]);
    let (outcome, most) = by_stream(&file, piece);
    assert_eq!((outcome.blocks.len(), outcome.error), (8, None));
    let bound = limits::BLOCK_BYTES + CID_LEN + limits::VARINT_BYTES + piece;
    assert!(most <= bound, "{most} of {bound} held back");
    assert!(most >= limits::BLOCK_BYTES);
}

#[test]
fn lengths_are_shortest_varints_of_64_bits() {
    let long = vec![0xff; 9];
    let ten = |last: u8| [long.as_slice(), &[last]].concat();
    for (bytes, error) in [
        // In a header's place: the greatest number there is, and beyond.
        (ten(0x01), CarError::HeaderSize(u64::MAX)),
        (ten(0x02), CarError::Varint),
        (ten(0x81), CarError::Varint),
        (vec![0x80; 10], CarError::Varint),
        (vec![0x80; 400], CarError::Varint),
        (vec![0x81, 0x00], CarError::Varint),
        (vec![0x80, 0x80, 0x00], CarError::Varint),
        (vec![0xff; 9], CarError::Truncated),
        (vec![0x80], CarError::Truncated),
    ] {
        assert_refused(&bytes, &error);
        let error = match error {
            CarError::HeaderSize(len) => CarError::BlockSize(len),
            other => other,
        };
        assert_refused(&with_section(&bytes), &error);
    }
}

#[test]
fn a_length_beyond_its_limit_is_refused_before_its_bytes_arrive() {
    let over = limits::CAR_HEADER_BYTES as u64 + 1;
    assert_refused(&varint(over), &CarError::HeaderSize(over));
    let most = (limits::BLOCK_BYTES + CID_LEN) as u64;
    assert_refused(
        &with_section(&varint(most + 1)),
        &CarError::BlockSize(most + 1),
    );
    assert_refused(&with_section(&varint(most)), &CarError::Truncated);
    let block = vec![0; limits::BLOCK_BYTES];
    let fits = car(Cid::raw(&block), &[(Cid::raw(&block), block)]);
    assert_eq!(by_slice(&fits).error, None);
    // A gigabyte is announced; nothing is held but the announcement.
    let mut stream = CarStream::new();
    stream.feed(&with_section(&varint(1 << 30)));
    assert_eq!(stream.next_block(), Err(CarError::BlockSize(1 << 30)));
    assert_eq!(stream.next_block(), Err(CarError::BlockSize(1 << 30)));
    assert!(stream.buffered() <= limits::VARINT_BYTES);
}

#[test]
fn a_block_must_have_room_for_its_cid() {
    for len in 0..CID_LEN {
        let section = [varint(len as u64), vec![1; len]].concat();
        assert_refused(&with_section(&section), &CidError::Length(len).into());
    }
}

#[test]
fn a_block_must_hash_to_its_cid() {
    let mut blocks = blocks(3);
    blocks[1].1[2] ^= 1;
    let wrong = blocks[1].0;
    let file = car(blocks[0].0, &blocks);
    assert_refused(&file, &CarError::Hash(wrong));
    assert_eq!(by_slice(&file).blocks, blocks[..1]);
    let map = read_blocks(&file).and_then(|blocks| blocks.into_map());
    assert_eq!(map.map(drop), Err(CarError::Hash(wrong)));
    // A second copy under the same name is not taken on trust either.
    let good = blocks[0].clone();
    let mut forged = good.clone();
    forged.1[2] ^= 1;
    let map = car(good.0, &[good.clone(), forged]);
    let map = read_blocks(&map).and_then(|blocks| blocks.into_map().map(drop));
    assert_eq!(map, Err(CarError::Hash(good.0)));
}

#[test]
fn unusual_cids_are_named() {
    let data = b"block";
    let section = |cid: &[u8]| {
        let len = varint((cid.len() + data.len()) as u64);
        with_section(&[&len, cid, data.as_slice()].concat())
    };
    let good = *Cid::dag_cbor(data).as_bytes();
    assert_eq!(by_slice(&section(&good)).error, None);
    let with = |at: usize, byte: u8| {
        let mut cid = good;
        cid[at] = byte;
        section(&cid)
    };
    assert_refused(&with(0, 2), &CidError::Version(2).into());
    assert_refused(&with(1, 0x85), &CidError::Codec(0x85).into());
    assert_refused(&with(2, 0x16), &CidError::Hash(0x16, 0x20).into());
    assert_refused(&with(3, 0x14), &CidError::Hash(0x12, 0x14).into());
    // Version 0 is a bare hash; SHA-512 is longer; identity holds its data.
    assert_refused(&section(&good[2..]), &CidError::Version(0x12).into());
    let sha512 = [&[1, 0x71, 0x13, 0x40][..], &[9; 64]].concat();
    assert_refused(&section(&sha512), &CidError::Hash(0x13, 0x40).into());
    let identity = [&[1, 0x55, 0x00, 0x20][..], &[9; 32]].concat();
    assert_refused(&section(&identity), &CidError::Hash(0x00, 0x20).into());
    // Any one-byte codec will do.
    let other = Cid::from_digest(0x01, good[4..].try_into().expect("32 bytes"));
    assert_eq!(by_slice(&section(other.as_bytes())).error, None);
}

/// A key, and what writes its value.
type Pair<'a> = (&'a str, &'a dyn Fn(&mut Writer));

/// A header with these pairs.
fn header(pairs: &[Pair<'_>]) -> Vec<u8> {
    let mut writer = Writer::new();
    writer.map(pairs.len());
    for (key, value) in pairs {
        writer.text(key);
        value(&mut writer);
    }
    with_header(&writer.into_bytes())
}

#[test]
fn headers_are_strict_but_may_say_more() {
    let root = Cid::dag_cbor(b"root");
    let roots = |writer: &mut Writer| {
        writer.array(1).cid(&root);
    };
    let one = |writer: &mut Writer| {
        writer.uint(1);
    };
    let good = header(&[("roots", &roots), ("version", &one)]);
    assert_eq!(by_slice(&good).roots, Some(vec![root]));
    let more = header(&[("more", &one), ("roots", &roots), ("version", &one)]);
    assert_eq!(by_slice(&more).roots, Some(vec![root]));
    assert_eq!(by_slice(&more).error, None);

    let two = |writer: &mut Writer| {
        writer.uint(2);
    };
    let text = |writer: &mut Writer| {
        writer.text("1");
    };
    let deep = |writer: &mut Writer| {
        for _ in 0..=limits::NESTING {
            writer.array(1);
        }
        writer.null();
    };
    let cbor = CarError::Header;
    for (file, error) in [
        (
            header(&[("roots", &roots), ("version", &two)]),
            CarError::Version(2),
        ),
        (
            header(&[("roots", &roots)]),
            cbor(CborError::MissingKey("version")),
        ),
        (
            header(&[("version", &one), ("roots", &roots)]),
            cbor(CborError::KeyOrder),
        ),
        (
            header(&[("roots", &roots), ("roots", &roots), ("version", &one)]),
            cbor(CborError::KeyOrder),
        ),
        (
            header(&[("more", &deep), ("roots", &roots), ("version", &one)]),
            cbor(CborError::Nesting),
        ),
        (with_header(b""), cbor(CborError::Truncated)),
        (with_header(&[0xa0, 0x00]), cbor(CborError::Trailing)),
        (with_header(&[0xbf, 0xff]), cbor(CborError::Indefinite)),
    ] {
        assert_refused(&file, &error);
    }
    for wrong in [
        header(&[("roots", &one), ("version", &one)]),
        header(&[("roots", &roots), ("version", &text)]),
        with_header(&[0x80]),
    ] {
        let error = by_slice(&wrong).error;
        let unexpected = matches!(error, Some(CarError::Header(CborError::Unexpected { .. })));
        assert!(unexpected, "{error:?}");
        assert_eq!(by_stream(&wrong, 2).0.error, error);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn both_readers_agree_on_any_file(
        sizes in proptest::collection::vec(0..200usize, 0..8),
        changes in proptest::collection::vec((any::<u16>(), any::<u8>()), 0..3),
        noise in proptest::collection::vec(any::<u8>(), 0..30),
        piece in 1..120usize,
    ) {
        let blocks: Vec<Block> = sizes
            .iter()
            .map(|size| vec![*size as u8; *size])
            .map(|block| (Cid::raw(&block), block))
            .collect();
        let mut file = car(Cid::raw(b""), &blocks);
        for (at, byte) in &changes {
            let at = usize::from(*at) % file.len();
            file[at] = *byte;
        }
        file.extend_from_slice(&noise);
        let outcome = by_slice(&file);
        prop_assert_eq!(&by_stream(&file, piece).0, &outcome);
        for (cid, data) in &outcome.blocks {
            prop_assert!(cid.matches(data));
        }
        if changes.is_empty() && noise.is_empty() {
            prop_assert_eq!(outcome.blocks, blocks);
        }
    }
}
