//! Data planes for tests, on the engine that a variable names.

use ejfat::lb::Rules;
use ejfat_lb::SharedDataPlane;

/// A data plane on the engine that `NAA_LB_ENGINE` names: `software`, which is also that without the variable, or `rtl`.
pub(crate) fn new_plane(rules: Rules, seed: u64) -> SharedDataPlane {
    let plane = SharedDataPlane::new(rules, seed);
    match std::env::var("NAA_LB_ENGINE").as_deref() {
        Err(_) | Ok("software") => plane,
        Ok("rtl") => {
            let engine = naa_fpga::Simulated::start().unwrap_or_else(|why| panic!("{why}: {why:?}"));
            plane.with_engine(Box::new(engine)).unwrap()
        }
        Ok(other) => panic!("there is no engine {other}; NAA_LB_ENGINE takes software and rtl"),
    }
}

/// Whether the engine is the RTL. It has 8 load balancers and is slow.
#[allow(dead_code, reason = "one test program asks")]
pub(crate) fn is_rtl() -> bool {
    std::env::var("NAA_LB_ENGINE").is_ok_and(|engine| engine == "rtl")
}
