//! Recordings of gRPC: requests as raw bytes with the path of their method, and what a server answered.

use std::{
    net::UdpSocket,
    time::{Duration, Instant},
};

use prost::bytes::{Buf as _, BufMut as _};
use serde::{Deserialize, Serialize};
use tonic::{
    Request, Status,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
    transport::{Channel, Endpoint},
};

use super::{
    GRPC_PORT, HOST, SEGMENT_PORT, SERVER, TOKEN,
    compare::Sharpness,
    protobuf::{self, Rules},
};
use crate::hex;

const TIME_LIMIT: Duration = Duration::from_secs(20);
/// Longer answers are none of a recording's.
const MOST_BYTES: usize = 4 << 20;

/// The JSON file of a recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Recording {
    /// The wire: the file's name without its number.
    pub(super) wire: String,
    /// The version and the commit that it was recorded with.
    pub(super) recorded_from: String,
    /// What the caller does, for people.
    pub(super) what: String,
    pub(super) steps: Vec<Step>,
}

/// One step, with what it is for, for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Step {
    pub(super) what: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) call: Option<Call>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) route: Option<Route>,
}

/// A method that is called.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Call {
    pub(super) path: String,
    /// Whether the request has the header `authorization` with the server's token.
    pub(super) token: bool,
    #[serde(with = "hex::list")]
    pub(super) requests: Vec<Vec<u8>>,
    /// The status of the answer: 0 is success. Its text is for people.
    pub(super) status: i32,
    #[serde(with = "hex::list")]
    pub(super) responses: Vec<Vec<u8>>,
    /// Fields of responses that are not compared; see `protobuf.rs`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) free: Vec<String>,
    /// Repeated fields of responses whose entries may come in any order, and may be more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) unordered: Vec<String>,
}

/// A datagram that the load balancer forwards by the tables.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Route {
    #[serde(with = "hex")]
    pub(super) sent: Vec<u8>,
    /// The UDP port where it arrives.
    pub(super) port: u16,
    #[serde(with = "hex")]
    pub(super) forwarded: Vec<u8>,
}

/// Bytes as they are, instead of messages.
#[derive(Clone, Copy, Debug, Default)]
struct Raw;

impl Codec for Raw {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, item: Vec<u8>, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put_slice(&item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        let mut bytes = vec![0; from.remaining()];
        from.copy_to_slice(&mut bytes);
        Ok(Some(bytes))
    }
}

/// Does the steps against the load balancer at [`SERVER`]: the same steps with its answers.
pub(super) fn replay(steps: &[Step]) -> Result<Vec<Step>, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| format!("cannot start what gRPC runs on: {e}"))?;
    runtime.block_on(async {
        let endpoint =
            Endpoint::from_shared(format!("http://{SERVER}:{GRPC_PORT}")).map_err(|e| e.to_string())?;
        let channel = endpoint.connect().await.map_err(|e| format!("cannot connect: {e}"))?;
        let mut live = Vec::new();
        for (number, step) in steps.iter().enumerate() {
            let in_step = |why: String| format!("step {number}, {}: {why}", step.what);
            let mut step = step.clone();
            if let Some(call) = &mut step.call {
                let answer = tokio::time::timeout(TIME_LIMIT, ask(&channel, call)).await;
                (call.responses, call.status) =
                    answer.map_err(|_| in_step("no answer".into()))?.map_err(in_step)?;
            }
            if let Some(route) = &mut step.route {
                route.forwarded = forwarded(route).map_err(in_step)?;
            }
            live.push(step);
        }
        Ok(live)
    })
}

async fn ask(channel: &Channel, call: &Call) -> Result<(Vec<Vec<u8>>, i32), String> {
    let mut client = tonic::client::Grpc::new(channel.clone()).max_decoding_message_size(MOST_BYTES);
    client.ready().await.map_err(|e| e.to_string())?;
    let mut request = Request::new(tokio_stream::iter(call.requests.clone()));
    if call.token {
        let token = format!("Bearer {TOKEN}").parse().map_err(|_| "the token is no header".to_owned())?;
        request.metadata_mut().insert("authorization", token);
    }
    let path = call.path.parse().map_err(|e| format!("{}: {e}", call.path))?;
    let mut responses = Vec::new();
    let mut stream = match client.streaming(request, path, Raw).await {
        Ok(answer) => answer.into_inner(),
        Err(status) => return Ok((responses, status.code().into())),
    };
    loop {
        match stream.message().await {
            Ok(Some(response)) => responses.push(response),
            Ok(None) => return Ok((responses, 0)),
            Err(status) => return Ok((responses, status.code().into())),
        }
    }
}

/// What arrives at the member of the datagram. Empty where nothing does within the time limit.
fn forwarded(route: &Route) -> Result<Vec<u8>, String> {
    let bind = |port| UdpSocket::bind((HOST, port)).map_err(|e| format!("cannot bind {HOST}:{port}: {e}"));
    let (sender, member) = (bind(0)?, bind(route.port)?);
    member.set_read_timeout(Some(TIME_LIMIT)).map_err(|e| e.to_string())?;
    sender.send_to(&route.sent, (SERVER, SEGMENT_PORT)).map_err(|e| e.to_string())?;
    let (mut bytes, begin) = ([0; 1 << 16], Instant::now());
    match member.recv_from(&mut bytes) {
        Ok((len, _)) => Ok(bytes[..len].to_vec()),
        Err(e) => Err(format!("nothing came to port {} in {:?}: {e}", route.port, begin.elapsed())),
    }
}

/// The first difference that matters, in words.
pub(super) fn compare(recorded: &[Step], live: &[Step]) -> Result<(), String> {
    for (number, (was, is)) in recorded.iter().zip(live).enumerate() {
        let in_step = |why: String| format!("step {number}, {}: {why}", was.what);
        if let (Some(was), Some(is)) = (&was.call, &is.call) {
            answers(was, is).map_err(in_step)?;
        }
        if let (Some(was), Some(is)) = (&was.route, &is.route)
            && was.forwarded != is.forwarded
        {
            let [was, is] = [was, is].map(|route| hex::encode(&route.forwarded));
            return Err(in_step(format!("forwarded {is} instead of {was}")));
        }
    }
    if recorded.len() != live.len() {
        return Err(format!("{} steps instead of {}", live.len(), recorded.len()));
    }
    Ok(())
}

fn answers(was: &Call, is: &Call) -> Result<(), String> {
    if was.status != is.status {
        return Err(format!("status {} instead of {}", is.status, was.status));
    }
    if was.responses.len() != is.responses.len() {
        return Err(format!("{} responses instead of {}", is.responses.len(), was.responses.len()));
    }
    let rules = Rules { free: &was.free, unordered: &was.unordered };
    for (number, (was, is)) in was.responses.iter().zip(&is.responses).enumerate() {
        protobuf::compare(rules, was, is).map_err(|why| format!("response {number}: {why}"))?;
    }
    Ok(())
}

/// Changes every byte of the recorded answers, one at a time, and looks whether that is noticed.
pub(super) fn sharpness(recorded: &[Step]) -> Sharpness {
    let mut sharpness = Sharpness::default();
    for call in recorded.iter().filter_map(|step| step.call.as_ref()) {
        let rules = Rules { free: &call.free, unordered: &call.unordered };
        for response in &call.responses {
            let mut changed = response.clone();
            for byte in 0..changed.len() {
                changed[byte] ^= 1;
                sharpness.note(protobuf::compare(rules, &changed, response).is_err());
                changed[byte] ^= 1;
            }
        }
    }
    // Every byte of forwarded packets is compared.
    let routes = recorded.iter().filter_map(|step| step.route.as_ref());
    sharpness.compared += routes.map(|route| route.forwarded.len()).sum::<usize>();
    sharpness
}
