//! How fast modules are simulated.

use anyhow::Result;
use naa_fpga::{Bench, Module, Tools};
use std::time::Instant;

/// The number of cycles whose time is measured.
const CYCLES: u64 = 1_000_000;

/// A measurement: a module, one input that gets a new value in each cycle, and inputs that keep their values.
struct Measure {
    module: &'static str,
    what: &'static str,
    changing: &'static str,
    fixed: &'static [(&'static str, u64)],
}

/// The least rate, in million cycles per second.
const LEAST: f64 = 1.0;

const MEASURES: [Measure; 2] = [
    Measure {
        module: "lb_lookup",
        what: "look-ups per second, million",
        changing: "key",
        fixed: &[("key_valid", 1)],
    },
    Measure {
        module: "icrc512",
        what: "cycles per second, million",
        changing: "s_tdata",
        fixed: &[("s_tvalid", 1), ("s_tkeep", u64::MAX), ("m_tready", 1)],
    },
];

/// Adds a row for each module that is measured. The limit is that of an otherwise idle machine: below it the row says so and does not fail.
pub(super) fn run(rows: &mut Vec<[String; 5]>) -> Result<()> {
    let tools = Tools::find().expect("the tools were installed before");
    for Measure { module, what, changing, fixed } in MEASURES {
        let mut bench = Bench::new(Module::new(module).model(&tools)?);
        let port = bench.model.port(changing);
        let mut value = vec![0; bench.model.len(port)];
        for (name, value) in fixed {
            let port = bench.model.port(name);
            bench.model.set(port, *value);
        }
        let begin = Instant::now();
        for cycle in 0..CYCLES {
            value[..8].copy_from_slice(&cycle.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
            bench.model.write(port, &value);
            bench.cycle(&mut []);
        }
        let rate = CYCLES as f64 / begin.elapsed().as_secs_f64() / 1e6;
        let result = if rate >= LEAST { "ok" } else { "slow" };
        rows.push([module, what, &format!("{rate:.2}"), &LEAST.to_string(), result].map(str::to_owned));
    }
    Ok(())
}
