//! Attackers of a control plane. All connections of an attacker come from one address.

use std::{
    net::{IpAddr, SocketAddr, UdpSocket},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use proto::{
    health::v1::{HealthCheckRequest, health_client::HealthClient},
    loadbalancer::{self as pb, load_balancer_client::LoadBalancerClient},
};
use tokio::task::JoinSet;
use tonic::{
    Code, Request, Status,
    transport::{Channel, Endpoint},
};

use super::attacker::{Kind, Stop, begun};

const CLIENTS: usize = 4;
/// The calls that one connection has in progress at a time.
const AT_A_TIME: usize = 32;
/// The longest wait for a connection, and for the answer to a call.
const TIME_LIMIT: Duration = Duration::from_secs(5);

/// What an attacker knows: the control plane's addresses, and a reservation of its own with its token and a worker session.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) grpc: SocketAddr,
    pub(super) sync: SocketAddr,
    pub(super) lb: String,
    pub(super) token: String,
    pub(super) session: String,
}

impl Known {
    pub(super) fn targets(&self) -> Vec<String> {
        let Self { grpc, sync, lb, token, session } = self;
        vec![grpc.to_string(), sync.to_string(), lb.clone(), token.clone(), session.clone()]
    }

    fn of(targets: &[String]) -> Result<Self, String> {
        let [grpc, sync, lb, token, session] = targets else { return Err("five targets are needed".into()) };
        let address = |text: &str| text.parse().map_err(|e| format!("{text}: {e}"));
        let [lb, token, session] = [lb, token, session].map(String::clone);
        Ok(Self { grpc: address(grpc)?, sync: address(sync)?, lb, token, session })
    }
}

pub(super) fn runtime() -> Result<tokio::runtime::Runtime, String> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())
}

pub(super) async fn connect(local: IpAddr, to: SocketAddr) -> Result<Channel, String> {
    let endpoint = Endpoint::from_shared(format!("http://{to}")).map_err(|e| e.to_string())?;
    let endpoint = endpoint.local_address(Some(local)).connect_timeout(TIME_LIMIT).timeout(TIME_LIMIT);
    endpoint.connect().await.map_err(|e| format!("{to}: {e}"))
}

pub(super) fn with_token<M>(message: M, token: &str) -> Request<M> {
    let mut request = Request::new(message);
    if let Ok(value) = format!("Bearer {token}").parse() {
        request.metadata_mut().insert("authorization", value);
    }
    request
}

pub(super) fn state(session: &str, fill: f32) -> pb::SendStateRequest {
    let session_id = session.to_owned();
    pb::SendStateRequest { session_id, fill_percent: fill, is_ready: true, ..Default::default() }
}

/// How many calls were answered in which way.
#[derive(Debug, Default)]
struct Counts {
    ok: AtomicU64,
    refused: AtomicU64,
    /// The control plane did not answer.
    none: AtomicU64,
    other: AtomicU64,
}

impl Counts {
    fn count<T>(&self, answer: &Result<T, Status>) {
        let counter = match answer.as_ref().err().map(Status::code) {
            None => &self.ok,
            Some(Code::PermissionDenied | Code::Unauthenticated | Code::ResourceExhausted) => &self.refused,
            Some(Code::Unavailable | Code::Cancelled | Code::Unknown | Code::DeadlineExceeded) => &self.none,
            Some(_) => &self.other,
        };
        counter.fetch_add(1, Relaxed);
    }

    /// The counts as text.
    ///
    /// # Errors
    /// If no call was answered at all, so that nothing was attacked; and if `Guesses` were answered.
    fn check(&self, kind: Kind) -> Result<String, String> {
        let [ok, refused, none, other] =
            [&self.ok, &self.refused, &self.none, &self.other].map(|count| count.load(Relaxed));
        let text = format!("{ok} answered, {refused} refused, {none} without an answer, {other} others");
        match kind {
            _ if ok + refused + other == 0 => Err(format!("the control plane answered no call: {text}")),
            Kind::Guesses if ok > 0 => Err(format!("calls with guessed tokens were answered: {text}")),
            _ => Ok(text),
        }
    }
}

/// Makes calls as fast as they are answered, on several connections. A connection that ends is made again.
fn calls<F>(
    (local, known, stop): (IpAddr, &Known, &Stop),
    make: impl Fn(LoadBalancerClient<Channel>, u64) -> F + Sync,
) -> Result<Counts, String>
where
    F: Future<Output = Result<(), Status>> + 'static,
{
    let (counts, next) = (Counts::default(), AtomicU64::new(0));
    begun()?;
    thread::scope(|scope| {
        let client = || {
            let runtime = runtime()?;
            let all = tokio::task::LocalSet::new();
            all.block_on(&runtime, async {
                while !stop.is_set() {
                    let Ok(channel) = connect(local, known.grpc).await else {
                        counts.none.fetch_add(1, Relaxed);
                        continue;
                    };
                    let client = LoadBalancerClient::new(channel);
                    let mut under_way = JoinSet::new();
                    while !stop.is_set() {
                        while under_way.len() < AT_A_TIME {
                            under_way.spawn_local(make(client.clone(), next.fetch_add(1, Relaxed)));
                        }
                        let Some(Ok(answer)) = under_way.join_next().await else { break };
                        counts.count(&answer);
                        if matches!(&answer, Err(why) if why.code() == Code::Unavailable || why.code() == Code::Unknown) {
                            break;
                        }
                    }
                }
            });
            Ok::<_, String>(())
        };
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(client)).collect();
        clients
            .into_iter()
            .try_for_each(|client| client.join().map_err(|_| "a client panicked".to_owned())?)
    })?;
    Ok(counts)
}

pub(super) fn run(kind: Kind, local: IpAddr, targets: &[String], stop: &Stop) -> Result<String, String> {
    let known = Known::of(targets)?;
    let of = (local, &known, stop);
    let counts = match kind {
        Kind::Guesses => calls(of, |mut client, n| async move {
            client.version(with_token(pb::VersionRequest {}, &format!("{n:032x}"))).await.map(drop)
        }),
        Kind::States => calls(of, |mut client, _| {
            let request = with_token(state(&known.session, 0.5), &known.token);
            async move { client.send_state(request).await.map(drop) }
        }),
        Kind::LargeRequests => calls(of, |mut client, n| {
            // Every other request has a wrong token. Half of the requests with each token are short enough to be read; the
            // other half are not.
            let token = if n % 2 == 0 { &known.token } else { "nobody's" };
            let bytes = if n % 4 < 2 { 1_000_000 } else { 1_100_000 };
            let (lb_id, slots) = (known.lb.clone(), Vec::new());
            let constraint = pb::SessionSlotRanges { session_id: "1".repeat(bytes), slots };
            let request = pb::SetSlotDemandsRequest { lb_id, slot_constraints: vec![constraint] };
            let request = with_token(request, token);
            async move { client.set_slot_demands(request).await.map(drop) }
        }),
        Kind::Registrations => calls(of, |mut client, n| {
            let [_, _, b, c] = (n as u32).to_be_bytes();
            let ip_address =
                if local.is_ipv4() { format!("127.200.{b}.{c}") } else { format!("fd00:77::{n:x}") };
            let request = pb::RegisterRequest {
                lb_id: known.lb.clone(),
                name: "many".into(),
                weight: 1.0,
                ip_address,
                udp_port: 5000,
                ..Default::default()
            };
            let request = with_token(request, &known.token);
            async move { client.register(request).await.map(drop) }
        }),
        Kind::LongSeries => calls(of, |mut client, n| {
            let selectors =
                if n % 2 == 0 { vec!["/lb/x".repeat(20_000)] } else { vec!["*".to_owned(); 10_000] };
            let selectors = if n % 3 == 0 { vec!["*".to_owned(); 64] } else { selectors };
            let request =
                pb::TimeseriesRequest { series_selector: selectors, since: Some(Default::default()) };
            let request = with_token(request, &known.token);
            async move { client.timeseries(request).await.map(drop) }
        }),
        Kind::SlowReaders => return slow_readers(local, &known, stop),
        Kind::Watches => return watches(local, &known, stop),
        Kind::Syncs => return syncs(local, &known, stop),
        _ => return Err("this kind of attacker does not attack control planes".into()),
    };
    counts?.check(kind)
}

/// Asks for all series on many connections, and reads no reply.
fn slow_readers(local: IpAddr, known: &Known, stop: &Stop) -> Result<String, String> {
    const CONNECTIONS: usize = 16;
    let runtime = runtime()?;
    runtime.block_on(async {
        let mut held = Vec::new();
        begun()?;
        let (mut asked, mut refused) = (0, 0);
        while !stop.is_set() {
            if held.len() >= CONNECTIONS * AT_A_TIME {
                tokio::time::sleep(Duration::from_millis(10)).await;
                continue;
            }
            let endpoint =
                Endpoint::from_shared(format!("http://{}", known.grpc)).map_err(|e| e.to_string())?;
            // The window of a stream is too small for a reply.
            let endpoint = endpoint.local_address(Some(local)).initial_stream_window_size(1);
            let Ok(channel) = endpoint.connect().await else { continue };
            let mut grpc = tonic::client::Grpc::new(channel);
            for _ in 0..AT_A_TIME {
                let request = pb::TimeseriesRequest {
                    series_selector: vec!["*".to_owned()],
                    since: Some(Default::default()),
                };
                let path = "/loadbalancer.LoadBalancer/Timeseries".parse().map_err(|e| format!("{e}"))?;
                if grpc.ready().await.is_err() {
                    break;
                }
                let codec = tonic_prost::ProstCodec::<_, pb::TimeseriesResponse>::default();
                let request = with_token(request, &known.token);
                let answer = grpc.server_streaming(request, path, codec);
                match tokio::time::timeout(TIME_LIMIT, answer).await {
                    Ok(Ok(reply)) => held.push(reply.into_inner()),
                    _ => refused += 1,
                }
                asked += 1;
                if stop.is_set() {
                    break;
                }
            }
            if refused > 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
        let text = format!("{asked} asked for, {} not read, {refused} refused", held.len());
        if held.is_empty() { Err(format!("no reply began: {text}")) } else { Ok(text) }
    })
}

/// Holds many streams of the health service open, without a token.
fn watches(local: IpAddr, known: &Known, stop: &Stop) -> Result<String, String> {
    const CONNECTIONS: usize = 64;
    let runtime = runtime()?;
    runtime.block_on(async {
        let mut held = Vec::new();
        begun()?;
        while !stop.is_set() {
            if held.len() >= CONNECTIONS * AT_A_TIME {
                tokio::time::sleep(Duration::from_millis(10)).await;
                continue;
            }
            let Ok(channel) = connect(local, known.grpc).await else { continue };
            for _ in 0..AT_A_TIME {
                let watched = HealthClient::new(channel.clone()).watch(HealthCheckRequest::default()).await;
                held.extend(watched.ok());
                if stop.is_set() {
                    break;
                }
            }
        }
        if held.is_empty() { Err("no stream began".into()) } else { Ok(format!("{} streams", held.len())) }
    })
}

/// Sends datagrams that are no syncs, then syncs of a stranger, then syncs of a registered sender.
fn syncs(local: IpAddr, known: &Known, stop: &Stop) -> Result<String, String> {
    const BATCH: u64 = 100;
    /// The most datagrams per second.
    const RATE: u64 = 100_000;
    let socket = UdpSocket::bind((local, 0)).map_err(|e| e.to_string())?;
    socket.connect(known.sync).map_err(|e| e.to_string())?;
    let runtime = runtime()?;
    begun()?;
    let (begin, mut sent, mut is_sender) = (Instant::now(), 0_u64, false);
    while !stop.is_set() {
        let elapsed = begin.elapsed();
        // A quick attack lasts a second; each kind of datagram is sent for a third of it.
        if elapsed > Duration::from_millis(660) && !is_sender {
            is_sender = true;
            let added = runtime.block_on(async {
                let mut client = LoadBalancerClient::new(connect(local, known.grpc).await?);
                let sender_addresses = vec![local.to_string()];
                let request = pb::AddSendersRequest { lb_id: known.lb.clone(), sender_addresses };
                client.add_senders(with_token(request, &known.token)).await.map_err(|e| e.to_string())
            });
            added?;
        }
        if sent > elapsed.as_micros() as u64 * RATE / 1_000_000 {
            thread::sleep(Duration::from_micros(200));
            continue;
        }
        for n in 0..BATCH {
            let tick = 1_000_000_000 + sent + n;
            let sync = ejfat::wire::SyncHeader {
                source: 1,
                tick,
                ticks_per_second: 1_000_000,
                unix_nanos: tick * 1000,
            };
            let bytes = sync.encode();
            let is_malformed = elapsed < Duration::from_millis(330);
            let told = socket.send(if is_malformed { &bytes[..20] } else { &bytes[..] });
            // Any other error means that there is no room for the datagram.
            if told.is_err_and(|why| why.kind() == std::io::ErrorKind::ConnectionRefused) {
                return Err(format!("nobody takes syncs at {}", known.sync));
            }
        }
        sent += BATCH;
    }
    Ok(format!("{sent} datagrams"))
}
