//! Checksums of many files, each by a call that is awaited. All calls are made by one thread.
//!
//! ```text
//! cargo run --release -p naa-examples --bin async-files -- SERVER FILE...
//! ```

use std::{net::SocketAddr, path::PathBuf};

use naa_host::{
    Param,
    asynchronous::{Accelerators, PoolConfig, Repeat},
    builtin::Arguments,
};
use tokio::task::JoinSet;

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let server: SocketAddr = arguments.next().ok_or("usage: async-files ADDRESS:PORT FILE...")?.parse()?;
    // The pool runs at most this number of calls at a time. The other tasks wait for a session.
    let config = PoolConfig { sessions_per_accelerator: 8, ..PoolConfig::default() };
    let pool = Accelerators::towards(&[server], config)?;
    let mut tasks = JoinSet::new();
    for file in arguments.map(PathBuf::from) {
        let pool = pool.clone();
        tasks.spawn(async move {
            let sum = checksum(&pool, &tokio::fs::read(&file).await?).await?;
            Ok::<_, Failure>((file, sum))
        });
    }
    let mut sums = Vec::new();
    while let Some(ended) = tasks.join_next().await {
        sums.push(ended??);
    }
    sums.sort();
    for (file, sum) in sums {
        println!("{sum}  {}", file.display());
    }
    Ok(())
}

/// Returns the SHA-256 sum of `bytes`, computed by the accelerator.
async fn checksum(pool: &Accelerators, bytes: &[u8]) -> Result<String, Failure> {
    let arguments = Arguments::Sha256 { bytes: bytes.len() as u64 };
    let block = arguments.encode();
    let params = [Param::data(&block), Param::data(bytes), Param::output(64), Param::output(32)];
    let call = pool.run(Repeat::IfLost(2), &params, |mut session| async move {
        session.call(arguments.function()).await?;
        session.to_vec(3)
    });
    Ok(call.await?.iter().map(|byte| format!("{byte:02x}")).collect())
}
