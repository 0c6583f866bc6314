use std::io::{Read as _, Write as _};
use std::sync::mpsc;
use std::thread::{self, ThreadId};
use std::time::Duration;

use super::*;
use crate::scan::{Outcome, Precount};

/// Writes the numbers `0..count`, one per line; fails or panics at a given number.
struct Numbers {
    next: u64,
    count: u64,
    fails_at: Option<u64>,
    panics_at: Option<u64>,
    slow: bool,
    totals: Option<Totals>,
    /// Added to each line.
    padding_bytes: usize,
}

impl Numbers {
    fn to(count: u64) -> Self {
        Self { next: 0, count, fails_at: None, panics_at: None, slow: false, totals: None, padding_bytes: 0 }
    }
}

impl LineSource for Numbers {
    fn next_turn(&mut self) -> Result<Turn> {
        let number = self.next;
        self.next += 1;
        if Some(number) == self.fails_at {
            return Err(Error::corrupt("part.parquet", "torn"));
        }
        let (panics, slow, padding_bytes) = (Some(number) == self.panics_at, self.slow, self.padding_bytes);
        if number >= self.count {
            return Ok(Turn::End);
        }
        Ok(Turn::Lines({
            Box::new(move |out| {
                assert!(!panics);
                if slow && number.is_multiple_of(2) {
                    thread::sleep(Duration::from_millis(2));
                }
                out.resize(out.len() + padding_bytes, b'0');
                writeln!(out, "{number}").unwrap();
                let min_expiration_ms = Some(1000 - number as i64);
                Ok(LineCounts { files: 1, file_bytes: 10, min_expiration_ms })
            })
        }))
    }

    fn totals(&self) -> Option<Totals> {
        self.totals
    }

    fn precount(&mut self) -> Option<Precount> {
        let outcome = Outcome { considered: self.count, ..Outcome::default() };
        (self.next == 1).then_some(Precount { files: self.count, outcome })
    }

    fn outcome(&self) -> Outcome {
        Outcome { considered: self.count.min(self.next), ..Outcome::default() }
    }
}

fn start(pool: &Pool, source: impl LineSource + 'static, coding: ContentCoding) -> NdjsonStream {
    let options = StreamOptions { coding, ..StreamOptions::default() };
    start_with(pool, source, options)
}

fn start_with(pool: &Pool, source: impl LineSource + 'static, options: StreamOptions) -> NdjsonStream {
    NdjsonStream::start(pool, &Arc::default(), Box::new(source), options).unwrap()
}

/// Waits on the file descriptor only, as an event loop does.
fn drain(stream: &mut NdjsonStream) -> (Vec<u8>, Result<()>) {
    let mut body = Vec::new();
    loop {
        match stream.take() {
            Ok(Next::Chunk(chunk)) => body.extend_from_slice(chunk.bytes()),
            Ok(Next::Done) => return (body, Ok(())),
            Ok(Next::Pending) => {
                let wakeups = stream.wakeups.as_ref().unwrap();
                while !wakeups.take() {
                    thread::yield_now();
                }
                lock(&stream.inner.state).signalled = false;
            }
            Err(error) => return (body, Err(error)),
        }
    }
}

fn unpacked(gzip: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(gzip).read_to_end(&mut plain).unwrap();
    plain
}

fn lines(count: u64) -> Vec<u8> {
    (0..count).flat_map(|number| format!("{number}\n").into_bytes()).collect()
}

#[test]
fn chunks_made_by_many_threads_leave_in_order() {
    let pool = Pool::new(4).unwrap();
    let mut stream = start(&pool, Numbers { slow: true, ..Numbers::to(60) }, ContentCoding::Identity);
    let (body, end) = drain(&mut stream);
    end.unwrap();
    assert_eq!(body, lines(60));
    let summary = stream.summary();
    assert_eq!(summary.precount.map(|precount| precount.files), Some(60));
    assert_eq!(summary.written, LineCounts { files: 60, file_bytes: 600, min_expiration_ms: Some(941) });
    assert_eq!(summary.outcome.considered, 60);
}

#[test]
fn a_gzip_answer_with_a_last_line_is_one_member() {
    let pool = Pool::new(2).unwrap();
    for count in [0, 1, 50] {
        let mut stream = start(&pool, Numbers::to(count), ContentCoding::Gzip);
        let (mut body, end) = drain(&mut stream);
        end.unwrap();
        body.extend(stream.finish(b"{}\n").unwrap());
        assert_eq!(unpacked(&body), [lines(count), b"{}\n".to_vec()].concat());
    }
}

#[test]
fn an_answer_that_ends_before_its_ready_chunks_is_decoded() {
    let pool = Pool::new(1).unwrap();
    for coding in [ContentCoding::Identity, ContentCoding::Gzip, ContentCoding::Zstd] {
        for taken in 0..3 {
            let options = StreamOptions { inline: true, coding, ..StreamOptions::default() };
            let mut stream = start_with(&pool, Numbers::to(5), options);
            let mut body = Vec::new();
            for _ in 0..taken {
                let Next::Chunk(chunk) = stream.take().unwrap() else { panic!("not ready") };
                body.extend_from_slice(chunk.bytes());
            }
            let end = [&b"x".repeat(200_000)[..], b"\n"].concat();
            body.extend(stream.finish(&end).unwrap());
            let plain = match coding {
                ContentCoding::Identity => body,
                ContentCoding::Gzip => unpacked(&body),
                ContentCoding::Zstd => zstd::decode_all(&body[..]).unwrap(),
            };
            assert!(plain == [lines(taken), end].concat(), "{coding:?}, {taken} taken");
        }
    }
}

#[test]
fn an_answer_of_other_lines_than_its_head_counts_ends_with_an_error() {
    let pool = Pool::new(2).unwrap();
    let numbers =
        |files, size_bytes| Numbers { totals: Some(Totals { files, size_bytes }), ..Numbers::to(30) };
    let mut stream = start(&pool, numbers(30, 300), ContentCoding::Identity);
    drain(&mut stream).1.unwrap();
    for (files, size_bytes) in [(31, 300), (29, 300), (30, 299)] {
        let mut stream = start(&pool, numbers(files, size_bytes), ContentCoding::Identity);
        let (body, end) = drain(&mut stream);
        assert!(matches!(end, Err(Error::Contradiction { .. })), "{end:?}");
        assert_eq!(body, lines(30));
        // Where it is known before the first byte, nothing of the answer is sent.
        let options = StreamOptions { inline: true, ..StreamOptions::default() };
        let mut stream = start_with(&pool, numbers(files, size_bytes), options);
        assert!(matches!(stream.take(), Err(Error::Contradiction { .. })));
        assert!(!stream.is_done());
    }
}

#[test]
fn an_answer_made_here_is_ready_at_once_and_needs_no_thread() {
    let pool = Pool::new(1).unwrap();
    let options = StreamOptions { inline: true, ..StreamOptions::default() };
    let mut stream = start_with(&pool, Numbers::to(2), options);
    for number in 0..2 {
        let Next::Chunk(chunk) = stream.take().unwrap() else { panic!("not ready") };
        assert_eq!(chunk.bytes(), format!("{number}\n").as_bytes());
    }
    assert!(matches!(stream.take(), Ok(Next::Done)));
    let mut stream = start_with(&pool, Numbers { fails_at: Some(0), ..Numbers::to(2) }, options);
    assert!(matches!(stream.take(), Err(Error::CorruptLog { .. })));
}

#[test]
fn a_failure_follows_the_complete_chunks_before_it() {
    let pool = Pool::new(1).unwrap();
    let mut stream = start(&pool, Numbers { fails_at: Some(7), ..Numbers::to(20) }, ContentCoding::Identity);
    let (body, end) = drain(&mut stream);
    assert!(matches!(end, Err(Error::CorruptLog { .. })));
    assert_eq!(body, lines(7));
    assert!(!stream.is_done());
}

#[test]
fn a_stream_that_is_cut_off_counts_the_files_that_were_evaluated() {
    // Of two threads one may fail before the other's lines are ready, which then are not written.
    let pool = Pool::new(1).unwrap();
    let mut stream = start(&pool, Numbers { fails_at: Some(7), ..Numbers::to(20) }, ContentCoding::Identity);
    drain(&mut stream).1.unwrap_err();
    let counts = stream.summary();
    assert_eq!((counts.written.files, counts.outcome.considered), (7, 7));
    let options = StreamOptions { inline: true, ..StreamOptions::default() };
    let mut stream = start_with(&pool, Numbers { padding_bytes: 900_000, ..Numbers::to(20) }, options);
    stream.take().unwrap();
    stream.cancel();
    let counts = stream.summary();
    assert!(counts.outcome.considered >= counts.written.files && counts.written.files > 0, "{counts:?}");
}

#[test]
fn a_panic_fails_its_own_stream_and_no_other() {
    let pool = Pool::new(1).unwrap();
    let mut broken = start(&pool, Numbers { panics_at: Some(3), ..Numbers::to(20) }, ContentCoding::Identity);
    let mut whole = start(&pool, Numbers::to(20), ContentCoding::Identity);
    assert!(matches!(drain(&mut broken).1, Err(Error::Internal { .. })));
    assert_eq!(drain(&mut whole).0, lines(20));
}

#[test]
fn a_stalled_reader_holds_a_few_chunks_and_no_thread() {
    let pool = Pool::new(1).unwrap();
    let idle = start(&pool, Numbers::to(1_000_000), ContentCoding::Identity);
    let mut busy = start(&pool, Numbers::to(200), ContentCoding::Identity);
    assert_eq!(drain(&mut busy).0, lines(200));
    let state = lock(&idle.inner.state);
    assert!(state.parked);
    assert_eq!(state.ready.len(), CHUNKS_AHEAD);
}

#[test]
fn a_stalled_reader_holds_one_long_line_and_a_few_of_usual_length() {
    let pool = Pool::new(2).unwrap();
    for (inline, coding) in
        [(false, ContentCoding::Identity), (true, ContentCoding::Gzip), (false, ContentCoding::Zstd)]
    {
        let options = StreamOptions { coding, inline, ..StreamOptions::default() };
        for (padding_bytes, most) in [(BYTES_AHEAD, 1), (BYTES_AHEAD / 2 - 16, 2), (BYTES_AHEAD / 4, 3)] {
            let source = Numbers { padding_bytes, ..Numbers::to(9) };
            let mut stream = start_with(&pool, source, options);
            for taken in 0..9 {
                until_it_rests(&stream);
                let ahead = lock(&stream.inner.state).ready.len();
                // Until the first one is written, their length is not known.
                assert!(ahead <= most || taken < CHUNKS_AHEAD, "{ahead} of {padding_bytes} bytes");
                let Next::Chunk(_) = stream.take().unwrap() else { panic!("not ready") };
            }
            until_it_rests(&stream);
            assert!(matches!(stream.take(), Ok(Next::Done)));
            assert_eq!(stream.summary().written.files, 9);
        }
    }
}

fn until_it_rests(stream: &NdjsonStream) {
    loop {
        let state = lock(&stream.inner.state);
        if state.started == state.emitted && (state.parked || state.end.is_some()) {
            return;
        }
        drop(state);
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn few_files_of_long_lines_are_not_made_inline() {
    let pool = Pool::new(1).unwrap();
    let options = StreamOptions { inline: true, ..StreamOptions::default() };
    let stream = start_with(&pool, Numbers { padding_bytes: INLINE_BYTES, ..Numbers::to(20) }, options);
    let mut busy = start(&pool, Numbers::to(200), ContentCoding::Identity);
    assert_eq!(drain(&mut busy).0, lines(200));
    let state = lock(&stream.inner.state);
    assert_eq!((state.ready.len(), state.parked), (1, true));
}

#[test]
fn a_dropped_reader_stops_the_work() {
    let pool = Pool::new(1).unwrap();
    let inner = {
        let stream = start(&pool, Numbers::to(u64::MAX), ContentCoding::Identity);
        Arc::downgrade(&stream.inner)
    };
    let mut busy = start(&pool, Numbers::to(50), ContentCoding::Identity);
    drain(&mut busy).1.unwrap();
    assert!(inner.upgrade().is_none());
}

/// Waits until its sender is dropped.
struct Hanging(Mutex<mpsc::Receiver<()>>);

impl LineSource for Hanging {
    fn next_turn(&mut self) -> Result<Turn> {
        let _ = self.0.get_mut().unwrap().recv();
        Ok(Turn::End)
    }

    fn outcome(&self) -> Outcome {
        Outcome::default()
    }
}

#[test]
fn a_deadline_is_reported_while_the_work_hangs() {
    let pool = Pool::new(1).unwrap();
    let (_hold, held) = mpsc::channel();
    let deadline = Some(Instant::now() + Duration::from_millis(200));
    let options = StreamOptions { deadline, ..StreamOptions::default() };
    let mut stream = start_with(&pool, Hanging(Mutex::new(held)), options);
    assert!(matches!(stream.take(), Ok(Next::Pending)));
    thread::sleep(stream.time_left().unwrap());
    for _ in 0..2 {
        assert!(matches!(stream.take(), Err(Error::DeadlineExceeded)));
    }
}

/// Says again and again that it needs another turn.
struct Endless;

impl LineSource for Endless {
    fn next_turn(&mut self) -> Result<Turn> {
        Ok(Turn::Pending)
    }

    fn outcome(&self) -> Outcome {
        Outcome::default()
    }
}

#[test]
fn work_without_results_yields_to_others_and_ends_at_its_deadline() {
    let pool = Pool::new(1).unwrap();
    let deadline = Some(Instant::now() + Duration::from_millis(300));
    let options = StreamOptions { deadline, ..StreamOptions::default() };
    let mut endless = start_with(&pool, Endless, options);
    let mut other = start(&pool, Numbers::to(50), ContentCoding::Identity);
    drain(&mut other).1.unwrap();
    assert!(!endless.is_done());
    assert!(matches!(drain(&mut endless), (body, Err(Error::DeadlineExceeded)) if body.is_empty()));
    let inner = Arc::downgrade(&endless.inner);
    drop(endless);
    while inner.upgrade().is_some() {
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_deadline_that_has_passed_ends_the_stream() {
    let pool = Pool::new(1).unwrap();
    let options = StreamOptions { deadline: Some(Instant::now()), ..StreamOptions::default() };
    let mut stream = start_with(&pool, Numbers::to(10), options);
    assert!(matches!(drain(&mut stream).1, Err(Error::DeadlineExceeded)));
}

#[test]
fn pieces_of_one_answer_are_written_on_several_threads() {
    struct Threads(Arc<Mutex<Vec<ThreadId>>>, u64);
    impl LineSource for Threads {
        fn next_turn(&mut self) -> Result<Turn> {
            self.1 += 1;
            let seen = Arc::clone(&self.0);
            if self.1 >= 40 {
                return Ok(Turn::End);
            }
            Ok(Turn::Lines({
                Box::new(move |out| {
                    lock(&seen).push(thread::current().id());
                    thread::sleep(Duration::from_millis(1));
                    out.push(b'\n');
                    Ok(LineCounts::default())
                })
            }))
        }
        fn outcome(&self) -> Outcome {
            Outcome::default()
        }
    }
    let pool = Pool::new(2).unwrap();
    let seen = Arc::default();
    let mut stream = start(&pool, Threads(Arc::clone(&seen), 0), ContentCoding::Identity);
    drain(&mut stream).1.unwrap();
    let seen = lock(&seen);
    assert!(seen.iter().any(|thread| *thread != seen[0]));
}
