//! Tests the files of frames: written, read back, cut, dropped, damaged.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::entry::{ENTRY_HEADER_BYTES, EntryHeader, SEGMENT_HEADER_BYTES};
use super::*;

const SMALL: FramesSettings = FramesSettings {
    segment_bytes: 1000,
    max_age_ms: 24_000,
    max_bytes: 1_000_000,
    keep: true,
};

/// A frame that says its number, long enough to fill segments.
fn frame(seq: u64) -> Vec<u8> {
    format!("frame {seq} ").repeat(10).into_bytes()
}

fn open(folder: &Path, next_seq: u64) -> Frames {
    Frames::open(folder, SMALL, next_seq).unwrap()
}

/// Frames 1, 3, 5, … below `next_seq`, synced in groups of three.
fn filled(folder: &Path, next_seq: u64) -> Frames {
    let mut frames = open(folder, 1);
    for (count, seq) in (1..next_seq).step_by(2).enumerate() {
        frames.append(seq, &frame(seq)).unwrap();
        if count % 3 == 2 {
            frames.sync().unwrap();
        }
    }
    frames.sync().unwrap();
    frames
}

fn all(reader: &FramesReader, from: u64, below: u64) -> (Vec<u64>, usize) {
    let (mut seqs, mut damaged, mut next) = (Vec::new(), 0, from);
    while next < below {
        let page = reader.read(next, below, 300).unwrap();
        for found in &page.frames {
            assert_eq!(found.bytes.as_deref(), Some(&frame(found.seq)[..]));
            seqs.push(found.seq);
        }
        damaged += page.damaged.len();
        assert!(page.next_seq > next, "a page goes forward");
        next = page.next_seq;
    }
    (seqs, damaged)
}

fn odd(from: u64, below: u64) -> Vec<u64> {
    (from..below).filter(|seq| seq % 2 == 1).collect()
}

fn segment_files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    files
}

fn flip(file: &Path, at: u64) {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(file)
        .unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x40], at).unwrap();
}

#[test]
fn frames_come_back_in_order_from_any_number() {
    let folder = tempfile::tempdir().unwrap();
    let frames = filled(folder.path(), 200);
    assert!(segment_files(folder.path()).len() > 5, "segments rotate");
    for from in [1, 2, 3, 50, 51, 120, 198, 199, 200] {
        assert_eq!(all(&frames.reader(), from, 200), (odd(from, 200), 0));
    }
    drop(frames);
    // The same from disk, where places are found by reading headers.
    let frames = open(folder.path(), 200);
    assert_eq!(*frames.opened(), OpenReport::default(), "nothing to cut");
    for from in [1, 2, 3, 50, 51, 120, 198, 199, 200] {
        assert_eq!(all(&frames.reader(), from, 200), (odd(from, 200), 0));
    }
}

#[test]
fn a_frame_is_not_seen_before_it_is_durable_nor_beyond_the_head_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let mut frames = filled(folder.path(), 10);
    let reader = frames.reader();
    frames.append(11, &frame(11)).unwrap();
    assert_eq!(all(&reader, 1, 20).0, odd(1, 10));
    frames.sync().unwrap();
    assert_eq!(all(&reader, 1, 20).0, odd(1, 12));
    assert_eq!(all(&reader, 1, 11).0, odd(1, 10));
}

#[test]
fn what_was_not_synced_is_gone_after_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let mut frames = filled(folder.path(), 10);
    frames.append(11, &frame(11)).unwrap();
    drop(frames);
    assert_eq!(all(&open(folder.path(), 20).reader(), 1, 20).0, odd(1, 10));
}

#[test]
fn frames_of_a_batch_that_was_never_durable_are_dropped_and_their_numbers_reused() {
    for durable in [1, 2, 40, 41, 42, 97, 100] {
        let folder = tempfile::tempdir().unwrap();
        drop(filled(folder.path(), 100));
        let mut frames = open(folder.path(), durable);
        assert_eq!(all(&frames.reader(), 1, 100).0, odd(1, durable));
        // The same numbers, other contents: only the new ones are ever read.
        for seq in durable..durable + 30 {
            frames
                .append(seq, format!("other {seq}").as_bytes())
                .unwrap();
        }
        frames.sync().unwrap();
        drop(frames);
        let frames = open(folder.path(), durable + 30);
        let page = frames.reader().read(durable, 1000, 1 << 20).unwrap();
        let texts: Vec<Vec<u8>> = page.frames.into_iter().filter_map(|f| f.bytes).collect();
        let wanted: Vec<Vec<u8>> = (durable..durable + 30)
            .map(|seq| format!("other {seq}").into_bytes())
            .collect();
        assert_eq!(texts, wanted, "durable {durable}");
    }
}

#[test]
fn a_torn_end_is_cut_wherever_it_was_torn() {
    let whole = tempfile::tempdir().unwrap();
    drop(filled(whole.path(), 10));
    let file = segment_files(whole.path()).pop().unwrap();
    let bytes = fs::read(&file).unwrap();
    let last = ENTRY_HEADER_BYTES + frame(9).len();
    for torn in 1..=last {
        let folder = tempfile::tempdir().unwrap();
        let copy = folder.path().join(file.file_name().unwrap());
        fs::write(&copy, &bytes[..bytes.len() - torn]).unwrap();
        let mut frames = open(folder.path(), 20);
        assert_eq!(all(&frames.reader(), 1, 20), (odd(1, 9), 0), "torn {torn}");
        assert_eq!(frames.opened().cut_bytes, (last - torn) as u64);
        frames.append(21, &frame(21)).unwrap();
        frames.sync().unwrap();
        drop(frames);
        let frames = open(folder.path(), 22);
        let seqs = all(&frames.reader(), 1, 22);
        assert_eq!(seqs, ([odd(1, 9), vec![21]].concat(), 0), "torn {torn}");
    }
}

#[test]
fn a_segment_cut_short_as_it_was_begun_is_begun_again() {
    for length in [0, 1, SEGMENT_HEADER_BYTES as u64 - 1] {
        let folder = tempfile::tempdir().unwrap();
        drop(filled(folder.path(), 100));
        let started = folder.path().join("00000000000000000100.seg");
        fs::write(&started, vec![0; length as usize]).unwrap();
        let mut frames = open(folder.path(), 101);
        assert_eq!(all(&frames.reader(), 1, 101), (odd(1, 100), 0));
        for seq in 101..160 {
            frames.append(seq, &frame(seq)).unwrap();
        }
        frames.sync().unwrap();
        drop(frames);
        let frames = open(folder.path(), 160);
        assert_eq!(*frames.opened(), OpenReport::default());
        assert_eq!(all(&frames.reader(), 1, 160).0.len(), 50 + 59);
    }
}

#[test]
fn damage_in_the_middle_costs_its_own_frame_and_is_reported() {
    let whole = tempfile::tempdir().unwrap();
    drop(filled(whole.path(), 60));
    let files = segment_files(whole.path());
    let entry = (ENTRY_HEADER_BYTES + frame(19).len()) as u64;
    // The second entry of a segment in the middle, and of the last one.
    for (file, sealed) in [(&files[1], true), (files.last().unwrap(), false)] {
        let first: u64 = file.file_stem().unwrap().to_str().unwrap().parse().unwrap();
        let hit = first + 2;
        for at in 0..ENTRY_HEADER_BYTES as u64 + 9 {
            let folder = tempfile::tempdir().unwrap();
            for file in &files {
                fs::copy(file, folder.path().join(file.file_name().unwrap())).unwrap();
            }
            let copy = folder.path().join(file.file_name().unwrap());
            flip(&copy, SEGMENT_HEADER_BYTES as u64 + entry + at);
            let frames = open(folder.path(), 60);
            let (seqs, damaged) = all(&frames.reader(), 1, 60);
            let mut wanted = odd(1, 60);
            wanted.retain(|seq| *seq != hit);
            assert_eq!(seqs, wanted, "flipped byte {at} of {}", file.display());
            assert!(damaged >= 1, "flipped byte {at} is reported");
            assert_eq!(frames.opened().damaged, usize::from(!sealed));
            assert_eq!(frames.opened().cut_bytes, 0);
        }
    }
}

#[test]
fn a_damaged_segment_header_loses_no_frame() {
    let folder = tempfile::tempdir().unwrap();
    drop(filled(folder.path(), 60));
    for file in segment_files(folder.path()) {
        flip(&file, 20);
    }
    let mut frames = open(folder.path(), 60);
    assert_eq!(all(&frames.reader(), 1, 60), (odd(1, 60), 0));
    frames.append(61, &frame(61)).unwrap();
    frames.sync().unwrap();
    drop(frames);
    let frames = open(folder.path(), 62);
    assert_eq!(all(&frames.reader(), 1, 62), (odd(1, 62), 0));
}

#[test]
fn an_entry_inside_a_frame_is_never_taken_for_a_frame() {
    let folder = tempfile::tempdir().unwrap();
    let mut frames = open(folder.path(), 1);
    let forged = b"forged";
    let header = EntryHeader::of(2, forged).unwrap();
    let mut hostile = header.encode(SegmentMark([7; 8])).to_vec();
    hostile.extend_from_slice(forged);
    frames.append(1, &hostile).unwrap();
    frames.append(5, &frame(5)).unwrap();
    frames.sync().unwrap();
    drop(frames);
    let file = segment_files(folder.path()).pop().unwrap();
    flip(&file, SEGMENT_HEADER_BYTES as u64 + 9);
    let frames = open(folder.path(), 6);
    let page = frames.reader().read(1, 6, 1 << 20).unwrap();
    let seqs: Vec<u64> = page.frames.iter().map(|frame| frame.seq).collect();
    assert_eq!((seqs, page.damaged.len()), (vec![5], 1));
}

#[test]
fn garbage_for_segments_neither_panics_nor_is_served() {
    let folder = tempfile::tempdir().unwrap();
    for (first, length) in [(1, 0), (5, 47), (9, 48), (20, 5000)] {
        let garbage: Vec<u8> = (0..length).map(|i: u32| (i * 131 % 251) as u8).collect();
        fs::write(Segment::path_of(folder.path(), first), garbage).unwrap();
    }
    fs::write(folder.path().join("notes.txt"), "not ours").unwrap();
    let mut frames = open(folder.path(), 30);
    let page = frames.reader().read(30, 100, 1 << 20).unwrap();
    assert!(page.frames.is_empty());
    frames.append(30, &frame(30)).unwrap();
    frames.sync().unwrap();
    assert_eq!(all(&frames.reader(), 30, 31).0, vec![30]);
}

#[test]
fn old_segments_go_whole_and_it_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let mut frames = filled(folder.path(), 200);
    let reader = frames.reader();
    let start = now_ms();
    frames.trim(start).unwrap();
    assert_eq!(reader.oldest_seq(), 1, "too young to go");
    // The last segment is left behind first, so that it can age in its turn.
    frames.trim(start + 2_000).unwrap();
    frames.trim(start + 24_500).unwrap();
    let oldest = reader.oldest_seq();
    assert!(oldest > 150, "all but the last two are gone: {oldest}");
    let gone = reader.read(5, 200, 1000).unwrap_err();
    let FramesError::Gone {
        from_seq,
        oldest_seq,
    } = gone
    else {
        panic!("{gone}");
    };
    assert_eq!((from_seq, oldest_seq), (5, oldest));
    assert_eq!(all(&reader, oldest, 200).0, odd(oldest, 200));
    frames.trim(start + 60_000).unwrap();
    assert_eq!(segment_files(folder.path()).len(), 1);
    assert_eq!(reader.oldest_seq(), 200, "every frame has aged out");
    drop(frames);
    assert_eq!(open(folder.path(), 200).reader().oldest_seq(), 200);
}

#[test]
fn no_frame_is_too_old_while_the_clock_is_doubted() {
    let folder = tempfile::tempdir().unwrap();
    let mut frames = filled(folder.path(), 200);
    let reader = frames.reader();
    let start = now_ms();
    reader.doubt_clock(true);
    frames.trim(start + 2_000).unwrap();
    frames.trim(start + 60_000).unwrap();
    assert_eq!(reader.oldest_seq(), 1);
    reader.doubt_clock(false);
    assert!(reader.holds_any());
    frames.trim(start + 120_000).unwrap();
    assert!(reader.oldest_seq() > 150);
    frames.trim(start + 240_000).unwrap();
    assert!(!reader.holds_any(), "every frame has aged out");
}

#[test]
fn a_segment_from_the_future_ages_from_now_on() {
    let folder = tempfile::tempdir().unwrap();
    let mut frames = filled(folder.path(), 200);
    let reader = frames.reader();
    // The clock is set back by a year.
    let now = now_ms() - 365 * 24 * 3_600_000;
    frames.trim(now).unwrap();
    assert_eq!(reader.oldest_seq(), 1, "too young to go");
    for seconds in [2, 10, 30, 60] {
        frames.trim(now + seconds * 1_000).unwrap();
    }
    assert!(reader.oldest_seq() > 150, "{}", reader.oldest_seq());
}

#[test]
fn too_much_goes_from_the_oldest_on() {
    let folder = tempfile::tempdir().unwrap();
    let mut frames = filled(folder.path(), 200);
    frames.settings.max_bytes = 4000;
    frames.trim(now_ms()).unwrap();
    assert!(frames.reader().bytes() <= 4000);
    assert!(frames.reader().bytes() > 2000, "no more than needed");
    let oldest = frames.reader().oldest_seq();
    assert_eq!(all(&frames.reader(), oldest, 200).0, odd(oldest, 200));
}

#[test]
fn a_segment_that_went_missing_is_a_hole_and_not_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    drop(filled(folder.path(), 200));
    let files = segment_files(folder.path());
    fs::remove_file(&files[2]).unwrap();
    let frames = open(folder.path(), 200);
    assert_eq!(frames.opened().dropped_before_hole, 2);
    let oldest = frames.reader().oldest_seq();
    assert!(frames.reader().read(1, 200, 1000).is_err());
    assert_eq!(all(&frames.reader(), oldest, 200).0, odd(oldest, 200));
}

#[test]
fn a_redacted_frame_keeps_its_number_and_loses_its_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let mut frames = filled(folder.path(), 60);
    assert!(frames.redact(31).unwrap());
    assert!(!frames.redact(32).unwrap(), "there is no such frame");
    for _ in 0..2 {
        let page = frames.reader().read(29, 34, 1 << 20).unwrap();
        let found: Vec<(u64, bool)> = page
            .frames
            .iter()
            .map(|frame| (frame.seq, frame.bytes.is_some()))
            .collect();
        assert_eq!(found, [(29, true), (31, false), (33, true)]);
        assert!(page.damaged.is_empty());
        drop(frames);
        frames = open(folder.path(), 60);
    }
    let needle = frame(31);
    for file in segment_files(folder.path()) {
        let bytes = fs::read(file).unwrap();
        assert!(!bytes.windows(needle.len()).any(|window| window == needle));
    }
}

#[test]
fn many_are_redacted_over_several_segments_and_again_does_no_harm() {
    let folder = tempfile::tempdir().unwrap();
    let mut frames = filled(folder.path(), 200);
    assert!(segment_files(folder.path()).len() > 2, "several segments");
    let all: Vec<u64> = frames
        .reader()
        .read(frames.reader().oldest_seq(), 200, 1 << 30)
        .unwrap()
        .frames
        .iter()
        .map(|frame| frame.seq)
        .collect();
    let some: Vec<u64> = all.iter().copied().step_by(3).collect();
    // In any order, with some that are not there.
    let asked: Vec<u64> = some.iter().rev().copied().chain([0, 100_000]).collect();
    for _ in 0..2 {
        let redacted = frames.redact_all(&asked).unwrap();
        assert_eq!(redacted, some.len() as u64);
        let page = frames
            .reader()
            .read(frames.reader().oldest_seq(), 200, 1 << 30)
            .unwrap();
        assert!(page.damaged.is_empty());
        for frame in page.frames {
            assert_eq!(
                frame.bytes.is_none(),
                some.contains(&frame.seq),
                "{}",
                frame.seq
            );
        }
        drop(frames);
        frames = open(folder.path(), 200);
    }
}

#[test]
fn numbers_only_grow_and_frames_are_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let mut frames = filled(folder.path(), 10);
    for seq in [0, 1, 9] {
        let refused = frames.append(seq, b"again").unwrap_err();
        assert!(matches!(refused, FramesError::OutOfOrder { .. }));
    }
    let large = vec![0; gapless_atp::limits::FRAME_BYTES + 1];
    let refused = frames.append(11, &large).unwrap_err();
    assert!(matches!(refused, FramesError::TooLarge { .. }));
    frames.append(11, &frame(11)).unwrap();
}

#[test]
fn without_keep_old_frames_are_deleted_and_readers_get_gone() {
    let folder = tempfile::tempdir().unwrap();
    drop(filled(folder.path(), 100));
    assert!(segment_files(folder.path()).len() > 2);
    let none = FramesSettings {
        keep: false,
        ..SMALL
    };
    for _ in 0..2 {
        let mut frames = Frames::open(folder.path(), none, 100).unwrap();
        for seq in 100..110 {
            frames.append(seq, &frame(seq)).unwrap();
        }
        frames.sync().unwrap();
        frames.trim(u64::MAX).unwrap();
        let reader = frames.reader();
        assert_eq!(reader.bytes(), SEGMENT_HEADER_BYTES as u64);
        for from in [1, 99, 105] {
            let gone = reader.read(from, 110, 300).unwrap_err();
            assert!(matches!(gone, FramesError::Gone { .. }), "{gone}");
        }
        assert!(!frames.redact(105).unwrap());
    }
    // Kept again, the window begins where that was.
    let mut frames = open(folder.path(), 110);
    assert_eq!(frames.reader().oldest_seq(), 110);
    assert_eq!(frames.opened(), &OpenReport::default());
    frames.append(111, &frame(111)).unwrap();
    frames.sync().unwrap();
    assert_eq!(all(&frames.reader(), 110, 112), (vec![111], 0));
}

#[test]
fn what_is_no_frame_any_more_or_stands_for_nothing_is_taken_out() {
    for broken in ["payload", "header", "segment"] {
        let folder = tempfile::tempdir().unwrap();
        drop(filled(folder.path(), 100));
        let files = segment_files(folder.path());
        let start = SEGMENT_HEADER_BYTES as u64;
        let place = match broken {
            "payload" => start + ENTRY_HEADER_BYTES as u64 + 3,
            "header" => start + 9,
            _ => 2,
        };
        flip(&files[1], place);
        if broken == "segment" {
            flip(&files[1], start + 9);
        }
        let first: u64 = files[1]
            .file_stem()
            .unwrap()
            .to_str()
            .unwrap()
            .parse()
            .unwrap();
        // 41 is the number of no row.
        let mut belongs = |seq| Ok(seq != 41);
        let found = mend(folder.path(), &mut belongs, false).unwrap();
        assert_eq!((found.damaged, found.strays), (1, 1), "{broken}");
        assert_eq!(mend(folder.path(), &mut belongs, true).unwrap(), found);
        let again = mend(folder.path(), &mut belongs, true).unwrap();
        assert_eq!(again, MendReport::default(), "{broken}");
        assert_eq!(segment_files(folder.path()), files, "{broken}");
        let frames = open(folder.path(), 100);
        assert_eq!(frames.opened(), &OpenReport::default(), "{broken}");
        let (seqs, damaged) = all(&frames.reader(), 1, 100);
        assert_eq!(damaged, 0, "{broken}");
        let gone: Vec<u64> = odd(1, 100)
            .into_iter()
            .filter(|seq| !seqs.contains(seq))
            .collect();
        match broken {
            // Without a header the mark is not known, and nothing is found.
            "segment" => assert!(gone.len() > 2 && gone.contains(&first) && gone.contains(&41)),
            _ => assert_eq!(gone, [first.min(41), first.max(41)], "{broken}"),
        }
    }
}

#[test]
fn a_torn_end_is_left_for_the_next_opening() {
    let folder = tempfile::tempdir().unwrap();
    drop(filled(folder.path(), 100));
    let last = segment_files(folder.path()).pop().unwrap();
    let bytes = fs::metadata(&last).unwrap().len();
    let file = OpenOptions::new().write(true).open(&last).unwrap();
    file.set_len(bytes - 3).unwrap();
    let found = mend(folder.path(), &mut |_| Ok(true), true).unwrap();
    assert_eq!(found, MendReport::default());
}
