//! The server: it reads the buffers that clients advertise, and writes the data back.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use verbs::{CmEvent, CmId, SendOp};

use super::{
    Args, Report,
    connection::{ReceiveResult, RpingConnection, RpingDevice, conn_param},
    printable,
};
use crate::show;

/// Time limit for the confirmation of a client that asked to connect.
const CONFIRM: Duration = Duration::from_secs(30);

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let device = RpingDevice::open(args.address, args.provider.choice()?, true)?;
    let (listener, port) = device.channel.listen(args.port, 8)?;
    if args.verbose {
        let listening = std::net::SocketAddr::new(args.address, port);
        show::note(&format!("listening on {listening} ({})", device.context.attr().name));
    }
    loop {
        // CM events of clients that are gone may come in between.
        let CmEvent::ConnectRequest { id, endpoints, .. } = device.next_event()? else { continue };
        let served = serve(&device, args, id, endpoints.remote.to_string());
        if !args.persistent {
            device.channel.destroy_id(listener)?;
            return served;
        }
        if let Err(error) = served {
            if crate::is_closed_pipe(&error) {
                return Err(error);
            }
            show::error_line(&format!("naa: client {}: {error:#}", endpoints.remote));
        }
    }
}

fn serve(device: &RpingDevice, args: &Args, id: CmId, peer: String) -> anyhow::Result<()> {
    let mut connection = RpingConnection::new(device, 65536)?;
    connection.bind(id);
    device.channel.accept(id, &connection.qp, &conn_param()).context("cannot accept")?;
    let CmEvent::Established { param, .. } = device.next_event_of(id, Some(CONFIRM))? else {
        bail!("the client went away during the handshake")
    };
    let path_mtu = param.path_mtu;
    let start = Instant::now();
    let (mut rounds, mut size) = (0, 0);
    while let Some(bytes) = round(&connection, args)? {
        size = bytes;
        rounds += 1;
    }
    let seconds = start.elapsed().as_secs_f64();
    let attr = device.context.attr();
    let (provider, why, device) = (attr.provider, device.why.clone(), attr.name.clone());
    let (role, validated) = ("server", false);
    let report = Report { role, provider, why, device, peer, path_mtu, size, rounds, seconds, validated };
    report.print(args.json)
}

/// Serves one round. Returns the bytes that were moved, or `None` when the client is done.
fn round(connection: &RpingConnection<'_>, args: &Args) -> anyhow::Result<Option<u32>> {
    let ReceiveResult::Advertised { remote, size } = connection.receive()? else { return Ok(None) };
    if size as usize > connection.buffer.memory().len() {
        bail!("the client advertises {size} bytes; rping's messages have at most 65536");
    }
    connection.transfer(SendOp::Read(remote), size)?;
    if args.verbose {
        let read = connection.buffer.memory().to_vec(0, size as usize);
        show::line(&format!("server ping data: {}", printable(&read)))?;
    }
    connection.advertise(0)?;
    let ReceiveResult::Advertised { remote, size: sink } = connection.receive()? else { return Ok(None) };
    connection.transfer(SendOp::Write(remote), sink.min(size))?;
    connection.advertise(0)?;
    Ok(Some(size))
}
