//! The suite: which cases there are, on which addresses, and who carries them out.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU16, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use naa_provider::ProviderChoice;

use super::{
    capture, captured, headers, kills,
    process::{Process, at_once},
    programs::{self, Listed, RowAddresses},
    replay_host, replay_server,
    row::Row,
};
use crate::hostile::{RawPeer, TempFolder};

const SERVER_START: Duration = Duration::from_secs(60);
/// Ports of servers that programs start, where all share one address.
const SPARE_PORTS: u16 = 20_000;
/// The capture whose messages are replayed, both to a host and to a server.
const CAPTURE: &str = "tests/captures/naaice-library-calls.pcap";

/// What to run, and where.
#[derive(Clone, Debug)]
pub struct RunConfig {
    /// Where the programs are that `cargo xtask capi` builds.
    pub programs: PathBuf,
    /// The root of the checkout: headers, captures.
    pub root: PathBuf,
    /// The shared library.
    pub library: PathBuf,
    pub choice: ProviderChoice,
    /// The only address there is; without one, each process gets a loopback address of its own.
    pub address: Option<IpAddr>,
    /// The port of the accelerator.
    pub port: u16,
    pub jobs: usize,
    pub only: Option<String>,
    pub long: bool,
    /// Time limits are longer by this.
    pub slowness: u32,
    pub seed: u64,
}

impl RunConfig {
    pub(super) fn provider_name(&self) -> &'static str {
        self.choice.name()
    }

    fn wants(&self, label: &str, case: &str) -> bool {
        self.only.as_ref().is_none_or(|text| format!("{label}: {case}").contains(text.as_str()))
    }
}

/// What rows are carried out on.
pub(super) struct Environment<'a> {
    pub(super) options: &'a RunConfig,
    // The server is killed before its folder goes.
    server: Mutex<Process>,
    pub(super) folder: TempFolder,
    server_address: IpAddr,
    next: AtomicU16,
}

impl<'a> Environment<'a> {
    fn new(options: &'a RunConfig) -> Result<Self, String> {
        let folder = std::env::temp_dir().join(format!("naa-capi-{}", std::process::id()));
        let folder = TempFolder::at(folder)?;
        let next = AtomicU16::new(1);
        let server_address = options.address.unwrap_or_else(|| loopback(0));
        let server = Mutex::new(accelerator(options, server_address, &folder.0)?);
        Ok(Self { options, folder, server, server_address, next })
    }

    /// An address nobody else has, or the only one.
    pub(super) fn address(&self) -> IpAddr {
        self.options.address.unwrap_or_else(|| loopback(self.next.fetch_add(1, Ordering::Relaxed)))
    }

    pub(super) fn addresses(&self) -> RowAddresses {
        let spare_port = match self.options.address {
            Some(_) => SPARE_PORTS + 4 * self.next.fetch_add(1, Ordering::Relaxed),
            None => SPARE_PORTS,
        };
        let (local, spare) = (self.address(), self.address());
        RowAddresses { server: self.server_address, local, spare, spare_port }
    }

    pub(super) fn server_output(&self) -> String {
        self.server.lock().unwrap_or_else(PoisonError::into_inner).last_lines()
    }

    /// The accelerator must have lived through everything.
    fn server_lives(&self) -> Result<String, String> {
        let mut server = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        match server.end(Duration::ZERO) {
            Ok(status) => Err(format!("it ended: {status}: {}", server.last_lines())),
            // It was killed, since it runs.
            Err(_) => Ok(String::new()),
        }
    }
}

/// Loopback addresses that no other run is likely to use, as in the suite of hostile peers.
fn loopback(number: u16) -> IpAddr {
    let net = (std::process::id() as u16).reverse_bits().wrapping_add(number / 250);
    let [high, low] = net.to_be_bytes();
    Ipv4Addr::new(127, 64 | high & 0x3f, low, (number % 250 + 1) as u8).into()
}

fn accelerator(options: &RunConfig, ip: IpAddr, folder: &Path) -> Result<Process, String> {
    let own = std::env::current_exe().map_err(|e| e.to_string())?;
    let mut command = Command::new(own);
    command.args(["serve", "--bind", &ip.to_string(), "--port", &options.port.to_string()]);
    command.args(["--provider", options.provider_name()]);
    let mut server = Process::start(&mut command, folder)?;
    server.until_output("READY", SERVER_START)?;
    Ok(server)
}

type OnRow<'a> = dyn FnMut(&Row) + Send + 'a;

/// Runs what is wanted, and tells each row as it comes.
///
/// # Errors
/// If nothing is wanted or it cannot begin.
pub fn run(options: &RunConfig, on_row: &mut OnRow<'_>) -> Result<Vec<Row>, String> {
    let programs = programs::programs(&options.programs)?;
    let mut listed = Vec::new();
    for program in &programs {
        listed.extend(programs::list(program)?);
    }
    let env = Environment::new(options)?;
    let table: Mutex<(Vec<Row>, &mut OnRow<'_>)> = Mutex::new((Vec::new(), on_row));
    let done = |row: Row| {
        let mut table = table.lock().unwrap_or_else(PoisonError::into_inner);
        (table.1)(&row);
        table.0.push(row);
    };
    if options.wants("headers", "") {
        headers::check(&options.root.join("bindings/capi/include"), &options.library, &listed)?
            .into_iter()
            .for_each(&done);
    }
    thread::scope(|scope| {
        // These cases mostly wait until killed processes are noticed, so the others run meanwhile.
        if options.address.is_none() && options.wants("kills", "") {
            scope.spawn(|| kills::perform(&env, &done));
        }
        perform(&env, listed, &done);
    });
    if options.address.is_none() {
        replay(&env, &done)?;
    }
    let start = Instant::now();
    done(Row::new("accelerator", "it lives to the end", start.elapsed(), env.server_lives()));
    drop(env);
    let (rows, _) = table.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(rows)
}

/// Rows of programs, some at once.
fn perform(env: &Environment<'_>, listed: Vec<Listed>, done: &(impl Fn(Row) + Sync)) {
    let options = env.options;
    let wanted = listed.into_iter().filter(|row| {
        let case = format!("{}: {}", row.function, row.what);
        (options.long || !row.only_long) && options.wants(&programs::label(&row.program), &case)
    });
    at_once(options.jobs, wanted, |row| done(programs::perform(&row, env)));
}

fn replay(env: &Environment<'_>, done: &impl Fn(Row)) -> Result<(), String> {
    let options = env.options;
    let connections = capture::connections(&options.root.join(CAPTURE))?;
    if connections.len() < 5 {
        return Err(format!("{CAPTURE} has {} connections only", connections.len()));
    }
    for (number, connection) in connections.iter().enumerate() {
        let case = format!("connection {number}, {} messages", connection.messages.len());
        if options.wants("wire, our host", &case) {
            let start = Instant::now();
            let result = captured::scenario(connection).and_then(|scenario| {
                let path = env.folder.0.join(format!("scenario-{number}"));
                fs::write(&path, scenario).map_err(|e| e.to_string())?;
                let addresses = RowAddresses { server: env.address(), ..env.addresses() };
                let mut command = programs::command(&options.programs.join("wire_host"), options, &addresses);
                command.arg(&path);
                let ends = (addresses.server, addresses.local);
                replay_host::replay(connection, &mut command, &env.folder.0, ends)
            });
            done(Row::new("wire, our host", &case, start.elapsed(), result));
        }
        if options.wants("wire, our server", &case) {
            let start = Instant::now();
            done(Row::new("wire, our server", &case, start.elapsed(), replay_to_server(env, connection)));
        }
    }
    Ok(())
}

fn replay_to_server(env: &Environment<'_>, connection: &capture::Connection) -> Result<String, String> {
    let addresses = env.addresses();
    let mut command = programs::command(&env.options.programs.join("wire_server"), env.options, &addresses);
    let mut server = Process::start(&mut command, &env.folder.0)?;
    server.until_output("ready", SERVER_START)?;
    let raw = RawPeer::open(addresses.local, 78)?;
    let server_at = SocketAddr::new(addresses.spare, addresses.spare_port);
    let replayed = replay_server::replay(connection, raw, server_at);
    replayed.map_err(|why| format!("{why}; the server: {}", server.last_lines()))
}
