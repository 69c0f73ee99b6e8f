//! `/metrics` over HTTP, for Prometheus and its like.
//!
//! Nobody has to prove who he is, so what a peer can cost is bounded: connections, the bytes of a request, the time of
//! both. A thread of its own serves; whoever measures is not held up.

use std::{
    convert::Infallible,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    sync::Arc,
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
use tokio::{net::TcpStream, sync::Semaphore, time};

/// What `prometheus_client::encoding::text` writes.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const CONNECTIONS: usize = 16;
/// Of a request's head; hyper takes no less.
const REQUEST: usize = 8192;
const HEAD_TIME: Duration = Duration::from_secs(2);
const CONNECTION_TIME: Duration = Duration::from_secs(10);
/// When there is no descriptor for another connection.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves what `text` returns at the moment of asking, until the process ends. Returns the address, with the port the
/// system chose for 0.
///
/// # Errors
/// If the address cannot be bound.
pub(crate) fn serve(
    address: SocketAddr,
    text: impl Fn() -> String + Send + Sync + 'static,
) -> anyhow::Result<SocketAddr> {
    let bound = TcpListener::bind(address).with_context(|| format!("cannot serve metrics at {address}"))?;
    bound.set_nonblocking(true)?;
    let at = bound.local_addr()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let serve = move || match runtime.block_on(accept(bound, Arc::new(text))) {
        Ok(never) => match never {},
        Err(error) => tracing::error!("metrics are not served any more: {error}"),
    };
    thread::Builder::new().name("naa-metrics".into()).spawn(serve)?;
    Ok(at)
}

/// `PORT` is loopback's: the metrics tell anybody who can reach them.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    let loopback =
        || text.trim_start_matches(':').parse().ok().map(|port| (Ipv4Addr::LOCALHOST, port).into());
    text.parse()
        .ok()
        .or_else(loopback)
        .ok_or_else(|| "write an address and a port, such as 127.0.0.1:9100, or a port of loopback".into())
}

async fn accept(
    listener: TcpListener,
    text: Arc<impl Fn() -> String + Send + Sync + 'static>,
) -> std::io::Result<Infallible> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let place = places.clone().acquire_owned().await.map_err(std::io::Error::other)?;
        let Ok((stream, _)) = listener.accept().await else {
            time::sleep(PAUSE).await;
            continue;
        };
        let text = text.clone();
        tokio::spawn(async move {
            let _ = time::timeout(CONNECTION_TIME, connection(stream, &*text)).await;
            drop(place);
        });
    }
}

async fn connection(stream: TcpStream, text: &(impl Fn() -> String + Send + Sync)) {
    let answer = |request: Request<Incoming>| {
        let answer = answer(request.method(), request.uri().path(), text);
        async { Ok::<_, Infallible>(answer) }
    };
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME).max_buf_size(REQUEST).keep_alive(false);
    if let Err(error) = http.serve_connection(TokioIo::new(stream), service_fn(answer)).await {
        tracing::debug!("a request for metrics: {error}");
    }
}

fn answer(method: &Method, path: &str, text: impl Fn() -> String) -> Response<Full<Bytes>> {
    let (status, kind, body) = match (method, path) {
        (&Method::GET | &Method::HEAD, "/metrics") => (StatusCode::OK, OPEN_METRICS, text()),
        (_, "/metrics") => (StatusCode::METHOD_NOT_ALLOWED, "text/plain", "GET it\n".into()),
        _ => (StatusCode::NOT_FOUND, "text/plain", "there is /metrics\n".into()),
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
        // A peer that closes early is an answer too.
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
        // As many as there are places say nothing; the next one waits for them, not for ever.
        let silent: Vec<_> = (0..CONNECTIONS).map(|_| std::net::TcpStream::connect(at).unwrap()).collect();
        let begin = Instant::now();
        assert!(ask(at, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").contains("naa_x 1"));
        assert!(begin.elapsed() < CONNECTION_TIME);
        drop(silent);
    }

    #[test]
    fn a_port_alone_is_loopbacks() {
        assert_eq!(address("9100"), Ok("127.0.0.1:9100".parse().unwrap()));
        assert_eq!(address(":9100"), address("9100"));
        assert_eq!(address("[::]:9100"), Ok("[::]:9100".parse().unwrap()));
        assert!(address("here").is_err() && address("127.0.0.1").is_err());
    }
}
