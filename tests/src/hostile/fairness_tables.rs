//! One peer against `naa lb forward`: tables that are not its own to load, and places that it only sits in.

use std::{
    net::{IpAddr, SocketAddr, UdpSocket},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use super::{
    attacker::Kind,
    bystander::Bystander,
    case::{Case, Observation},
    ejfat::EjfatEnvironment,
    fairness::compare,
    fairness_bystander::{Forwarded, Scraper},
    fairness_program::Program,
    resources_process::{TempFolder, after, run, sibling},
};

const TOKEN: &str = "right";
/// A caller over gRPC that has no answer by then is not served.
const TIME_LIMIT: Duration = Duration::from_secs(5);

pub(super) const CASES: &[Case] = &[
    Case::fairness(
        "MRSP tables without a token",
        "`naa lb forward --serve --token` without --allow; then tables from an address outside of --allow",
        "refused at start; outsiders kept out, insiders let in",
        tables,
    ),
    Case::fairness(
        "idle seats",
        "200 TCP connections of one address each to --grpc and --metrics that say nothing",
        "three of three served",
        idle_connections,
    ),
];

/// A file of tables that lead from the sender to one worker.
fn rules(folder: &TempFolder, name: &str, ips: [IpAddr; 2], worker: SocketAddr) -> Result<PathBuf, String> {
    let [balancer, sender] = ips;
    let text = format!(
        "load_balancers:\n- lb: 0\n  addresses: [\"{balancer}\"]\n  senders: [\"{sender}\"]\n  epochs:\n  - {{id: 0, \
         ticks: [all], calendar: 1x512}}\n  members:\n  - {{id: 1, address: \"{}\", port: {}}}\n",
        worker.ip(),
        worker.port()
    );
    let path = folder.0.join(name);
    std::fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(path)
}

/// An address where nobody is, for now.
fn free(ip: IpAddr) -> Result<SocketAddr, String> {
    let socket = UdpSocket::bind((ip, 0)).map_err(|e| format!("cannot bind {ip}: {e}"))?;
    socket.local_addr().map_err(|e| e.to_string())
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

fn tables(env: &mut EjfatEnvironment) -> Result<Observation, String> {
    let folder = TempFolder::new("tables")?;
    let [balancer, sender, insider] = [(); 3].map(|()| env.address(false));
    let (worker, elsewhere) = (free(env.address(false))?, free(env.address(false))?);
    let right = rules(&folder, "right.yaml", [balancer, sender], worker)?;
    let wrong = rules(&folder, "wrong.yaml", [balancer, sender], elsewhere)?;
    let (listen, serve) = (SocketAddr::new(balancer, 0).to_string(), balancer.to_string());
    let (right, wrong) = (text(&right), text(&wrong));
    let args = ["lb", "forward", "--json", "--listen", &listen, "--tables", &right, "--serve", &serve];
    let open = [&args[..], &["--token", TOKEN, "--until-eof"]].concat();
    let refused = run(after("true", &sibling("naa")?, &open))?;
    let said = String::from_utf8_lossy(&refused.stderr);
    if refused.status.success() {
        return Err("open to everybody in spite of a token".into());
    }
    if !said.contains("--token") || !said.contains("--allow") {
        return Err(format!("the refusal does not name --token and --allow: {said}"));
    }
    let allowed = insider.to_string();
    let kept = [&args[..], &["--token", TOKEN, "--allow", &allowed]].concat();
    let mut victim = Program::start("true", &kept)?;
    let at = victim.at("addresses")?;
    let bystander = Bystander::start("forwards", move || Forwarded::connect(sender, worker, at));
    let place = format!("mrsp://{}", victim.at("mrsp")?);
    let load = |local: IpAddr, file: &str| {
        let mut command = Command::new(sibling("naa")?);
        command.args(["lb", "table", "load", file, &place, "--from", "now"]);
        command.env(naa_host::LOCAL_IP_VARIABLE, local.to_string());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        run(command)
    };
    let check = |_: &mut Program, counted: &str| {
        if !counted.starts_with("0 tables taken, others") {
            return Err(format!("from an address outside of --allow: {counted}"));
        }
        let output = load(insider, &right)?;
        if !output.status.success() {
            return Err(format!("the insider: {}", String::from_utf8_lossy(&output.stderr)));
        }
        Ok("refused at start; outsiders kept out, insiders let in".into())
    };
    let targets = [wrong.clone(), place.clone()];
    compare(env, &mut victim, &bystander, (Kind::Tables, &targets), |_, _| Ok(()), check)
}

fn idle_connections(env: &mut EjfatEnvironment) -> Result<Observation, String> {
    let ip = env.address(false);
    let at = SocketAddr::new(ip, 0).to_string();
    let args =
        ["lb", "forward", "--json", "--listen", &at, "--grpc", &at, "--token", TOKEN, "--metrics", &at];
    let mut victim = Program::start("true", &args)?;
    let (grpc, metrics) = (victim.at("grpc")?, victim.at("metrics")?);
    let bystander = Bystander::start("asks for metrics", move || Ok(Scraper(metrics)));
    let asked = move |_: &mut EjfatEnvironment, _: &Program| (0..3).try_for_each(|n| ask(grpc, n));
    let targets = [grpc.to_string(), metrics.to_string()];
    let check = |_: &mut Program, counted: &str| match counted {
        "400 connections" => Ok("three of three served".into()),
        _ => Err(format!("the attacker has {counted}")),
    };
    compare(env, &mut victim, &bystander, (Kind::IdleConnections, &targets), asked, check)
}

/// Another source with the right token.
fn ask(grpc: SocketAddr, n: usize) -> Result<(), String> {
    let mut command = Command::new(sibling("naa")?);
    command.args(["lb", "table", "show", &format!("grpc://{grpc}"), "--token", TOKEN]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|e| format!("cannot run naa: {e}"))?;
    let begin = Instant::now();
    while child.try_wait().map_err(|e| e.to_string())?.is_none() {
        if begin.elapsed() > TIME_LIMIT {
            child.kill().and_then(|()| child.wait()).map_err(|e| e.to_string())?;
            return Err(format!("caller {n} over gRPC was not served within {TIME_LIMIT:?}"));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let output = child.wait_with_output().map_err(|e| e.to_string())?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("caller {n} over gRPC: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}
