//! A program of this project under attack: `naa serve` or `naa lb forward`, with what it says.

use std::{
    io::{BufRead, BufReader, Read as _},
    net::SocketAddr,
    process::Child,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
};

use serde_json::Value;

use super::resources_process::{Held, after, sibling};

#[derive(Debug)]
pub(super) struct Program {
    child: Child,
    /// The first line it printed.
    ready: Value,
    log: Arc<Mutex<Vec<u8>>>,
    /// Reads the log as it is written: a program must not wait for whoever reads it.
    reader: Option<JoinHandle<()>>,
}

impl Program {
    /// `naa` with these arguments, after a line of shell that sets limits. Returns when it is ready.
    pub(super) fn start(shell: &str, args: &[&str]) -> Result<Self, String> {
        let mut command = after(shell, &sibling("naa")?, args);
        let mut child = command.spawn().map_err(|e| e.to_string())?;
        let out = child.stdout.take().ok_or("the program has no output")?;
        let mut errors = child.stderr.take().ok_or("the program has no standard error")?;
        let log = Arc::new(Mutex::new(Vec::new()));
        let its_log = log.clone();
        let reader = std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = errors.read(&mut bytes) {
                lock(&its_log).extend_from_slice(&bytes[..read]);
            }
        });
        let mut program = Self { child, ready: Value::Null, log, reader: Some(reader) };
        let mut line = String::new();
        BufReader::new(out).read_line(&mut line).map_err(|e| e.to_string())?;
        match serde_json::from_str(&line) {
            Ok(ready) => program.ready = ready,
            Err(_) => return Err(format!("the program did not start: {}", program.end()?.trim())),
        }
        Ok(program)
    }

    /// An address that it told when it was ready.
    pub(super) fn at(&self, what: &str) -> Result<SocketAddr, String> {
        let found = match &self.ready[what] {
            Value::Array(all) => all.first().and_then(Value::as_str),
            one => one.as_str(),
        };
        let address = found.and_then(|text| text.parse().ok());
        address.ok_or_else(|| format!("no address {what:?} in {}", self.ready))
    }

    pub(super) fn held(&self) -> Result<Held, String> {
        Held::by(self.child.id())
    }

    /// Seconds of the processors that it has taken, of all its threads.
    pub(super) fn cpu_seconds(&self) -> Result<f64, String> {
        let path = format!("/proc/{}/stat", self.child.id());
        let stat = std::fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"))?;
        // After the name, which may hold anything: fields 14 and 15 of all, in ticks of 10 ms.
        let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
        let ticks: f64 = fields.skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum();
        Ok(ticks / 100.0)
    }

    /// Why it does not run any more.
    pub(super) fn ended(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok().flatten()?;
        let said = self.output();
        Some(format!("the program ended with {status}: {}", said.lines().last().unwrap_or_default()))
    }

    /// What it has said so far.
    pub(super) fn output(&self) -> String {
        String::from_utf8_lossy(&lock(&self.log)).into_owned()
    }

    /// Ends it; gives all that it said.
    fn end(mut self) -> Result<String, String> {
        self.kill();
        Ok(self.output())
    }

    fn kill(&mut self) {
        // It may have ended already; what matters is that it is gone.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(reader) = self.reader.take() {
            // A panic of the thread has been reported by its hook.
            let _ = reader.join();
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
    }
}

fn lock(log: &Mutex<Vec<u8>>) -> MutexGuard<'_, Vec<u8>> {
    log.lock().unwrap_or_else(PoisonError::into_inner)
}
