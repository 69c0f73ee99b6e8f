//! The host process: it offloads every case, compares the results, and prints rows on standard output.

use std::{
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use naa_host::{Device, Param, ProviderChoice, Session, SessionConfig, builtin::BuiltinSession};

use super::{
    Row,
    cases::Extent,
    data,
    prepare::{Prepared, Task, prepare},
};

pub(super) fn run(
    extent: Extent,
    server: SocketAddr,
    local: IpAddr,
    choice: ProviderChoice,
) -> anyhow::Result<()> {
    // The end of standard input means that the demonstration's process ended, so nobody reads the report.
    crate::signals::on_stdin_end(|| std::process::exit(1))?;
    let device = Device::open_with(local, choice)?;
    for case in extent.cases() {
        let prepared = prepare(case)?;
        let done = offload(&device, server, &prepared)?;
        let row = Row {
            function: mrsp::builtin::name(case.function).unwrap_or("unnamed").into(),
            bytes_in: prepared.inputs.iter().map(|input| input.len() as u64).sum(),
            bytes_out: done.bytes as u64,
            local_s: prepared.local.as_secs_f64(),
            offloaded_s: done.time.as_secs_f64(),
            verified: done.verified,
        };
        crate::show::line(&serde_json::to_string(&row)?)?;
    }
    Ok(())
}

struct Done {
    /// The length of the result.
    bytes: usize,
    /// The time from the start of the call to its result.
    time: Duration,
    verified: bool,
}

fn offload(device: &Device, server: SocketAddr, prepared: &Prepared) -> anyhow::Result<Done> {
    let Prepared { function, inputs, room, expected, .. } = prepared;
    let config = SessionConfig::default();
    if let Task::Builtin(arguments) = &prepared.task {
        let sizes: Vec<_> = inputs.iter().map(Vec::len).collect();
        let mut job = BuiltinSession::connect(device, server, &sizes, &[*room], &config)?;
        for (index, input) in inputs.iter().enumerate() {
            job.input(index)?.copy_from_slice(input);
        }
        let start = Instant::now();
        job.run(arguments)?;
        let time = start.elapsed();
        let output = job.output(0)?;
        let numbers = [mrsp::builtin::DGEMM, mrsp::builtin::FFT].contains(function);
        let verified = if numbers { data::is_close(&output, expected) } else { *output == **expected };
        let bytes = output.len();
        drop(output);
        job.finalize()?;
        return Ok(Done { bytes, time, verified });
    }
    let param = match inputs.first() {
        Some(input) => Param::in_out(*room).holding(input),
        None => Param::output(*room),
    };
    let mut session = Session::connect(device, server, &[param], &config)?;
    let start = Instant::now();
    session.invoke(*function, mrsp::U24::ZERO)?;
    let outcome = session.wait()?.into_result()?;
    let time = start.elapsed();
    let bytes = outcome.last_write_bytes as usize;
    let verified = *session.bytes(0, ..bytes)? == **expected;
    session.finalize()?;
    Ok(Done { bytes, time, verified })
}
