//! A sender that does all as it should: each of its events must come out of the worker, to the byte.

use std::{
    fs, io,
    net::UdpSocket,
    path::{Path, PathBuf},
    sync::{Mutex, atomic::Ordering},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use ejfat::{
    segment::{EventFields, IpVersion, LbVersion, SegmentSize, Segments, Ticks},
    wire::LbHeader,
};

use super::{
    bystander::{Bystander, Log, lock},
    ejfat_worker::TIMEOUT,
};

pub(super) const DATA_ID: u16 = 4321;
/// An event that has not arrived after this time is lost.
const TIME_LIMIT: Duration = Duration::from_secs(5);
/// The time after which an event is sent again, if the case allows that.
const REPEAT: Duration = Duration::from_millis(TIMEOUT.as_millis() as u64 * 2);
/// The pause between rounds, so that the attacker and the worker have most of the machine's CPU time.
const PAUSE: Duration = Duration::from_millis(2);
const LOOK: Duration = Duration::from_micros(300);
/// The lengths of the events of a round, in turn. They have one or several segments of either MTU.
const LENGTHS: [u32; 8] = [1, 100, 30_000, 1437, 8_000, 1436, 120_000, 4097];
/// Events whose segments go out mixed.
const AT_ONCE: u64 = 4;

/// How the honest sender differs from the usual one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Manner {
    /// Events of this length, one at a time.
    pub(super) length: Option<u32>,
    /// Sends an event that does not arrive again, under another name: the kernel may have no room for it.
    pub(super) repeats: bool,
    /// Others write events of the same names.
    pub(super) shares_names: bool,
    /// Number of its first event.
    pub(super) first: u64,
}

/// A bystander that sends.
pub(super) fn start(socket: UdpSocket, folder: PathBuf, manner: Manner) -> Bystander {
    let mut sender = Sender { socket, folder, manner, ticks: Ticks::default() };
    Bystander::spawn(move |log, stop| {
        let mut next = manner.first;
        while !stop.load(Ordering::Relaxed) {
            match sender.round(next, log) {
                Ok(events) => next += events,
                Err(why) => return lock(log).failures.push(format!("the honest sender: {why}")),
            }
            thread::sleep(PAUSE);
        }
    })
}

#[derive(Debug)]
struct Sender {
    socket: UdpSocket,
    folder: PathBuf,
    manner: Manner,
    ticks: Ticks,
}

impl Sender {
    /// The number of events that were sent and came out.
    fn round(&mut self, first: u64, log: &Mutex<Log>) -> Result<u64, String> {
        let count = if self.manner.length.is_some() { 1 } else { AT_ONCE };
        let events: Vec<_> = (first..first + count).map(|number| (number, self.event(number))).collect();
        let begin = Instant::now();
        let cut = events.iter().map(|(number, bytes)| self.cut(*number, bytes));
        let cut = cut.collect::<Result<Vec<_>, String>>()?;
        for at in 0..cut.iter().map(Vec::len).max().unwrap_or(0) {
            cut.iter().filter_map(|segments| segments.get(at)).try_for_each(|segment| self.send(segment))?;
        }
        for (number, bytes) in &events {
            self.await_event(*number, bytes, log)?;
        }
        let mut log = lock(log);
        log.rounds.push(begin.elapsed());
        log.delivered += count;
        Ok(count)
    }

    fn event(&self, number: u64) -> Vec<u8> {
        let length = self.manner.length.unwrap_or(LENGTHS[(number % LENGTHS.len() as u64) as usize]);
        let byte =
            |at: u32| (u64::from(at).wrapping_mul(2_654_435_761).wrapping_add(number * 40_503) >> 13) as u8;
        (0..length).map(byte).collect()
    }

    /// Segments of either MTU, with the load balancer's header of either version or none.
    fn cut(&mut self, number: u64, bytes: &[u8]) -> Result<Vec<Vec<u8>>, String> {
        let version = if number.is_multiple_of(2) { LbVersion::V2 } else { LbVersion::V3 };
        let plain = number % 3 == 2;
        let mtu = if self.manner.length.is_some() || number % 5 == 1 { 9000 } else { 1500 };
        let size = SegmentSize::of_mtu(mtu, IpVersion::V6).map_err(|e| e.to_string())?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let tick = self.ticks.next(now.as_micros() as u64);
        let name = EventFields { tick, event: number, data_id: DATA_ID, entropy: 0 };
        let segments = Segments::new(version, size, name, bytes.len() as u64).map_err(|e| e.to_string())?;
        let headers = if plain { LbHeader::LEN.. } else { 0.. };
        Ok(segments.map(|it| [&it.headers[headers.clone()], &bytes[it.payload]].concat()).collect())
    }

    fn send(&self, segment: &[u8]) -> Result<(), String> {
        self.socket.send(segment).map(drop).map_err(|e| format!("cannot send: {e}"))
    }

    /// Looks for the event's file, and takes it away.
    fn await_event(&mut self, number: u64, bytes: &[u8], log: &Mutex<Log>) -> Result<(), String> {
        let begin = Instant::now();
        let mut names = vec![number];
        while begin.elapsed() < TIME_LIMIT {
            for &name in &names {
                if found(&self.folder, name, bytes, self.manner.shares_names)? {
                    return Ok(());
                }
            }
            if self.manner.repeats && begin.elapsed() > REPEAT * names.len() as u32 {
                let name = number | (names.len() as u64) << 32;
                names.push(name);
                lock(log).repeats += 1;
                self.cut(name, bytes)?.iter().try_for_each(|segment| self.send(segment))?;
            }
            thread::sleep(LOOK);
        }
        Err(format!("event {number} of {} bytes did not come out", bytes.len()))
    }
}

/// Whether the event is there. One that is not what was sent is an error, unless others may have used its name.
fn found(folder: &Path, number: u64, bytes: &[u8], shares_names: bool) -> Result<bool, String> {
    let name = format!("{DATA_ID}-{number}");
    for n in 1.. {
        let path = folder.join(if n == 1 { name.clone() } else { format!("{name}.{n}") });
        match fs::read(&path) {
            Ok(found) if found == bytes => {
                return fs::remove_file(&path).map(|()| true).map_err(|e| format!("{}: {e}", path.display()));
            }
            Ok(_) if shares_names => {}
            Ok(found) => {
                return Err(format!("event {number} came out with {} other bytes", found.len()));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => break,
            Err(error) => return Err(format!("{}: {error}", path.display())),
        }
    }
    Ok(false)
}
