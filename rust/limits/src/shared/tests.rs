use std::fs::File;
use std::io::Write;
use std::thread;

use proptest::prelude::*;

use super::*;

const SECOND: u64 = 1_000_000_000;
const WORKERS: usize = 4;

fn file(workers: usize) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(b"0123456789abcdef").unwrap();
    file.set_len(SharedLimits::size_bytes(workers) as u64).unwrap();
    file
}

fn workers() -> Vec<SharedLimits> {
    let file = file(WORKERS);
    (0..WORKERS).map(|worker| SharedLimits::map(&file, WORKERS, worker).unwrap()).collect()
}

/// Calls a function in a thread for each worker, which maps the file by itself.
fn at_once<T: Send>(workers: &[SharedLimits], work: impl Fn(&SharedLimits) -> T + Sync) -> Vec<T> {
    let work = &work;
    thread::scope(|scope| {
        let threads: Vec<_> = workers.iter().map(|limits| scope.spawn(move || work(limits))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn a_file_of_another_length_is_refused() {
    let file = file(2);
    assert!(SharedLimits::map(&file, 3, 0).is_err());
    assert!(SharedLimits::map(&file, 2, 2).is_err());
    assert_eq!(&SharedLimits::map(&file, 2, 1).unwrap().seed(), b"0123456789abcdef");
}

#[test]
fn workers_take_exactly_the_tokens_of_a_bucket() {
    let terms = Terms { interval_ns: SECOND, capacity: 10_000 };
    let taken = at_once(&workers(), |limits| {
        let bucket = limits.bucket(limits.recipient([7, 7]), Kind::Requests);
        bucket.set_terms(terms, SECOND);
        (0..5_000).filter(|_| bucket.take(1, terms, SECOND, 0) == 0).count()
    });
    assert_eq!(taken.iter().sum::<usize>(), 10_000);
}

#[test]
fn workers_never_run_more_streams_than_the_limit_and_reach_it() {
    let workers = workers();
    let most = std::sync::atomic::AtomicU64::new(0);
    let running = std::sync::atomic::AtomicU64::new(0);
    at_once(&workers, |limits| {
        let place = limits.recipient([1, 2]);
        for _ in 0..20_000 {
            if limits.enter_stream(place, 3) {
                let now = running.fetch_add(1, std::sync::atomic::Ordering::SeqCst) + 1;
                most.fetch_max(now, std::sync::atomic::Ordering::SeqCst);
                running.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                limits.leave_stream(place);
            }
        }
    });
    assert!(most.into_inner() <= 3);
    let place = workers[0].recipient([1, 2]);
    let entered: Vec<bool> = workers.iter().map(|limits| limits.enter_stream(place, 3)).collect();
    assert_eq!(entered, [true, true, true, false]);
    workers[3].clear_worker(0);
    assert!(workers[3].enter_stream(place, 3));
    workers[3].leave_stream(place);
    workers[3].leave_stream(place);
    // An end too many leaves no negative count, which would admit more.
    assert!(workers[3].enter_stream(place, 3));
    assert!(!workers[3].enter_stream(place, 3));
}

#[test]
fn workers_agree_on_the_places_of_recipients_whose_hashes_collide() {
    let places = at_once(&workers(), |limits| {
        (0..500).map(|number| limits.recipient([number % 5, number])).collect::<Vec<_>>()
    });
    assert!(places.iter().all(|found| *found == places[0]));
    let mut different = places[0].clone();
    different.sort_unstable();
    different.dedup();
    assert_eq!(different.len(), 500);
}

#[test]
fn recipients_without_a_place_of_their_own_share_one() {
    let workers = workers();
    workers[0].memory.words()[COUNT]
        .store(recipients::MAX_RECIPIENTS as u64 - 1, std::sync::atomic::Ordering::SeqCst);
    let last = workers[0].recipient([1, 1]);
    assert_eq!((workers[0].recipient([2, 2]), workers[1].recipient([3, 3])), (last + 1, last + 1));
    assert_eq!(workers[1].recipient([1, 1]), last);
    assert!(workers[0].enter_stream(last + 1, 1));
    assert!(!workers[1].enter_stream(last + 1, 1));
    workers[1].clear_worker(0);
    assert!(workers[1].enter_stream(last + 1, 1));
}

#[test]
fn failures_of_all_workers_are_counted_exactly() {
    let terms = Terms { interval_ns: SECOND, capacity: 1_000 };
    let workers = workers();
    at_once(&workers, |limits| (0..200).for_each(|_| limits.charge_failure([9, 9], terms, SECOND)));
    assert_eq!(workers[0].failures_wait_ns([9, 9], terms, SECOND), 0);
    at_once(&workers, |limits| (0..50).for_each(|_| limits.charge_failure([9, 9], terms, SECOND)));
    assert_eq!(workers[0].failures_wait_ns([9, 9], terms, SECOND), SECOND);
    assert_eq!(workers[0].failures_wait_ns([9, 9], terms, 3 * SECOND), 0);
}

#[test]
fn new_keys_take_the_places_of_the_oldest() {
    let terms = Terms { interval_ns: SECOND, capacity: 1 };
    let workers = workers();
    at_once(&workers, |limits| {
        let first = limits.worker as u64 * 100_000;
        (0..40_000u64).for_each(|key| limits.charge_failure([first + key, key], terms, SECOND + key));
    });
    let is_known = |key: &u64| workers[0].failures_wait_ns([*key, *key], terms, SECOND) > 0;
    assert_eq!((39_900..40_000).filter(is_known).count(), 100);
    assert_eq!((0..1_000).filter(is_known).count(), 0);
}

#[test]
fn the_lock_of_a_worker_that_was_killed_ends_with_its_clearing() {
    let workers = workers();
    let terms = Terms { interval_ns: SECOND, capacity: 1 };
    workers[0].charge_failure([5, 5], terms, SECOND);
    let set = &workers[0].memory.words()[HEADER_WORDS + 5 * 25..];
    // As a process leaves them that is killed while it writes a key.
    set[0].store(3, std::sync::atomic::Ordering::SeqCst);
    set[4].store(u64::MAX, std::sync::atomic::Ordering::SeqCst);
    workers[1].charge_failure([5, 6], terms, SECOND);
    workers[1].charge_failure([5, 5], terms, SECOND);
    assert_eq!(workers[1].failures_wait_ns([5, 6], terms, SECOND), 0);
    assert_eq!(workers[1].failures_wait_ns([5, 5], terms, SECOND), 2 * SECOND);
    workers[1].clear_worker(1);
    assert_eq!(set[0].load(std::sync::atomic::Ordering::SeqCst), 3);
    workers[1].clear_worker(2);
    workers[1].charge_failure([5, 6], terms, SECOND);
    assert_eq!(workers[1].failures_wait_ns([5, 6], terms, SECOND), SECOND);
}

#[test]
fn a_balance_stays_when_the_terms_change() {
    let (workers, place) = (workers(), 0);
    assert_eq!(workers[0].recipient([1, 1]), place);
    let (old, new) =
        (Terms { interval_ns: SECOND, capacity: 5 }, Terms { interval_ns: SECOND / 10, capacity: 50 });
    let bucket = workers[0].bucket(place, Kind::Files);
    bucket.set_terms(old, SECOND);
    bucket.charge(7, old, SECOND);
    for limits in &workers {
        limits.bucket(place, Kind::Files).set_terms(new, SECOND);
    }
    assert_eq!(bucket.wait_ns(0, new, SECOND), SECOND / 5);
    bucket.set_terms(old, SECOND);
    assert_eq!(bucket.wait_ns(0, old, SECOND), 2 * SECOND);
    // What was saved up counts up to the new capacity.
    bucket.set_terms(new, 100 * SECOND);
    assert_eq!(bucket.wait_ns(5, new, 100 * SECOND), 0);
    assert_eq!(bucket.wait_ns(6, new, 100 * SECOND), SECOND / 10);
}

proptest! {
    #[test]
    fn a_bucket_agrees_with_one_that_counts_second_by_second(
        steps in prop::collection::vec((0u64..30, 0u64..5), 0..40), rate in 1u64..10, capacity in 1u64..20,
    ) {
        let terms = Terms { interval_ns: 2520 * SECOND / rate, capacity };
        let (workers, mut now) = (workers(), 2520 * SECOND);
        let place = workers[0].recipient([1, 1]);
        let mut level = capacity as i64;
        for (step, (ticks, taken)) in steps.into_iter().enumerate() {
            let bucket = workers[step % WORKERS].bucket(place, Kind::Requests);
            now += ticks * 2520 * SECOND;
            level = (level + (ticks * rate) as i64).min(capacity as i64);
            let wait = (taken as i64 - level).max(0) as u64 * terms.interval_ns;
            prop_assert_eq!(bucket.wait_ns(taken, terms, now), wait);
            prop_assert_eq!(bucket.take(taken, terms, now, 0), wait);
            if wait > 0 {
                bucket.charge(taken, terms, now);
            }
            level -= taken as i64;
        }
    }
}
