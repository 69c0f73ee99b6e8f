//! Points as a table for other programs. The first three columns are those of the NAAICE project's measurements
//! (tests/do_client.py there), with its units: bytes and seconds.

use super::point::Point;

const COLUMNS: &str = "byte_length,setup_time,transfer_time,\
    provider,wait,layout,used,params,sizes,param_bytes,direction,first_time,p99_time,spread,goodput,\
    host_cpu_time,server_cpu_time,host_registered,server_registered,joules,repeats,calls";

/// A header and a line for each point. Times are in seconds, goodput in bytes per second; what a machine cannot count is
/// empty.
///
/// # Errors
/// If there is no memory.
pub(crate) fn csv(points: &[Point]) -> csv::Result<Vec<u8>> {
    let mut out = csv::Writer::from_writer(Vec::new());
    out.write_record(COLUMNS.split(','))?;
    points.iter().try_for_each(|point| out.serialize(cells(point)))?;
    out.into_inner().map_err(|error| error.into_error().into())
}

fn cells(point: &Point) -> impl serde::Serialize {
    let workload = &point.workload;
    let seconds = |us: f64| format!("{:.9}", us / 1e6);
    // Tuples have at most 16 elements.
    (
        (
            workload.total(),
            seconds(point.setup_us),
            seconds(point.p50_us),
            &workload.provider,
            &workload.wait,
            &point.layout,
            &point.used,
            workload.params,
            workload.sizes,
            workload.bytes,
            workload.direction,
        ),
        (
            seconds(point.first_us),
            seconds(point.p99_us),
            format!("{:.4}", point.spread),
            format!("{:.0}", point.goodput * (1_u64 << 30) as f64),
            seconds(point.host_cpu_us),
            seconds(point.server_cpu_us),
            point.host_registered,
            point.server_registered,
            point.joules.map(|joules| format!("{joules:.9}")),
            point.repeats,
            point.calls,
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            fit::synthetic,
            point::{Direction, Sizes, Workload},
        },
        *,
    };

    #[test]
    fn lines_have_the_columns_and_plain_numbers() {
        let (sizes, direction) = (Sizes::Mixed, Direction::Both);
        let workload = Workload { sizes, direction, ..synthetic::workload(31, 64) };
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
        let text = String::from_utf8(csv(&[point, counted]).unwrap()).unwrap();
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
