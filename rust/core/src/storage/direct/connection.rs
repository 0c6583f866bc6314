//! A connection to a store, opened by blocking calls and then used without any.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection};
use rustls_platform_verifier::Verifier;

use super::super::addresses;
use super::super::transport::ca_bundle;

/// Maximum age of a connection: the store's addresses change.
const MAX_AGE: Duration = Duration::from_secs(300);

/// Bytes of an answer after which no more are received: it is another one than an expected one.
const MAX_RECEIVED_BYTES: usize = 64 * 1024;

/// The address of a store.
pub(super) struct Endpoint {
    host: String,
    port: u16,
    is_tls: bool,
}

impl Endpoint {
    /// Parses `http(s)://host[:port]`.
    pub(super) fn parse(origin: &str) -> Option<Self> {
        let url = url::Url::parse(origin).ok()?;
        let host = url.host_str()?.trim_matches(['[', ']']).to_owned();
        Some(Self { host, port: url.port_or_known_default()?, is_tls: url.scheme() == "https" })
    }
}

#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    session: Option<Box<ClientConnection>>,
    opened_at: Instant,
    /// A forked child must not write to its parent's connections.
    process_id: u32,
}

impl Connection {
    /// Connects, with each step within `timeout`. Blocks.
    pub(super) fn open(endpoint: &Endpoint, timeout: Duration) -> io::Result<Self> {
        let mut stream = connect(endpoint, timeout)?;
        stream.set_nodelay(true)?;
        let session = if endpoint.is_tls {
            stream.set_read_timeout(Some(timeout))?;
            stream.set_write_timeout(Some(timeout))?;
            Some(Box::new(handshake(endpoint, &mut stream)?))
        } else {
            None
        };
        stream.set_nonblocking(true)?;
        Ok(Self { stream, session, opened_at: Instant::now(), process_id: std::process::id() })
    }

    /// Returns whether requests can be sent: the store has not closed the connection, nor sent anything unasked.
    pub(super) fn is_usable(&mut self) -> bool {
        let mut unasked = Vec::new();
        self.opened_at.elapsed() < MAX_AGE
            && self.process_id == std::process::id()
            && self.receive(&mut unasked).is_ok()
            && unasked.is_empty()
    }

    /// Sends a whole request, which fits into the socket's empty buffer.
    pub(super) fn send(&mut self, request: &[u8]) -> io::Result<()> {
        match &mut self.session {
            None => self.stream.write_all(request),
            Some(session) => {
                session.writer().write_all(request)?;
                while session.wants_write() {
                    session.write_tls(&mut self.stream)?;
                }
                Ok(())
            }
        }
    }

    /// Appends the bytes that have arrived. The end of the connection is an error.
    pub(super) fn receive(&mut self, received: &mut Vec<u8>) -> io::Result<()> {
        match &mut self.session {
            None => append(&mut self.stream, received),
            Some(session) => {
                match session.read_tls(&mut self.stream) {
                    Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                    Ok(_) => {
                        session.process_new_packets().map_err(io::Error::other)?;
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                    Err(error) => return Err(error),
                }
                append(&mut session.reader(), received)
            }
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

fn append(from: &mut impl Read, received: &mut Vec<u8>) -> io::Result<()> {
    let mut piece = [0; 2048];
    loop {
        match from.read(&mut piece) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(length) => {
                received.extend_from_slice(&piece[..length]);
                if length < piece.len() || received.len() > MAX_RECEIVED_BYTES {
                    return Ok(());
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn connect(endpoint: &Endpoint, timeout: Duration) -> io::Result<TcpStream> {
    let mut failure = io::Error::from(ErrorKind::AddrNotAvailable);
    for address in addresses::of_host(&endpoint.host, endpoint.port)? {
        match TcpStream::connect_timeout(&address, timeout) {
            Ok(stream) => return Ok(stream),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

fn handshake(endpoint: &Endpoint, stream: &mut TcpStream) -> io::Result<ClientConnection> {
    let authorities = CertificateDer::pem_slice_iter(&ca_bundle()?).collect::<Result<Vec<_>, _>>();
    let builder = ClientConfig::builder();
    let verifier = Verifier::new_with_extra_roots(
        authorities.map_err(io::Error::other)?,
        Arc::clone(builder.crypto_provider()),
    );
    let verifier = Arc::new(verifier.map_err(io::Error::other)?);
    let mut config = builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let name = ServerName::try_from(endpoint.host.clone()).map_err(io::Error::other)?;
    let mut session = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
    while session.is_handshaking() {
        session.complete_io(stream)?;
    }
    Ok(session)
}
