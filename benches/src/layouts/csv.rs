//! Points as a table for other programs. The first three columns are those of the NAAICE project's measurements
//! (tests/do_client.py there), with its units: bytes and seconds.

use std::fmt::Write as _;

use super::point::{Direction, Point, Sizes};

const COLUMNS: &str = "byte_length,setup_time,transfer_time,\
    provider,wait,layout,used,params,sizes,param_bytes,direction,first_time,p99_time,spread,goodput,\
    host_cpu_time,server_cpu_time,host_registered,server_registered,joules,repeats,calls";

/// A header and a line for each point. Times are in seconds, goodput in bytes per second; what a machine cannot count is
/// empty.
pub(crate) fn csv(points: &[Point]) -> String {
    let mut out = format!("{COLUMNS}\n");
    for point in points {
        line(point, &mut out);
    }
    out
}

fn line(point: &Point, out: &mut String) {
    let workload = &point.workload;
    let seconds = |us: f64| format!("{:.9}", us / 1e6);
    let sizes = match workload.sizes {
        Sizes::Equal => "equal",
        Sizes::Mixed => "mixed",
    };
    let direction = match workload.direction {
        Direction::In => "in",
        Direction::Out => "out",
        Direction::Both => "both",
    };
    let cells = [
        workload.total().to_string(),
        seconds(point.setup_us),
        seconds(point.p50_us),
        workload.provider.clone(),
        workload.wait.clone(),
        point.layout.clone(),
        point.used.clone(),
        workload.params.to_string(),
        sizes.into(),
        workload.bytes.to_string(),
        direction.into(),
        seconds(point.first_us),
        seconds(point.p99_us),
        format!("{:.4}", point.spread),
        format!("{:.0}", point.goodput * (1_u64 << 30) as f64),
        seconds(point.host_cpu_us),
        seconds(point.server_cpu_us),
        point.host_registered.to_string(),
        point.server_registered.to_string(),
        point.joules.map_or(String::new(), |joules| format!("{joules:.9}")),
        point.repeats.to_string(),
        point.calls.to_string(),
    ];
    // Writing to a string does not fail.
    let _ = writeln!(out, "{}", cells.join(","));
}

#[cfg(test)]
mod tests {
    use super::{super::point::Workload, *};

    #[test]
    fn lines_have_the_columns_and_plain_numbers() {
        let (provider, wait) = ("embedded".into(), "spin".into());
        let direction = Direction::Both;
        let workload = Workload { provider, wait, sizes: Sizes::Mixed, params: 31, bytes: 64, direction };
        let point = Point {
            workload,
            layout: "auto".into(),
            used: "packed:4096".into(),
            setup_us: 250.5,
            first_us: 40.0,
            p50_us: 20.25,
            p99_us: 31.0,
            spread: 0.0123,
            goodput: 0.5,
            host_cpu_us: 20.0,
            server_cpu_us: 0.001,
            host_registered: 1984,
            server_registered: 1 << 40,
            joules: None,
            repeats: 15,
            calls: 1500,
        };
        let counted = Point { joules: Some(2e-6), ..point.clone() };
        let text = csv(&[point, counted]);
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[0].starts_with("byte_length,setup_time,transfer_time,provider,"), "{text}");
        assert_eq!(
            lines[1],
            "1984,0.000250500,0.000020250,embedded,spin,auto,packed:4096,31,mixed,64,both,0.000040000,\
             0.000031000,0.0123,536870912,0.000020000,0.000000001,1984,1099511627776,,15,1500"
        );
        assert!(lines[2].ends_with(",0.000002000,15,1500"), "{text}");
        let count = |line: &str| line.split(',').count();
        assert!(lines.iter().all(|line| count(line) == count(lines[0])), "{text}");
    }
}
