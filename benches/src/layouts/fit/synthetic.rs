//! Points nobody measured, with a known answer.

use mrsp::layout::{Layout, LayoutRule};

use super::contest::Contest;
use crate::layouts::{
    point::{Direction, Point, ProviderRule, Run, Sizes, Workload},
    sizes::sizes,
};

pub(crate) const COUNTS: [u16; 6] = [1, 2, 4, 8, 31, 255];
pub(crate) const BYTES: [u64; 6] = [64, 256, 1024, 4096, 65536, 1 << 20];
const LAYOUTS: [&str; 6] =
    ["symmetric", "asymmetric", "gathered", "packed:1024", "packed:16384", "packed:262144"];

pub(crate) fn workload(params: u16, bytes: u64) -> Workload {
    let (provider, wait) = ("embedded".into(), "spin".into());
    Workload { provider, wait, sizes: Sizes::Equal, params, bytes, direction: Direction::Out }
}

pub(crate) fn point(workload: &Workload, layout: &str, p50_us: f64) -> Point {
    let both = if workload.direction == Direction::Both { 2.0 } else { 1.0 };
    let payload = f64::from(workload.params) * workload.bytes as f64;
    Point {
        workload: workload.clone(),
        layout: layout.into(),
        used: layout.into(),
        setup_us: 300.0,
        first_us: 2.0 * p50_us,
        p50_us,
        p99_us: 1.5 * p50_us,
        spread: 0.02,
        goodput: both * payload / f64::from(1 << 30) / (p50_us * 1e-6),
        host_cpu_us: p50_us,
        server_cpu_us: p50_us,
        host_registered: payload as u64,
        server_registered: payload as u64,
        joules: None,
        repeats: 15,
        calls: 1500,
    }
}

/// Over one provider, one way, equal sizes; packed copies all parameters of up to 1 MiB, or of up to 4 KiB.
pub(crate) fn points(us: impl Fn(&Workload, Layout) -> f64) -> Vec<Point> {
    let grid = COUNTS.iter().flat_map(|&params| BYTES.iter().map(move |&bytes| workload(params, bytes)));
    let layouts = ["symmetric", "asymmetric", "gathered", "packed:4096", "packed:1048576"];
    let points = grid.flat_map(|workload| {
        let us = &us;
        layouts.map(move |layout| point(&workload, layout, us(&workload, layout.parse().unwrap())))
    });
    points.collect()
}

/// Mixed sizes.
pub(crate) fn mixed(us: impl Fn(&[u64], Layout) -> f64) -> Vec<Point> {
    let mut points = Vec::new();
    for (params, bytes) in COUNTS.into_iter().flat_map(|params| BYTES.map(|bytes| (params, bytes))) {
        let workload = Workload { sizes: Sizes::Mixed, ..workload(params, bytes) };
        for layout in ["symmetric", "asymmetric", "gathered", "packed:256", "packed:4096"] {
            let us = us(&sizes(&workload), layout.parse().unwrap());
            points.push(point(&workload, layout, us));
        }
    }
    points
}

/// One for each workload of `points`.
pub(crate) fn autos(points: &[Point], used: &str, us: f64) -> Vec<Point> {
    let auto = |contest: Contest<'_>| Point { used: used.into(), ..point(contest.workload, "auto", us) };
    Contest::all(points).into_iter().map(auto).collect()
}

/// What two machines might give: WRITEs, list entries, copies and bytes have their cost, and nothing is exact.
pub(crate) fn run(seed: u64) -> Run {
    let rule: LayoutRule = "packed:4096:2,symmetric".parse().unwrap();
    let mut noise = Noise(seed);
    let mut points = Vec::new();
    for workload in workloads() {
        let chosen = rule.choose(sizes(&workload)).to_string();
        for layout in LAYOUTS.into_iter().chain(["auto"]) {
            let used = if layout == "auto" { chosen.as_str() } else { layout };
            points.push(Point { layout: layout.into(), ..measured(&workload, used, &mut noise) });
        }
    }
    let rules = ["embedded", "verbs"];
    let rules = rules.map(|provider| ProviderRule { provider: provider.into(), rule: rule.to_string() });
    Run {
        machine: ["processor: made up", "2 cores", "8 GiB", "Linux 6.1", "naa 0.0"].map(str::to_owned).into(),
        command: "naa bench layouts --json made-up.json".into(),
        rules: rules.into(),
        points,
    }
}

/// Much of what is both ways and spins, little of the rest.
fn workloads() -> Vec<Workload> {
    let mut all = Vec::new();
    for provider in ["embedded", "verbs"] {
        for wait in ["spin", "block"] {
            for direction in [Direction::In, Direction::Out, Direction::Both] {
                let is_usual = wait == "spin" && direction == Direction::Both;
                for sizes in [Sizes::Equal, Sizes::Mixed] {
                    let (provider, wait) = (provider.to_owned(), wait.to_owned());
                    let kind = Workload { provider, wait, sizes, params: 1, bytes: 1984, direction };
                    all.extend(grid(&kind, is_usual));
                }
            }
        }
    }
    all
}

fn grid(kind: &Workload, is_usual: bool) -> Vec<Workload> {
    let counts = if is_usual { &[1, 2, 4, 8, 16, 31, 64, 128, 255][..] } else { &[1, 8, 31, 255] };
    let bytes = if is_usual {
        &[64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 16 << 20][..]
    } else {
        &[64, 1 << 10, 4 << 10, 16 << 10, 256 << 10, 1 << 20]
    };
    let of = |&params: &u16| bytes.iter().map(move |&bytes| Workload { params, bytes, ..kind.clone() });
    let all = counts.iter().flat_map(of).filter(|workload| workload.total() <= 256 << 20);
    let one = (kind.sizes == Sizes::Equal && kind.direction == Direction::Both).then(|| kind.clone());
    all.chain(one).collect()
}

fn measured(workload: &Workload, used: &str, noise: &mut Noise) -> Point {
    let sizes = sizes(workload);
    let is_verbs = workload.provider == "verbs";
    let (call, write, entry) = if is_verbs { (25.0, 1.6, 0.25) } else { (9.0, 0.45, 0.05) };
    let wake = if workload.wait == "block" { 14.0 } else { 0.0 };
    let ways = if workload.direction == Direction::Both { 2.0 } else { 1.0 };
    let total = sizes.iter().sum::<u64>() as f64;
    let count = sizes.len() as f64;
    let (writes, copied, regions) = match used.parse().unwrap() {
        Layout::Symmetric => (count * write, 0.0, count),
        Layout::Asymmetric => (count * write * 0.99, 0.0, 1.0),
        Layout::Gathered => ((count / 30.0).ceil() * write + count * entry, 0.0, 1.0),
        Layout::Packed { threshold } => {
            let small = sizes.iter().filter(|&&size| size <= threshold.into());
            let bytes = small.clone().sum::<u64>() as f64;
            ((1.0 + count - small.count() as f64) * write, bytes, 1.0)
        }
    };
    let us =
        call + wake + ways * (writes + 2.0 * copied / 9e3 + total / if is_verbs { 1.1e3 } else { 2.2e3 });
    let spread = 0.01 + 0.05 * noise.next() + if noise.next() > 0.97 { 0.3 } else { 0.0 };
    let registered = total + if used.starts_with("packed") { copied } else { 0.0 };
    Point {
        used: used.into(),
        setup_us: (250.0 + 3.0 * regions + 2.0 * count + total / 4e4) * (0.95 + 0.1 * noise.next()),
        spread,
        host_cpu_us: 0.6 * us,
        server_cpu_us: 0.7 * us,
        host_registered: (ways * registered) as u64,
        joules: Some(us * 15e-6),
        ..point(workload, used, us * (1.0 + spread * (noise.next() - 0.5)))
    }
}

/// Knuth's MMIX generator: the same numbers everywhere.
struct Noise(u64);

impl Noise {
    /// At least 0, below 1.
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }
}
