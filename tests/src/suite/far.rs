//! The far side: a server, or one end of a bare connection, as the cases ask.

use std::{
    io::{BufRead, BufReader, Write},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    time::Duration,
};

use naa_provider::ProviderChoice;
use naa_server::{
    Config, Server,
    allow::{AllowList, Network},
    function::Handler,
};
use roce_udp::LossInjection;
use serde::Serialize;
use tokio::runtime::{Builder, Runtime};

use super::{
    control::{Answer, Request, ServerConfig},
    driver::End,
    functions,
    leaks::{self, Usage},
};
use crate::front;

/// How long sessions in a call may take to end.
const GRACE: Duration = Duration::from_secs(10);
const LOSS_SEED: u64 = 0x1055;

/// What runs. One at a time: a device can be dialled at one address by one owner.
enum Running {
    Nothing,
    /// A server, and the runtime of its async function.
    Server(Box<(Server, Runtime)>),
    End(Box<End>),
}

struct Far {
    address: IpAddr,
    choice: ProviderChoice,
    running: Running,
}

/// Serves one run of the suite after another, on `bind`; `port` is TCP's, for the requests.
///
/// # Errors
/// If the port cannot be had.
pub fn serve(bind: IpAddr, port: u16, choice: ProviderChoice) -> Result<(), String> {
    let listener =
        TcpListener::bind((bind, port)).map_err(|e| format!("cannot listen on {bind} TCP {port}: {e}"))?;
    let address = listener.local_addr().map_err(|e| e.to_string())?;
    println!("READY {address}");
    std::io::stdout().flush().map_err(|e| e.to_string())?;
    loop {
        let (stream, host) = listener.accept().map_err(|e| e.to_string())?;
        eprintln!("a run from {host} begins");
        let far = Far { address: bind, choice, running: Running::Nothing };
        if let Err(error) = attend(far, stream) {
            eprintln!("the run from {host}: {error}");
        }
    }
}

fn attend(mut far: Far, stream: TcpStream) -> Result<(), String> {
    let words = |e: std::io::Error| e.to_string();
    stream.set_nodelay(true).map_err(words)?;
    let mut answers = stream.try_clone().map_err(words)?;
    for line in BufReader::new(stream).lines() {
        let line = line.map_err(words)?;
        let request: Request = serde_json::from_str(&line).map_err(|e| format!("{line}: {e}"))?;
        let answer = far.perform(request);
        if let Err(why) = &answer {
            eprintln!("{line}: {why}");
        }
        let mut text = serde_json::to_string(&answer).map_err(|e| e.to_string())?;
        text.push('\n');
        answers.write_all(text.as_bytes()).map_err(words)?;
    }
    Ok(())
}

pub(super) fn answer<T: Serialize>(value: T) -> Answer {
    serde_json::to_value(value).map_err(|e| e.to_string())
}

impl Far {
    fn perform(&mut self, request: Request) -> Answer {
        match request {
            Request::Serve(settings) => {
                self.stop();
                answer(self.start(&settings)?)
            }
            Request::Stop => {
                self.stop();
                answer(())
            }
            Request::Usage => answer(Usage::now()),
            Request::Sessions => answer(self.server()?.stats().sessions.get()),
            Request::Provider => answer(self.server()?.provider()),
            Request::Pause(ms) => answer(leaks::pause(Duration::from_millis(ms))?),
            Request::Driver(request) => {
                if !matches!(self.running, Running::End(_)) {
                    self.stop();
                    let end = End::open(self.address, self.choice, true).map_err(|e| e.to_string())?;
                    self.running = Running::End(Box::new(end));
                }
                match &mut self.running {
                    Running::End(end) => end.perform(request),
                    _ => Err("no end runs".into()),
                }
            }
        }
    }

    fn server(&self) -> Result<&Server, String> {
        match &self.running {
            Running::Server(running) => Ok(&running.0),
            _ => Err("no server runs".into()),
        }
    }

    fn start(&mut self, settings: &ServerConfig) -> Result<SocketAddr, String> {
        let mut config = Config::new((self.address, 0).into());
        let networks = settings.allow.iter().map(|text| text.parse::<Network>());
        let networks: Result<Vec<_>, _> = networks.collect();
        config.allow = AllowList::only(networks.map_err(|e| e.to_string())?);
        config.max_sessions = settings.max_sessions;
        config.call_time = Duration::from_millis(settings.call_ms);
        config.provider = Some(self.choice);
        config.wait = settings.waiting.into();
        config.limits.max_slots = settings.max_slots;
        let per_million = settings.loss_per_million;
        config.device.loss = (per_million > 0).then_some(LossInjection { per_million, seed: LOSS_SEED });
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.map_err(|e| format!("no runtime: {e}"))?;
        let functions = functions::all().into_iter().map(Handler::from);
        let functions = functions.chain([front::later(runtime.handle(), settings.max_sessions).into()]);
        let registry = naa_server::functions::registry(functions).map_err(|e| e.to_string())?;
        let server = Server::start(config, registry).map_err(|e| e.to_string())?;
        let address = server.address();
        eprintln!("serving on {}", server.device());
        self.running = Running::Server(Box::new((server, runtime)));
        Ok(address)
    }

    fn stop(&mut self) {
        match std::mem::replace(&mut self.running, Running::Nothing) {
            Running::Server(running) => {
                let (server, _runtime) = *running;
                server.shutdown(GRACE);
            }
            Running::End(end) => drop(end),
            Running::Nothing => {}
        }
    }
}
