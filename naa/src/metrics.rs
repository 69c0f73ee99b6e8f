//! Serves `/metrics` over HTTP, for Prometheus and similar programs.
//!
//! Clients are not authenticated, so the cost of each is bounded: the number of connections, the bytes of a request,
//! and the time of both. Connections are shared fairly among source networks, so that a peer with idle connections does
//! not keep another peer waiting. The server has a thread of its own, so the threads that update the counters do not
//! wait for it.

pub(crate) mod families;

use std::{
    convert::Infallible,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    sync::{Arc, OnceLock},
    thread,
    time::Duration,
};

use anyhow::Context as _;
use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Bytes, Incoming},
    header::CONTENT_TYPE,
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use naa_grpc::connections::{self, ConnectionLimits, TcpConnection};
use tokio::{sync::mpsc, time};

/// The content type of the text that `prometheus_client::encoding::text` writes.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const CONNECTIONS: usize = 16;
/// The longest head of a request in bytes; hyper accepts no lower limit.
const REQUEST: usize = 8192;
const HEAD_TIME: Duration = Duration::from_secs(2);
const CONNECTION_TIME: Duration = Duration::from_secs(10);

/// Serves the text that `text` returns at the time of each request, until the process ends. Returns the address; if the port was 0, it
/// has the port that the system chose.
///
/// # Errors
/// If the address cannot be bound.
pub(crate) fn serve(
    address: SocketAddr,
    text: impl Fn() -> String + Send + Sync + 'static,
) -> anyhow::Result<SocketAddr> {
    serve_pages(address, Pages { text: Box::new(text), ready: None })
}

/// Serves the same, and in addition `/healthz`, which answers 200 while the process lives, and `/readyz`, which answers 200 if `ready`
/// returns `Ok`, and 503 with the reason if not.
///
/// # Errors
/// The same errors as [`serve`] returns.
pub(crate) fn serve_with_health(
    address: SocketAddr,
    text: impl Fn() -> String + Send + Sync + 'static,
    ready: impl Fn() -> Result<(), String> + Send + Sync + 'static,
) -> anyhow::Result<SocketAddr> {
    serve_pages(address, Pages { text: Box::new(text), ready: Some(Box::new(ready)) })
}

/// The functions that make the pages.
struct Pages {
    text: Box<dyn Fn() -> String + Send + Sync>,
    ready: Option<Box<dyn Fn() -> Result<(), String> + Send + Sync>>,
}

fn serve_pages(address: SocketAddr, pages: Pages) -> anyhow::Result<SocketAddr> {
    let bound = TcpListener::bind(address).with_context(|| format!("cannot serve metrics at {address}"))?;
    bound.set_nonblocking(true)?;
    let at = bound.local_addr()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let serve = move || {
        if let Err(error) = runtime.block_on(serve_connections(bound, Arc::new(pages))) {
            tracing::error!("metrics are not served any more: {error}");
        }
    };
    thread::Builder::new().name("naa-metrics".into()).spawn(serve)?;
    Ok(at)
}

/// Reads an address. `PORT` alone is a port on loopback, because everybody who can reach the metrics can read them.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    let loopback =
        || text.trim_start_matches(':').parse().ok().map(|port| (Ipv4Addr::LOCALHOST, port).into());
    text.parse()
        .ok()
        .or_else(loopback)
        .ok_or_else(|| "write an address and a port, such as 127.0.0.1:9100, or a port of loopback".into())
}

async fn serve_connections(listener: TcpListener, pages: Arc<Pages>) -> std::io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let limits = ConnectionLimits {
        connections: CONNECTIONS,
        request_timeout: HEAD_TIME,
        permits: Box::new(|_| true),
    };
    let (taken, mut connections) = mpsc::channel(1);
    tokio::spawn(connections::accept(listener, limits, taken));
    while let Some(connection) = connections.recv().await {
        let (connection, pages) = (connection?, pages.clone());
        tokio::spawn(
            async move { time::timeout(CONNECTION_TIME, serve_connection(connection, &pages)).await },
        );
    }
    Ok(())
}

async fn serve_connection(connection: TcpConnection, pages: &Pages) {
    let (requests, in_progress) = (connection.requests(), OnceLock::new());
    let answer = |request: Request<Incoming>| {
        // There is one request, and it is in progress until the connection ends.
        in_progress.get_or_init(|| requests.begin());
        let answer = answer(request.method(), request.uri().path(), pages);
        async { Ok::<_, Infallible>(answer) }
    };
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME).max_buf_size(REQUEST).keep_alive(false);
    if let Err(error) = http.serve_connection(TokioIo::new(connection), service_fn(answer)).await {
        tracing::debug!("a request for metrics: {error}");
    }
}

fn answer(method: &Method, path: &str, pages: &Pages) -> Response<Full<Bytes>> {
    const PLAIN: &str = "text/plain";
    let is_asked = matches!(*method, Method::GET | Method::HEAD);
    let (status, kind, body) = match (path, &pages.ready) {
        ("/metrics", _) | ("/healthz" | "/readyz", Some(_)) if !is_asked => {
            (StatusCode::METHOD_NOT_ALLOWED, PLAIN, "use GET\n".into())
        }
        ("/metrics", _) => (StatusCode::OK, OPEN_METRICS, (pages.text)()),
        ("/healthz", Some(_)) => (StatusCode::OK, PLAIN, "ok\n".into()),
        ("/readyz", Some(ready)) => match ready() {
            Ok(()) => (StatusCode::OK, PLAIN, "ok\n".into()),
            Err(why) => (StatusCode::SERVICE_UNAVAILABLE, PLAIN, format!("{why}\n")),
        },
        (_, Some(_)) => (StatusCode::NOT_FOUND, PLAIN, "there are /metrics, /healthz and /readyz\n".into()),
        (_, None) => (StatusCode::NOT_FOUND, PLAIN, "there is /metrics\n".into()),
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(kind));
    response
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::time::Instant;

    use super::*;

    fn served() -> SocketAddr {
        serve((Ipv4Addr::LOCALHOST, 0).into(), || "naa_x 1\n".to_owned()).unwrap()
    }

    fn ask(at: SocketAddr, request: &[u8]) -> String {
        let mut stream = std::net::TcpStream::connect(at).unwrap();
        // If the server closes the connection early, writing fails, which is an expected result, too.
        let _ = stream.write_all(request);
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer
    }

    #[test]
    fn metrics_are_answered_and_nothing_else() {
        let at = served();
        let answer = ask(at, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("\r\n\r\nnaa_x 1\n"), "{answer}");
        assert!(answer.contains("content-type: application/openmetrics-text"), "{answer}");
        assert!(ask(at, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").starts_with("HTTP/1.1 404"));
        assert!(ask(at, b"POST /metrics HTTP/1.1\r\nHost: x\r\n\r\n").starts_with("HTTP/1.1 405"));
        assert!(ask(at, b"nonsense\r\n\r\n").starts_with("HTTP/1.1 400"));
    }

    #[test]
    fn a_request_is_bounded_in_size_and_time() {
        let at = served();
        let long = [b"GET /metrics HTTP/1.1\r\nX: ".as_slice(), &vec![b'x'; 1 << 20]].concat();
        assert!(ask(at, &long).starts_with("HTTP/1.1 431") || ask(at, &long).is_empty());
        let begin = Instant::now();
        assert_eq!(ask(at, b"GET /metrics HTTP/1.1\r\n"), "", "it says no more");
        assert!(begin.elapsed() < CONNECTION_TIME, "{:?}", begin.elapsed());
    }

    #[test]
    fn idle_connections_keep_no_scrape_waiting() {
        let at = served();
        // Each connection sends half a request, from the scraper's own address.
        let connect = || {
            let mut stream = std::net::TcpStream::connect(at).unwrap();
            let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\n");
            stream
        };
        let idle: Vec<_> = (0..200).map(|_| connect()).collect();
        let begin = Instant::now();
        for _ in 0..3 {
            assert!(ask(at, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").contains("naa_x 1"));
        }
        assert!(begin.elapsed() < HEAD_TIME, "{:?}", begin.elapsed());
        drop(idle);
    }

    #[test]
    fn a_port_alone_is_loopbacks() {
        assert_eq!(address("9100"), Ok("127.0.0.1:9100".parse().unwrap()));
        assert_eq!(address(":9100"), address("9100"));
        assert_eq!(address("[::]:9100"), Ok("[::]:9100".parse().unwrap()));
        assert!(address("here").is_err() && address("127.0.0.1").is_err());
    }
}
