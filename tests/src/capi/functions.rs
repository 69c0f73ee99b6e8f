//! The accelerator that the programs call: NAAICE's functions, the built-in ones, and some for tests.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    thread,
    time::Duration,
};

use mrsp::{
    FunctionCode,
    catalogue::{self, Direction},
    return_code::ReturnCode,
};
use naa_server::{
    Choice, Config, Server,
    call::{Call, Failure},
    function::{Function, FunctionInfo},
    functions,
};

type Body = fn(&mut Call<'_>) -> Result<(), Failure>;

/// Enough for 200 handles twice.
const SESSIONS: usize = 1024;
/// Calls that sleep need a thread each.
const WORKERS: usize = 32;
/// More than the largest session of the programs.
const MEMORY: u64 = 12 << 30;

#[derive(Debug)]
struct Plain(FunctionInfo, Body);

impl Function for Plain {
    fn info(&self) -> &FunctionInfo {
        &self.0
    }

    fn run(&self, call: &mut Call<'_>) -> Result<(), Failure> {
        self.1(call)
    }
}

fn function(code: u8, name: &str, description: &str, body: Body) -> Arc<dyn Function> {
    Arc::new(Plain(
        catalogue::Function {
            code: FunctionCode::constant(code),
            name: name.into(),
            description: description.into(),
            pooled: true,
            parameters: Vec::new(),
        },
        body,
    ))
}

fn sleep(call: &mut Call<'_>) -> Result<(), Failure> {
    thread::sleep(Duration::from_millis(call.user().get().into()));
    Ok(())
}

fn fail(call: &mut Call<'_>) -> Result<(), Failure> {
    match ReturnCode::new(call.user()) {
        Some(code) => Err(Failure::Returned { code, text: String::new() }),
        None => Ok(()),
    }
}

fn sum(call: &mut Call<'_>) -> Result<(), Failure> {
    let mut sum = call.user().to_le_bytes().iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
    for region in call.regions() {
        if matches!(region.direction, Direction::Input | Direction::InOut) {
            sum = region.bytes.iter().fold(sum, |sum, byte| sum.wrapping_add(*byte));
        }
    }
    for region in call.regions() {
        if matches!(region.direction, Direction::Output | Direction::InOut) {
            region.bytes.fill(sum);
        }
    }
    Ok(())
}

fn count(call: &mut Call<'_>) -> Result<(), Failure> {
    let mut calls = 0;
    for region in call.regions() {
        if let (Direction::Internal, Some(first)) = (region.direction, region.bytes.first_mut()) {
            *first = first.wrapping_add(1);
            calls = *first;
        }
    }
    for region in call.regions() {
        if region.direction == Direction::Output {
            region.bytes.fill(calls);
        }
    }
    Ok(())
}

/// Serves until killed; says READY when it listens.
///
/// # Errors
/// If the address cannot be served.
pub fn serve(ip: IpAddr, port: u16, choice: Choice) -> Result<(), String> {
    let mut config = Config::new(SocketAddr::new(ip, port));
    config.provider = Some(choice);
    config.max_sessions = SESSIONS;
    config.max_sessions_per_peer = SESSIONS;
    config.memory = MEMORY;
    config.pool.workers = WORKERS;
    let own = [
        function(100, "sleep", "sleeps as many milliseconds as the user bits say", sleep),
        function(101, "fail", "fails with the user bits as return code", fail),
        function(102, "sum", "fills outputs with the sum of all input bytes and the user bytes", sum),
        function(103, "count", "fills outputs with the number of calls, kept in internal regions", count),
    ];
    let registry = functions::registry(own).map_err(|e| e.to_string())?;
    let server = Server::start(config, registry).map_err(|e| e.to_string())?;
    println!("READY {}", server.address());
    loop {
        thread::park();
    }
}
