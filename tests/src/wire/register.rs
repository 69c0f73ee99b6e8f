//! What setting up costs with large buffers: the first time, and with the same ones again.

use std::{net::SocketAddr, time::Instant};

use naa_host::{Buffer, Device, Param, Session, SessionConfig};
use naa_provider::{DeviceConfig, ProviderChoice};
use serde::Serialize;
use verbs::{Access, Memory, Mr};

/// Buffers of a session.
const BUFFERS: usize = 4;

/// Milliseconds of one repeat.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Setup {
    pub first_ms: f64,
    pub again_ms: f64,
}

/// Repeats, each with buffers of its own.
#[derive(Clone, Debug, Serialize)]
pub struct Registered {
    pub why: String,
    pub bytes: usize,
    /// Connecting, agreeing on the regions, and all that the accelerator does for it.
    pub sessions: Vec<Setup>,
    /// Registering the buffers with the device, and nothing else.
    pub registrations: Vec<Setup>,
}

/// # Errors
/// If there is no session, or a buffer is not registered.
pub fn register(
    server: SocketAddr,
    choice: ProviderChoice,
    bytes: usize,
    repeats: u32,
) -> Result<Registered, String> {
    let device = Device::towards_with(server, choice).map_err(|e| e.to_string())?;
    // The first of all waits for programs to be read from disk.
    session(&device, server, 1).map_err(|e| e.to_string())?;
    let mut sessions = Vec::new();
    for _ in 0..repeats {
        sessions.push(session(&device, server, bytes).map_err(|e| e.to_string())?);
    }
    // The device is dropped first, because its UDP port would be taken if the embedded provider opens another one.
    let (local, why) = (device.address(), device.why().to_owned());
    drop(device);
    let chosen = naa_provider::choose(local, choice).map_err(|e| e.to_string())?;
    // Host devices are opened with this option, too.
    let keeping = DeviceConfig { keep_registrations: true, ..DeviceConfig::default() };
    let opened = chosen.open(&keeping).map_err(|e| e.to_string())?;
    let mut registrations = Vec::new();
    for _ in 0..repeats {
        registrations.push(registration(&opened.context, bytes).map_err(|e| e.to_string())?);
    }
    Ok(Registered { why, bytes, sessions, registrations })
}

fn session(device: &Device, server: SocketAddr, bytes: usize) -> Result<Setup, naa_host::Error> {
    let mut buffers: Vec<_> = (0..BUFFERS).map(|_| Buffer::new(bytes)).collect::<Result<_, _>>()?;
    // Touched, as buffers with data in them are.
    buffers.iter_mut().for_each(|buffer| buffer.as_mut_slice().expect("nobody else has it").fill(0x5a));
    let params = [Param::in_out(bytes); BUFFERS];
    let config = SessionConfig::default();
    let connect = |buffers: &mut Vec<Buffer>| {
        let taken = std::mem::take(buffers);
        let start = Instant::now();
        let session = Session::connect_with(device, server, &params, taken, &config)?;
        let ms = milliseconds(start);
        *buffers = session.into_buffers()?;
        Ok::<_, naa_host::Error>(ms)
    };
    let first_ms = connect(&mut buffers)?;
    Ok(Setup { first_ms, again_ms: connect(&mut buffers)? })
}

fn registration(context: &verbs::Context, bytes: usize) -> Result<Setup, verbs::Error> {
    let no_memory = |e| verbs::Error::io("no memory", e);
    let memories: Vec<_> =
        (0..BUFFERS).map(|_| region::alloc(bytes).map_err(no_memory)).collect::<Result<_, _>>()?;
    memories.iter().for_each(|memory| memory.write(0, &vec![0x5a; bytes]));
    let pd = context.alloc_pd()?;
    let register = |memories: &[Memory]| {
        let start = Instant::now();
        let all: Result<Vec<Mr>, _> = memories.iter().map(|m| pd.reg_mr(m, Access::REMOTE_WRITE)).collect();
        all.map(|_| milliseconds(start))
    };
    let first_ms = register(&memories)?;
    Ok(Setup { first_ms, again_ms: register(&memories)? })
}

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}
