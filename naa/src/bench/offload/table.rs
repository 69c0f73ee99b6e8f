//! The table for people.

use std::{net::SocketAddr, time::Duration};

use naa_measure::{
    Column, TextTable,
    energy::{Counters, NoneFound},
    number,
    row::Row,
};

use crate::show;

pub(super) fn new(has_energy: bool) -> TextTable {
    use Column::{Left, Right};
    let mut columns =
        vec![Left(16), Right(8), Right(8), Right(9), Right(7), Right(15), Right(7), Right(6), Right(7)];
    columns.extend([Right(12), Right(16)].into_iter().filter(|_| has_energy));
    TextTable::new(columns)
}

pub(super) fn head(has_energy: bool) -> Vec<&'static str> {
    let mut head = vec![
        "function",
        "bytes in",
        "local",
        "offloaded",
        "ratio",
        "with connecting",
        "ratio",
        "spread",
        "repeats",
    ];
    head.extend(["J/call local", "J/call offloaded"].into_iter().filter(|_| has_energy));
    head
}

/// The row of a function at one size: calls, calls with connecting and copying, and energy if it is counted.
pub(super) fn cells(
    name: &str,
    bytes: u64,
    [call, all]: [&Row; 2],
    energy: Option<&Row>,
    repeats: usize,
) -> Vec<String> {
    let time = |us: Option<f64>| us.map_or("-".into(), |us| show::time(Duration::from_secs_f64(us / 1e6)));
    let ratio = |ratio: Option<f64>| ratio.map_or("-".into(), |ratio| format!("{ratio:.2}"));
    let mut cells = vec![
        name.to_owned(),
        show::bytes(bytes),
        time(call.reference),
        time(call.ours),
        ratio(call.ratio),
        time(all.ours),
        ratio(all.ratio),
        call.spread.map_or("-".into(), |spread| format!("{:.0} %", spread * 100.0)),
        repeats.to_string(),
    ];
    cells.extend(energy.into_iter().flat_map(|row| [joules(row.reference), joules(row.ours)]));
    cells
}

/// Explains which energy J/call counts, or why none is counted. `server` is set if this command did not start the
/// server.
pub(super) fn about_energy(counters: &Result<Counters, NoneFound>, server: Option<SocketAddr>) -> String {
    match (counters, server) {
        (Err(reason), _) => format!("no energy: {reason}"),
        (Ok(counters), None) => {
            format!("J/call: {} of this machine, on which both ends are", names(counters))
        }
        (Ok(counters), Some(server)) => {
            let names = names(counters);
            format!("J/call: {names} of this machine; what {server} uses elsewhere is not included")
        }
    }
}

fn names(counters: &Counters) -> String {
    counters.names().collect::<Vec<_>>().join(", ")
}

/// The energy with three digits and a unit.
fn joules(joules: Option<f64>) -> String {
    let Some(joules) = joules else { return "-".into() };
    let (value, unit) = match joules {
        j if j >= 1.0 => (j, "J"),
        j if j >= 1e-3 => (j * 1e3, "mJ"),
        j => (j * 1e6, "uJ"),
    };
    format!("{} {unit}", number(value))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use naa_measure::row::Target;

    use super::*;

    #[test]
    fn energy_has_columns_where_it_is_counted() {
        assert_eq!(
            head(true).strip_prefix(&head(false)[..]),
            Some(&["J/call local", "J/call offloaded"][..])
        );
        let row = |unit, pair: &[(f64, f64)]| Row::compared("m", unit, Target::Report, pair);
        let times = row("us", &[(20.0, 10.0); 3]);
        let mut table = new(true);
        let mut line =
            |energy: Option<&Row>| table.format(cells("sort", 1 << 10, [&times, &times], energy, 3));
        let none = line(None);
        assert!(none.ends_with("3"), "{none}");
        let counted = line(Some(&row("J", &[(0.0123, 0.000_456); 3])));
        assert_eq!(counted.strip_prefix(&none), Some("        456 uJ           12.3 mJ"));
        let gone = line(Some(&row("J", &[])));
        assert_eq!(gone.strip_prefix(&none), Some("             -                 -"));
        for text in [table.format(head(true)), counted, gone] {
            assert_eq!(text.len(), new(true).format(head(true)).len(), "{text}");
        }
    }

    #[test]
    fn joules_have_three_digits() {
        let texts = [0.0, 1.234e-6, 45.67e-6, 1.5e-3, 0.25, 12.345, 1234.5].map(|j| joules(Some(j)));
        assert_eq!(texts, ["0 uJ", "1.23 uJ", "45.7 uJ", "1.50 mJ", "250 mJ", "12.3 J", "1234 J"]);
    }

    #[test]
    fn what_energy_is_of_is_said_and_why_there_is_none() {
        let server = "10.9.0.2:12345".parse().expect("an address");
        let none = about_energy(&Err(NoneFound::Absent), Some(server));
        assert_eq!(none, "no energy: this machine has no energy counters (powercap)");
        let folder = std::env::temp_dir().join(format!("naa-offload-table-{}", std::process::id()));
        let files = [("name", "package-0"), ("energy_uj", "1"), ("max_energy_range_uj", "1000")];
        fs::create_dir_all(folder.join("intel-rapl:0")).expect("a folder");
        files.iter().for_each(|(file, text)| {
            fs::write(folder.join("intel-rapl:0").join(file), text).expect("a file");
        });
        let counters = Counters::under(&folder);
        fs::remove_dir_all(&folder).expect("removed");
        let here = about_energy(&counters, None);
        assert_eq!(here, "J/call: package-0 of this machine, on which both ends are");
        let there = about_energy(&counters, Some(server));
        assert!(
            there.ends_with("of this machine; what 10.9.0.2:12345 uses elsewhere is not included"),
            "{there}"
        );
    }
}
