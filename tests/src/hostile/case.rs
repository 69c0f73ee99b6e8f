//! One lie of a peer: what is sent, what must come of it, and what did.

use std::time::Duration;

use super::{
    ejfat::EjfatEnvironment,
    environment::{Environment, Family},
    raw::RawPeer,
    wire::Wire,
};

/// What came back from the attacked side.
#[derive(Clone, Debug, Default)]
pub struct Observation {
    /// Compared with [`Case::expected`], letter by letter.
    pub answer: String,
    /// For people: figures, which variant, why the case was skipped.
    pub note: String,
    /// This machine does not let the case be tried: neither passed nor failed.
    pub skipped: bool,
    /// Figures of the process that the case started for itself, in place of the server's.
    pub own: Option<Own>,
}

/// What became of a process that was started for one case, and of who used it well besides.
#[derive(Clone, Debug, Default)]
pub struct Own {
    pub rose: Vec<(String, u64)>,
    /// The bystander before the attack, of cases that compare the two.
    pub quiet: Option<Latency>,
    pub bystander: Latency,
    pub growth_kib: i64,
    /// What went wrong.
    pub why: Vec<String>,
    /// Datagrams that the kernel had no room for: the process cannot have counted them.
    pub lost: u64,
}

impl Observation {
    pub fn noted(answer: impl Into<String>, note: impl Into<String>) -> Self {
        Self { answer: answer.into(), note: note.into(), ..Self::default() }
    }

    pub fn skipped(why: impl Into<String>) -> Self {
        Self { note: why.into(), skipped: true, ..Self::default() }
    }
}

impl From<String> for Observation {
    fn from(answer: String) -> Self {
        Self::noted(answer, "")
    }
}

impl From<&str> for Observation {
    fn from(answer: &str) -> Self {
        answer.to_owned().into()
    }
}

/// Words of a row, and several.
pub(super) type Text = &'static str;
pub(super) type Texts = &'static [Text];

/// `Err`: something is wrong that the answer alone does not show.
pub type Run = fn(&mut Environment) -> Result<Observation, String>;

/// Sends on a connection with a bare queue pair what nobody is to answer.
pub(super) type Sending = fn(&mut RawPeer, &mut Wire) -> Result<(), String>;

/// The same as [`Run`] for a case that starts what it attacks.
pub(super) type Alone = fn(&mut EjfatEnvironment) -> Result<Observation, String>;

/// The process that is attacked, and the function that attacks it.
#[derive(Clone, Copy, Debug)]
pub enum Attack {
    /// The server of the suite.
    Server(Run),
    /// The bare queue pairs beside it: the connection that it is about lives on, and no byte changes.
    Silently(Sending),
    /// A worker of the case's own; [`Observation::own`] has its counters.
    Worker(Alone),
}

/// A row of the suite.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// The name that the table of all cases has for it: [`list`](super::list) fills it in.
    pub group: Text,
    pub name: Text,
    /// What the attacker sends or does.
    pub sent: Text,
    /// The answer: a NAK, a REJ reason, an error message, or `silence`.
    pub expected: Text,
    /// Counters of the attacked process that must rise; none for `&[]`.
    pub counters: Texts,
    /// MiB by which the attacked process may grow.
    pub growth_mib: u64,
    /// What the bystander's p99 may be; `None`: ten times its baseline or 20 ms.
    pub p99: Option<Duration>,
    /// Whether the case is left out of a quick run.
    pub long: bool,
    /// Why the case need not run over IPv6 or means nothing there; `None`: it runs.
    pub only_v4: Option<Text>,
    pub attack: Attack,
}

impl Case {
    /// A case against the server of the suite.
    pub(super) const fn new(name: Text, sent: Text, expected: Text, counters: Texts, run: Run) -> Self {
        Self::of(name, sent, expected, counters, Attack::Server(run))
    }

    /// A case against a bare queue pair, which is to answer nothing.
    pub(super) const fn silent(name: Text, sent: Text, counters: Texts, send: Sending) -> Self {
        Self::of(name, sent, "silence", counters, Attack::Silently(send))
    }

    /// Against an EJFAT worker, which makes most of its memory in use with the first datagrams.
    pub(super) const fn worker(name: Text, sent: Text, expected: Text, counters: Texts, run: Alone) -> Self {
        let case = Self::of(name, sent, expected, counters, Attack::Worker(run));
        case.growth(12).p99(Duration::from_millis(250))
    }

    /// Against a program of its own, with a bystander whose latencies before and during the attack are compared.
    pub(super) const fn fairness(name: Text, sent: Text, expected: Text, run: Alone) -> Self {
        Self::of(name, sent, expected, &[], Attack::Worker(run)).growth(64)
    }

    /// A case against a bridge of its own.
    pub(super) const fn bridge(name: Text, sent: Text, expected: Text, counters: Texts, run: Alone) -> Self {
        Self::worker(name, sent, expected, counters, run).growth(24)
    }

    const fn of(name: Text, sent: Text, expected: Text, counters: Texts, attack: Attack) -> Self {
        Self {
            group: "",
            name,
            sent,
            expected,
            counters,
            growth_mib: 4,
            p99: None,
            long: false,
            only_v4: None,
            attack,
        }
    }

    pub const fn attacks_worker(&self) -> bool {
        matches!(self.attack, Attack::Worker(_))
    }

    pub const fn growth(self, growth_mib: u64) -> Self {
        Self { growth_mib, ..self }
    }

    pub const fn p99(self, bound: Duration) -> Self {
        Self { p99: Some(bound), ..self }
    }

    pub const fn long(self) -> Self {
        Self { long: true, ..self }
    }

    pub const fn only_v4(self, why: &'static str) -> Self {
        Self { only_v4: Some(why), ..self }
    }
}

/// The bystanders' latencies while a case ran.
#[derive(Clone, Copy, Debug, Default)]
pub struct Latency {
    pub calls: usize,
    pub p50: Duration,
    pub p99: Duration,
}

impl Latency {
    /// What a quiet p50 and p99 count at least: below these the machine's own work is all that is measured.
    const LEAST_QUIET: [Duration; 2] = [Duration::from_micros(100), Duration::from_millis(1)];
    /// How many times the quiet p50 and p99 a bystander may take during an attack.
    const FAIR: [u32; 2] = [3, 10];

    /// Why somebody with these latencies was not served fairly, compared with the time before the attack.
    pub(super) fn unfair(self, quiet: Self) -> Option<String> {
        let figures = [("p50", self.p50, quiet.p50), ("p99", self.p99, quiet.p99)];
        let bounds = Self::FAIR.into_iter().zip(Self::LEAST_QUIET);
        let mut over = figures
            .into_iter()
            .zip(bounds)
            .filter(|((_, attacked, quiet), (times, least))| *attacked > (*quiet).max(*least) * *times);
        let ((name, attacked, quiet), (times, _)) = over.next()?;
        Some(format!("the bystander's {name} was {attacked:?}, more than {times} times the quiet {quiet:?}"))
    }
}

/// What became of a case.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub case: Case,
    pub family: Family,
    pub observation: Observation,
    /// Counters that rose, and by how much, without those of ordinary traffic.
    pub rose: Vec<(String, u64)>,
    /// The bystander before the attack, of cases that compare the two.
    pub quiet: Option<Latency>,
    pub bystander: Latency,
    pub growth_kib: i64,
    pub took: Duration,
    /// Why it did not pass; empty when it did.
    pub why: Vec<String>,
}

impl Outcome {
    /// The outcome of a case that was not run.
    pub(super) fn untried(case: &Case, family: Family, observation: Observation) -> Self {
        Self {
            case: *case,
            family,
            observation,
            rose: Vec::new(),
            quiet: None,
            bystander: Latency::default(),
            growth_kib: 0,
            took: Duration::ZERO,
            why: Vec::new(),
        }
    }

    /// Why the case means nothing over this protocol.
    pub fn not_applicable(&self) -> Option<&'static str> {
        self.case.only_v4.filter(|_| self.family == Family::V6)
    }

    pub fn failed(&self) -> bool {
        !self.why.is_empty()
    }

    pub fn skipped(&self) -> bool {
        self.observation.skipped && !self.failed()
    }

    pub fn tried(&self) -> bool {
        !self.skipped() && self.not_applicable().is_none()
    }

    /// The case and its result in one line.
    pub fn line(&self) -> String {
        let Case { group, name, .. } = self.case;
        format!("IPv{} {group} / {name}: {}", self.family.number(), self.result())
    }

    /// The result in words.
    pub fn result(&self) -> String {
        match self.why.as_slice() {
            [] if let Some(why) = self.not_applicable() => format!("not applicable: {why}"),
            [] if self.observation.skipped => format!("skipped: {}", self.observation.note),
            [] => "ok".into(),
            why => format!("FAILED: {}", why.join("; ")),
        }
    }
}
