//! Tests prepared load: a mirror can start from it, follow it and end where it ends, and a
//! socket carries it fast.

mod common;

use std::collections::BTreeMap;
use std::time::Instant;

use common::*;
use gapless_atp::cid::Cid;
use gapless_atp::frame::{Event, decode};
use gapless_atp::identity::DidDocument;
use gapless_atp::repo::RepoCar;
use gapless_atp::syntax::Did;
use gapless_testnet::load::{Load, LoadConfig, LoadServer};
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

async fn serve(repos: u32, records: usize, commits: u64) -> LoadServer {
    let config = LoadConfig {
        repos,
        records,
        commits,
        ..LoadConfig::default()
    };
    LoadServer::start(Load::prepare(config).unwrap())
        .await
        .unwrap()
}

/// Every repository as getRepo has it, its signature checked.
async fn fetch_all(server: &LoadServer) -> BTreeMap<String, (Cid, Fold)> {
    let mut all = BTreeMap::new();
    let mut cursor = String::new();
    loop {
        let url = xrpc(&server.pds_url, "listRepos", &format!("limit=3{cursor}"));
        let (_, page) = get_json(&url).await;
        for repo in page["repos"].as_array().unwrap() {
            let did = Did::parse(repo["did"].as_str().unwrap()).unwrap();
            let (status, _, car) = get(&xrpc(&server.pds_url, "getRepo", &did_param(&did))).await;
            assert_eq!(status, 200);
            let (_, _, document) = get(&format!("{}/{did}", server.plc_url)).await;
            let document = DidDocument::parse(&document, &did).unwrap();
            let read = RepoCar::read(&car).unwrap();
            read.commit.verify(document.usable_key().unwrap()).unwrap();
            assert_eq!(repo["head"], read.commit_cid.to_string());
            assert_eq!(repo["rev"], read.commit.rev.to_string());
            let records = import(&car).unwrap();
            let records = records.into_iter().map(|(path, (cid, _))| (path, cid));
            let fold = Fold::from([(did.to_string(), records.collect())]);
            all.insert(did.to_string(), (read.commit.data, fold));
        }
        match page["cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return all,
        }
    }
}

#[tokio::test]
async fn a_mirror_starts_from_it_follows_it_and_ends_where_it_ends() {
    let server = serve(8, 30, 43).await;
    let mut held = fetch_all(&server).await;
    assert_eq!(held.len(), 8);
    let mut consumer = Consumer::connect(&server.pds_url, Some(0)).await;
    let (_, said) = post_json(&format!("{}/_load/release", server.pds_url), json!({})).await;
    assert_eq!(said["released"], 43);
    for frame in consumer.until(43).await {
        let Ok(Event::Commit(event)) = decode(&frame) else {
            panic!("{}", kind(&frame));
        };
        let did = Did::parse(event.repo).unwrap();
        let repo = server.load().repo_of(&did);
        assert!(repo.is_some());
        let (data, records) = held.get_mut(event.repo).unwrap();
        assert_eq!(event.prev_data, Some(*data), "it follows what is held");
        let (_, _, document) = get(&format!("{}/{did}", server.plc_url)).await;
        let document = DidDocument::parse(&document, &did).unwrap();
        check_commit(&event, document.usable_key().unwrap()).unwrap();
        fold(records, &event);
        let cid = event.commit.unwrap();
        let blocks = gapless_atp::car::read_blocks(event.blocks).unwrap();
        let blocks = blocks.into_map().unwrap();
        let block = blocks.get(&cid).unwrap();
        *data = gapless_atp::repo::Commit::decode(block).unwrap().data;
    }
    assert_eq!(held, fetch_all(&server).await);

    let mut late = Consumer::connect(&server.pds_url, Some(42)).await;
    assert_eq!(seq_of(&late.next().await.unwrap()), Some(43));
    let mut future = Consumer::connect(&server.pds_url, Some(44)).await;
    assert_eq!(kind(&future.next().await.unwrap()), "error(FutureCursor)");
}

/// Counts frames and looks at nothing else; returns their bytes.
async fn count_frames(url: &str, frames: u64) -> u64 {
    let host = url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(host).await.unwrap();
    let request = format!(
        "GET /xrpc/com.atproto.sync.subscribeRepos?cursor=0 HTTP/1.1\r\nHost: {host}\r\n\
         Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut reader = BufReader::with_capacity(1 << 20, stream);
    let mut line = String::new();
    while line != "\r\n" {
        line.clear();
        reader.read_line(&mut line).await.unwrap();
    }
    let mut bytes = 0;
    let mut skipped = vec![0; 1 << 20];
    for _ in 0..frames {
        let head = reader.read_u16().await.unwrap();
        assert_eq!(head >> 8, 0x82, "a whole binary message");
        let len = match head & 0x7f {
            126 => u64::from(reader.read_u16().await.unwrap()),
            127 => reader.read_u64().await.unwrap(),
            short => u64::from(short),
        };
        reader
            .read_exact(&mut skipped[..len as usize])
            .await
            .unwrap();
        bytes += len;
    }
    bytes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_leaves_a_socket_whole_and_fast() {
    const COMMITS: u64 = 20_000;
    let server = serve(2000, 1000, COMMITS).await;
    server.release(u64::MAX);
    assert_eq!(server.released(), COMMITS);
    let start = Instant::now();
    let bytes = count_frames(&server.pds_url, COMMITS).await;
    let seconds = start.elapsed().as_secs_f64();
    let size = bytes / COMMITS;
    eprintln!("{:.0} commits/s of {size} bytes", COMMITS as f64 / seconds);
    assert!((2000..6000).contains(&size), "{size} bytes a commit");
}
