//! A pool over three servers, of which one is killed while calls run. All calls are done in the end, because their caller
//! permits that they are made again.
//!
//! ```text
//! cargo run --release -p naa-examples --bin pool
//! ```

use std::{net::SocketAddr, time::Duration};

use naa_host::{
    FunctionCode, Param, U24,
    asynchronous::{Accelerators, PoolConfig, Repeat},
};
use naa_server::{
    Config, ProviderChoice, Server,
    call::CallFailure,
    function::FunctionInfo,
    functions,
    tasks::{AsyncCall, AsyncFunction, Reply},
};
use tokio::{runtime::Handle, task::JoinSet};

type Failure = Box<dyn std::error::Error + Send + Sync>;

const SQUARE: FunctionCode = FunctionCode::constant(100);
const CALLS: u32 = 100;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let mut servers = (0..3).map(|_| server()).collect::<Result<Vec<_>, _>>()?;
    let addresses: Vec<_> = servers.iter().map(Server::address).collect();
    let config = PoolConfig { sessions_per_accelerator: 2, ..PoolConfig::default() };
    let pool = Accelerators::towards(&addresses, config)?;

    let mut tasks = JoinSet::new();
    for number in 0..CALLS {
        let pool = pool.clone();
        tasks.spawn(async move { Ok::<_, Failure>((number, square(&pool, number).await?)) });
    }
    let mut done = 0;
    while let Some(ended) = tasks.join_next().await {
        let (number, square) = ended??;
        assert_eq!(square, number * number);
        done += 1;
        if done == CALLS / 4 {
            let killed = servers.remove(1);
            println!("{} is killed", killed.address());
            // A server waits for its threads when it is dropped.
            tokio::task::spawn_blocking(move || drop(killed));
        }
    }

    let counters = pool.counters();
    for accelerator in &counters.accelerators {
        println!("{}: {} calls, {} lost", accelerator.peer, accelerator.acquired, accelerator.lost);
    }
    println!("{done} of {CALLS} calls done, {} of them made again", counters.repeated);
    Ok(())
}

/// Calls the function on the accelerator that has the least to do.
async fn square(pool: &Accelerators, number: u32) -> Result<u32, Failure> {
    let numbers = [number];
    let params = [Param::in_out_values(&numbers)];
    let call = pool.run(Repeat::IfLost(3), &params, |mut session| async move {
        session.call_with(SQUARE, U24::ZERO).await?;
        Ok(session.values::<u32>(0)?[0])
    });
    Ok(call.await?)
}

/// Starts a server whose function runs as a task, as that of a front for another service does.
fn server() -> Result<Server, Failure> {
    let info = FunctionInfo {
        code: SQUARE,
        name: "square".into(),
        description: "the square of a number, after a while".into(),
        pooled: true,
        parameters: Vec::new(),
    };
    let function = AsyncFunction::on_tokio(info, 64, Handle::current(), |call: AsyncCall| async move {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let number = call.inputs().first().and_then(|bytes| Some(u32::from_le_bytes(*bytes.first_chunk()?)));
        let number = number.ok_or(CallFailure::Arguments("there is no number".into()))?;
        Ok(Reply::default().output((number * number).to_le_bytes()))
    });
    let listen = SocketAddr::new(naa_provider::free_loopback()?, 0);
    let config = Config { provider: Some(ProviderChoice::Embedded), ..Config::new(listen) };
    Ok(Server::start(config, functions::services([function])?)?)
}
