//! Those who run the lender: a Unix socket that answers a line with a line, and metrics over HTTP.
//!
//! | line | answer |
//! |---|---|
//! | `state` | [`State`] as JSON |
//! | `reload` | `ok`, or `error: ` and what is wrong with the file; then nothing has changed |

use std::convert::Infallible;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::CONTENT_TYPE;
use hyper::{Request, Response, StatusCode, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use nix::sys::stat::{Mode, umask};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::Semaphore;

use crate::config::{Config, Wrong};
use crate::lender::{Lender, accepted};
use crate::node::Memory;
use crate::state::State;
use crate::strangers::Strangers;

/// A line and its answer take no longer.
const PATIENCE: Duration = Duration::from_secs(10);
/// A scraper asks at once.
const QUESTION: Duration = Duration::from_secs(2);
/// On the control socket at the same time.
const VISITORS: usize = 8;
const LINE_MAX: u64 = 256;
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Makes the socket, in place of one that a former lender has left; only its user and group may use it.
pub fn bind(path: &Path) -> io::Result<UnixListener> {
    match std::os::unix::net::UnixStream::connect(path) {
        Ok(_) => return Err(io::Error::new(io::ErrorKind::AddrInUse, "another lender answers there")),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path)?,
        Err(_) => (),
    }
    let mask = umask(Mode::from_bits_truncate(0o117)); // so at no time is it anybody else's
    let listener = UnixListener::bind(path);
    umask(mask);
    listener
}

/// Answers on the control socket, for ever.
pub async fn listen(lender: Arc<Lender>, listener: UnixListener, config: PathBuf) {
    let (room, config) = (Arc::new(Semaphore::new(VISITORS)), Arc::new(config));
    loop {
        let place = Arc::clone(&room).acquire_owned().await.expect("it is never closed");
        let Some((stream, _)) = accepted(listener.accept().await).await else { continue };
        let (lender, config) = (Arc::clone(&lender), Arc::clone(&config));
        tokio::spawn(async move {
            let _ = tokio::time::timeout(PATIENCE, answer(&lender, stream, &config)).await;
            drop(place);
        });
    }
}

async fn answer(lender: &Lender, mut stream: UnixStream, config: &Path) -> io::Result<()> {
    let (read, mut write) = stream.split();
    let mut line = String::new();
    BufReader::new(read.take(LINE_MAX)).read_line(&mut line).await?;
    let said = match line.trim() {
        "state" => serde_json::to_string(&State::of(lender))?,
        "reload" => reload(lender, config).map_or_else(|wrong| format!("error: {wrong}"), |()| "ok".to_owned()),
        other => format!("error: {other:?}: say state or reload"),
    };
    write.write_all(format!("{}\n", said.replace('\n', " ")).as_bytes()).await
}

/// Whoever reads a file also takes it up before another reads it: the last to read it has the last word.
static RELOADING: Mutex<()> = Mutex::new(());

/// Takes the configuration from its file; if that is wrong, nothing changes.
pub fn reload(lender: &Lender, path: &Path) -> Result<(), Wrong> {
    let _one = RELOADING.lock().expect("nobody panics with it");
    let node = Memory::read().map_err(|error| Wrong::of_node(&error))?;
    let read = Config::read(path, &node);
    match &read {
        Ok(_) => tracing::info!(path = %path.display(), "configured anew"),
        Err(wrong) => tracing::error!(%wrong, "goes on as it was configured before"),
    }
    lender.configure(read?);
    Ok(())
}

/// Serves `/metrics`, and `/healthz` for probes, for ever. Whoever comes and asks nothing makes room for others.
pub async fn serve_metrics(lender: Arc<Lender>, listener: TcpListener) {
    let visitors = Arc::new(Strangers::default());
    for number in 0.. {
        let Some((stream, address)) = accepted(listener.accept().await).await else { continue };
        let (lender, visitors) = (Arc::clone(&lender), Arc::clone(&visitors));
        tokio::spawn(async move {
            let mut visitor = visitors.admit(number, address.ip());
            tokio::select! {
                _ = &mut visitor.cut => (),
                () = serve_visitor(lender, stream) => (),
            }
        });
    }
}

async fn serve_visitor(lender: Arc<Lender>, stream: TcpStream) {
    let service = service_fn(move |request| {
        let response = respond(&lender, &request);
        async move { Ok::<_, Infallible>(response) }
    });
    let mut http = http1::Builder::new();
    let connection = http
        .timer(TokioTimer::new())
        .header_read_timeout(QUESTION)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    let _ = tokio::time::timeout(PATIENCE, connection).await;
}

fn respond(lender: &Lender, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    let (status, kind, body) = match request.uri().path() {
        "/metrics" => (StatusCode::OK, OPEN_METRICS, State::of(lender).metrics()),
        "/healthz" => (StatusCode::OK, "text/plain", "ok\n".to_owned()),
        _ => (StatusCode::NOT_FOUND, "text/plain", "there are /metrics and /healthz\n".to_owned()),
    };
    let response = Response::builder().status(status).header(CONTENT_TYPE, kind);
    response.body(Full::new(Bytes::from(body))).expect("status and header are ones")
}
