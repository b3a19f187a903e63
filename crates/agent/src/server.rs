//! Hands metrics out over HTTP, and lets no client use more than a little of the agent: few connections, small requests, all of it within
//! a time limit, a limit of answers a second, two paths.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::metrics::{Store, encode, negotiate};

/// Connections at a time. A scraper needs one.
const MOST_CONNECTIONS: usize = 16;
/// Bytes of a request's head. Prometheus sends 400.
const LONGEST_HEAD: usize = 8 << 10;
/// Header fields of a request.
const MOST_HEADERS: usize = 64;
/// From accepting a connection to the last byte of the answer.
const TIME_LIMIT: Duration = Duration::from_secs(5);
/// Answers with metrics a second, for all clients together. Scrapers come every few seconds.
const MOST_ANSWERS: u32 = 20;
/// Each connection has a thread.
const STACK_BYTES: usize = 256 << 10;

const ABOUT: &str = "lockmeter agent: the metrics are at /metrics\n";

/// The store, shared by who meters and who serves.
pub type Shared = Arc<Mutex<Store>>;

/// The store, also after a thread that had it panicked: its numbers are whole between two additions.
pub fn locked(store: &Shared) -> MutexGuard<'_, Store> {
    store.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Server {
    store: Shared,
    connections: AtomicUsize,
    /// When the present second began, and the answers in it.
    answers: Mutex<(Instant, u32)>,
}

/// Serves from now on, until the process ends. Returns the address, whose port the kernel has chosen if 0 was asked for.
pub fn serve(address: SocketAddr, store: Shared) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(address)?;
    let bound = listener.local_addr()?;
    let answers = Mutex::new((Instant::now(), 0));
    let server = Arc::new(Server { store, connections: AtomicUsize::new(0), answers });
    thread::Builder::new().name("http".into()).stack_size(STACK_BYTES).spawn(move || {
        loop {
            match listener.accept() {
                Ok((stream, _)) => take(&server, stream),
                // Out of descriptors, for example: not a busy loop.
                Err(_) => thread::sleep(Duration::from_millis(100)),
            }
        }
    })?;
    Ok(bound)
}

fn take(server: &Arc<Server>, stream: TcpStream) {
    if server.connections.fetch_add(1, Ordering::Relaxed) >= MOST_CONNECTIONS {
        server.connections.fetch_sub(1, Ordering::Relaxed);
        locked(&server.store).count_request("too_many_connections");
        return;
    }
    let of_thread = Arc::clone(server);
    let answer = move || {
        let result = of_thread.answer(stream).unwrap_or("connection_lost");
        locked(&of_thread.store).count_request(result);
        of_thread.connections.fetch_sub(1, Ordering::Relaxed);
    };
    if thread::Builder::new().name("http-answer".into()).stack_size(STACK_BYTES).spawn(answer).is_err() {
        server.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What a request asks for.
struct Request {
    path: String,
    is_head: bool,
    accept: String,
}

/// How an answer begins, and what it is counted as.
type Refusal = (&'static str, &'static str);

impl Server {
    fn answer(&self, mut stream: TcpStream) -> io::Result<&'static str> {
        let end = Instant::now() + TIME_LIMIT;
        let request = match read_request(&mut stream, end) {
            Ok(request) => request,
            Err(error) if matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock) => return Ok("too_slow"),
            Err(error) => return Err(error),
        };
        let request = match request {
            Ok(request) => request,
            Err((status, result)) => return send(&mut stream, end, status, "text/plain", b"", false).map(|()| result),
        };
        let (status, kind, body, result) = match request.path.as_str() {
            "/metrics" if !self.may_answer() => {
                ("429 Too Many Requests", "text/plain", Vec::new(), "too_many_requests")
            }
            "/metrics" => {
                let format = negotiate(&request.accept);
                let families = locked(&self.store).families();
                ("200 OK", format.content_type(), encode(&families, format), format.name())
            }
            "/" => ("200 OK", "text/plain", ABOUT.as_bytes().to_vec(), "about"),
            _ => ("404 Not Found", "text/plain", Vec::new(), "not_found"),
        };
        match send(&mut stream, end, status, kind, &body, request.is_head) {
            Err(error) if matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock) => Ok("too_slow"),
            sent => sent.map(|()| result),
        }
    }

    fn may_answer(&self) -> bool {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        if answers.0.elapsed() >= Duration::from_secs(1) {
            *answers = (Instant::now(), 0);
        }
        answers.1 += 1;
        answers.1 <= MOST_ANSWERS
    }
}

/// What is left of the time, for the next read or write.
fn left(end: Instant) -> io::Result<Duration> {
    let left = end.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

fn read_request(stream: &mut TcpStream, end: Instant) -> io::Result<Result<Request, Refusal>> {
    let mut head = Vec::new();
    let mut piece = [0; 1024];
    loop {
        stream.set_read_timeout(Some(left(end)?))?;
        let read = stream.read(&mut piece)?;
        if read == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        head.extend_from_slice(&piece[..read]);
        let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
        let mut request = httparse::Request::new(&mut headers);
        match request.parse(&head) {
            Ok(httparse::Status::Complete(_)) => return Ok(understand(&request)),
            Ok(httparse::Status::Partial) if head.len() <= LONGEST_HEAD => {}
            Err(httparse::Error::TooManyHeaders) | Ok(_) => {
                return Ok(Err(("431 Request Header Fields Too Large", "too_large")));
            }
            Err(_) => return Ok(Err(("400 Bad Request", "not_http"))),
        }
    }
}

fn understand(request: &httparse::Request<'_, '_>) -> Result<Request, Refusal> {
    let is_head = match request.method {
        Some("GET") => false,
        Some("HEAD") => true,
        _ => return Err(("405 Method Not Allowed", "bad_method")),
    };
    let path = request.path.unwrap_or("").split('?').next().unwrap_or("").to_owned();
    let values = request.headers.iter().filter(|header| header.name.eq_ignore_ascii_case("accept"));
    let values: Vec<&str> = values.filter_map(|header| std::str::from_utf8(header.value).ok()).collect();
    Ok(Request { path, is_head, accept: values.join(",") })
}

fn send(stream: &mut TcpStream, end: Instant, status: &str, kind: &str, body: &[u8], is_head: bool) -> io::Result<()> {
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n",
        body.len()
    );
    for mut rest in [head.as_bytes(), if is_head { b"" } else { body }] {
        while !rest.is_empty() {
            stream.set_write_timeout(Some(left(end)?))?;
            let written = stream.write(rest)?;
            rest = &rest[written..];
        }
    }
    Ok(())
}
