//! The accelerator that the programs call: NAAICE's functions, the built-in ones, and some for tests.

use std::{
    net::{IpAddr, SocketAddr},
    thread,
};

use naa_server::{Config, ProviderChoice, Server, functions};

use super::own;

/// Enough for 200 handles twice.
const SESSIONS: usize = 1024;
/// The number of sessions with the verbs provider. A completion queue of soft-RoCE has some 32 000 entries, so a server
/// with more sessions refuses layouts of many parameters.
const VERBS_SESSIONS: usize = 64;
/// Calls that sleep need a thread each.
const WORKERS: usize = 32;
/// More than the largest session of the programs.
const MEMORY: u64 = 12 << 30;

/// Serves until killed; says READY when it listens.
///
/// # Errors
/// If the address cannot be served.
pub fn serve(ip: IpAddr, port: u16, choice: ProviderChoice) -> Result<(), String> {
    let mut config = Config::new(SocketAddr::new(ip, port));
    config.provider = Some(choice);
    config.max_sessions = if choice == ProviderChoice::Verbs { VERBS_SESSIONS } else { SESSIONS };
    config.max_sessions_per_peer = config.max_sessions;
    config.memory = MEMORY;
    config.pool.pool_threads = WORKERS;
    let registry = functions::registry(own::all()).map_err(|e| e.to_string())?;
    let server = Server::start(config, registry).map_err(|e| e.to_string())?;
    println!("READY {}", server.address());
    loop {
        thread::park();
    }
}
