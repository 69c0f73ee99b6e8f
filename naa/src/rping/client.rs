//! The client: it advertises its buffers, checks the data that come back, and disconnects.

use std::{net::SocketAddr, time::Instant};

use anyhow::bail;
use verbs::CmEvent;

use super::{
    Args, Report,
    connection::{ReceiveResult, RpingConnection, RpingDevice, conn_param},
    message, printable,
};
use crate::show;

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let local = args.source.map_or_else(|| naa_provider::source_for(args.address), Ok)?;
    let device = RpingDevice::open(local, args.provider.choice()?, false)?;
    let mut connection = RpingConnection::new(&device, args.size)?;
    let path_mtu = connect(&device, &mut connection, args)?;
    let start = Instant::now();
    let mut rounds = 0;
    while args.count == 0 || rounds < args.count {
        round(&connection, args, rounds)?;
        rounds += 1;
    }
    let seconds = start.elapsed().as_secs_f64();
    connection.close();
    let attr = device.context.attr();
    let (provider, why, device) = (attr.provider, device.why.clone(), attr.name.clone());
    let (role, peer) = ("client", SocketAddr::new(args.address, args.port).to_string());
    let (size, validated) = (args.size, args.validate);
    let report = Report { role, provider, why, device, peer, path_mtu, size, rounds, seconds, validated };
    report.print(args.json)
}

fn connect(device: &RpingDevice, connection: &mut RpingConnection<'_>, args: &Args) -> anyhow::Result<u32> {
    let server = SocketAddr::new(args.address, args.port);
    let id = device.channel.connect(&connection.qp, server, &conn_param())?;
    connection.bind(id);
    match device.next_event_of(id, None)? {
        CmEvent::Established { param, .. } => Ok(param.path_mtu),
        CmEvent::Rejected { reason, .. } => {
            bail!(
                "{server} refused the connection: {reason}; start a server with `naa rping -s -a ADDR` or rdma-core's rping"
            )
        }
        CmEvent::Unreachable { why, .. } if !device.context.attr().can_listen => bail!(
            "{server} cannot be reached: {why}. This process shares its address with another one and so reaches \
             servers of this provider only; try -I with another local address"
        ),
        CmEvent::Unreachable { why, .. } => bail!("{server} cannot be reached: {why}"),
        event => bail!("{server} ended the handshake: {event:?}"),
    }
}

fn round(connection: &RpingConnection<'_>, args: &Args, n: u32) -> anyhow::Result<()> {
    let size = args.size;
    let sent = message(n, size as usize);
    connection.buffer.memory().write(0, &sent);
    connection.advertise(size)?;
    let ReceiveResult::Advertised { .. } = connection.receive()? else {
        bail!("the server closed the connection in round {n}")
    };
    // The server has read the source. The sink is cleared, so that the check cannot pass by accident.
    connection.buffer.memory().zero();
    connection.advertise(size)?;
    let ReceiveResult::Advertised { .. } = connection.receive()? else {
        bail!("the server closed the connection in round {n}")
    };
    let came = connection.buffer.memory().to_vec(0, size as usize);
    if args.validate && came != sent {
        bail!("round {n}: what came back differs from what was sent");
    }
    if args.verbose {
        show::line(&format!("ping data: {}", printable(&came)))?;
    }
    Ok(())
}
