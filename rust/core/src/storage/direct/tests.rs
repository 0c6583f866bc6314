//! Exchanges with a server that does what a test needs: keeps connections, closes them, or answers something else.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};

use super::*;

const ABSENT: &str = "HTTP/1.1 404 Not Found\r\n\r\n";
const PRESENT: &str =
    "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nLast-Modified: Thu, 01 Jan 1970 00:00:09 GMT\r\n\r\n";
const KEYS: [&str; 2] = ["t/_delta_log/1.json", "t/_delta_log/0.json"];

struct Server {
    direct: Direct,
    accepted: Receiver<TcpStream>,
}

impl Server {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let direct =
            Direct::new(Duration::from_millis(50), Duration::from_secs(3), Duration::from_millis(100));
        direct.sign_by(S3Options {
            endpoint: Some(format!("http://{}", listener.local_addr().unwrap())),
            ..S3Options::new("bucket", "us-east-1", "id", "secret")
        });
        let (sender, accepted) = channel();
        std::thread::spawn(move || listener.incoming().map_while(|one| sender.send(one.ok()?).ok()).count());
        Self { direct, accepted }
    }

    /// The server's sides of two connections that the client then has idle.
    fn open(&self) -> [TcpStream; 2] {
        assert!(self.direct.send(KEYS).is_none(), "the first request opens connections");
        let opened = [self.accepted.recv().unwrap(), self.accepted.recv().unwrap()];
        for connection in &opened {
            // A test that waits for a request fails instead of never ending.
            connection.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        }
        self.wait_for_idle(2);
        opened
    }

    fn wait_for_idle(&self, count: usize) {
        while lock(&self.direct.connections.0).idle.len() < count {
            std::thread::yield_now();
        }
    }

    fn idle(&self) -> usize {
        lock(&self.direct.connections.0).idle.len()
    }
}

/// Returns which of the connections has the request for each key. None is read: a connection without a request would be
/// waited for.
fn sides(connections: &[TcpStream; 2]) -> [usize; 2] {
    KEYS.map(|key| {
        let has_request = |connection: &TcpStream| {
            let mut bytes = [0; 4096];
            let length = connection.peek(&mut bytes).unwrap();
            let text = std::str::from_utf8(&bytes[..length]).unwrap();
            text.starts_with(&format!("HEAD /bucket/{key} HTTP/1.1\r\n"))
        };
        connections.iter().position(has_request).unwrap()
    })
}

fn answer(mut connection: &TcpStream, text: &str) {
    let mut bytes = [0; 4096];
    assert!(connection.read(&mut bytes).unwrap() > 100);
    connection.write_all(text.as_bytes()).unwrap();
}

/// Receives until the exchange has ended or failed.
fn receive(exchange: &mut Exchange) -> Option<[Option<FileProperties>; 2]> {
    loop {
        for index in [0, 1] {
            match exchange.receive(index) {
                Progress::Ended(found) => return Some(found),
                Progress::Failed => return None,
                Progress::Pending | Progress::Half => std::thread::yield_now(),
            }
        }
    }
}

#[test]
fn answers_arrive_in_any_order_and_connections_are_used_again() {
    let server = Server::start();
    let connections = server.open();
    for order in [[0, 1], [1, 0]] {
        let mut exchange = server.direct.send(KEYS).unwrap();
        assert!(matches!(exchange.receive(0), Progress::Pending));
        let sides = sides(&connections);
        for index in order {
            answer(&connections[sides[index]], [ABSENT, PRESENT][index]);
        }
        let [next, known] = receive(&mut exchange).unwrap();
        assert_eq!((next, known.unwrap().modified_s), (None, 9));
        exchange.end();
        assert_eq!(server.idle(), 2);
    }
    assert!(server.accepted.try_recv().is_err(), "no other connection was opened");
}

#[test]
fn a_connection_that_the_store_closed_or_answered_unasked_is_not_used() {
    let server = Server::start();
    let [first, second] = server.open();
    drop(first);
    (&second).write_all(PRESENT.as_bytes()).unwrap();
    while server.direct.send(KEYS).is_some() {
        std::thread::yield_now();
    }
    assert!(server.accepted.recv().is_ok() && server.accepted.recv().is_ok(), "others are opened");
}

#[test]
fn any_other_answer_and_the_end_of_a_connection_fail_the_exchange() {
    for (texts, is_cut) in [
        ([ABSENT, "HTTP/1.1 403 Forbidden\r\n\r\n"], false),
        (["HTTP/1.1 503 Slow Down\r\n\r\n", PRESENT], false),
        ([ABSENT, "HTTP/1.1 200 OK\r\nContent-Le"], true),
        (["", PRESENT], true),
    ] {
        let server = Server::start();
        let connections = server.open();
        let mut exchange = server.direct.send(KEYS).unwrap();
        for (side, text) in sides(&connections).into_iter().zip(texts) {
            answer(&connections[side], text);
        }
        if is_cut {
            drop(connections);
        }
        assert_eq!(receive(&mut exchange), None, "{texts:?}");
        exchange.end();
        assert!(server.idle() < 2);
    }
}

#[test]
fn connections_that_the_store_closes_are_answered_and_then_pause_exchanges() {
    let server = Server::start();
    for exchanges in 1..=MAX_FAILURES {
        let connections = server.open();
        let mut exchange = server.direct.send(KEYS).unwrap();
        for (side, text) in sides(&connections).into_iter().zip([ABSENT, PRESENT]) {
            let text = text.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n");
            answer(&connections[side], &text);
        }
        assert!(receive(&mut exchange).is_some());
        exchange.end();
        assert_eq!((server.idle(), exchanges), (0, exchanges));
    }
    assert!(server.direct.send(KEYS).is_none());
    assert_eq!(lock(&server.direct.connections.0).opening, 0, "nothing is opened");
}

#[test]
fn a_request_that_is_not_answered_in_time_is_late() {
    let server = Server::start();
    let _connections = server.open();
    let exchange = server.direct.send(KEYS).unwrap();
    assert!(!exchange.is_late(Instant::now()));
    assert!(exchange.is_late(Instant::now() + Duration::from_millis(50)) && exchange.may_repeat_when_late());
    exchange.end();
    assert_eq!(server.idle(), 0);
}

#[test]
fn nothing_is_sent_without_keys_or_with_keys_that_no_header_holds() {
    let server = Server::start();
    let _connections = server.open();
    server.direct.sign_by(S3Options::new("bucket", "us-east-1", "two\r\nlines", "secret"));
    assert!(server.direct.send(KEYS).is_none());
    let without_keys = Direct::new(Duration::from_secs(1), Duration::from_secs(1), Duration::ZERO);
    assert!(without_keys.send(KEYS).is_none());
}

#[test]
fn requests_are_signed_again_with_each_second_key_and_replacement_of_the_keys() {
    let server = Server::start();
    let signer = || server.direct.signer.read().unwrap().clone().unwrap();
    let requests = |keys| server.direct.signed(signer(), keys).unwrap();
    let first = requests(KEYS);
    // At most one second ends in between.
    assert!(Arc::ptr_eq(&requests(KEYS), &requests(KEYS)) || Arc::ptr_eq(&requests(KEYS), &requests(KEYS)));
    assert_ne!(requests(["t/_delta_log/2.json", KEYS[1]])[0], first[0]);
    let before = requests(KEYS);
    server.direct.sign_by(S3Options {
        session_token: Some("token".to_owned()),
        ..S3Options::new("bucket", "us-east-1", "id", "secret")
    });
    let text = String::from_utf8(requests(KEYS)[0].clone()).unwrap();
    assert!(text.contains("\r\nx-amz-security-token:token\r\n") && !Arc::ptr_eq(&before, &requests(KEYS)));
    if let Some(known) = &mut *lock(&server.direct.signed) {
        known.seconds -= 1;
    }
    let stale = lock(&server.direct.signed).as_ref().map(|known| Arc::clone(&known.requests)).unwrap();
    assert!(!Arc::ptr_eq(&stale, &requests(KEYS)));
}
