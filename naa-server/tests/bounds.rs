//! Checks that the table in docs/reference/functions.md has the same rows as `BOUNDS`, which contains the bounds of
//! memory and time of all built-in functions.

use mrsp::builtin;
use naa_server::functions::bounds::{BOUNDS, Bounds};

const PAGE: &str = include_str!("../../docs/reference/functions.md");

fn line(bounds: &Bounds) -> String {
    let Bounds { code, memory, between_checks, inline_bytes } = bounds;
    let inline = match *inline_bytes {
        0 => "never".to_owned(),
        u64::MAX => "any size".to_owned(),
        bytes => format!("{} KiB", bytes >> 10),
    };
    format!("| {} | {memory} | {between_checks} | {inline} |", builtin::name(*code).unwrap())
}

#[test]
fn the_page_has_the_table_of_bounds() {
    let expected: Vec<_> = BOUNDS.iter().map(line).collect();
    let table: Vec<_> = PAGE.lines().skip_while(|line| !line.starts_with("|---")).skip(1).collect();
    let table: Vec<_> = table.into_iter().take_while(|line| line.starts_with('|')).collect();
    assert!(
        table == expected,
        "docs/reference/functions.md should have these lines:\n{}",
        expected.join("\n")
    );
}
