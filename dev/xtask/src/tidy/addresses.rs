//! Tests of one file run at the same time, so no two of them listen at one loopback address.

use super::Finding;
use std::{collections::HashMap, net::Ipv4Addr};

/// Every test may use the addresses that start with this: programs that listen there ask for any free port.
const SHARED: &str = "127.0.0.";

/// Finds loopback addresses that two functions of a test file name. Other files are not looked at.
pub(crate) fn check(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !(path.contains("/tests/") && path.ends_with(".rs")) {
        return findings;
    }
    let mut users: HashMap<&str, &str> = HashMap::new();
    let mut function = "";
    for (line, text) in (1..).zip(text.lines()) {
        function = function_of(text).unwrap_or(function);
        for address in addresses_of(text).filter(|address| !address.starts_with(SHARED)) {
            let first = *users.entry(address).or_insert(function);
            if first != function {
                let what = format!("`{first}` and `{function}` both name {address}");
                findings.push(Finding::new(path, line, what, "give each test an address of its own"));
            }
        }
    }
    findings
}

/// The name of the function that begins on this line.
fn function_of(line: &str) -> Option<&str> {
    let (before, after) = line.split_once("fn ")?;
    let begins = before.split_whitespace().all(|word| word.starts_with("pub") || word == "async");
    begins.then(|| after.split(['(', '<']).next().unwrap_or(after))
}

/// The whole addresses on a line: a format string may hold the beginning of one.
fn addresses_of(line: &str) -> impl Iterator<Item = &str> {
    let from = line.match_indices("127.").map(|(at, _)| &line[at..]);
    let numbers = from.filter_map(|rest| rest.split(|c: char| !c.is_ascii_digit() && c != '.').next());
    numbers.filter(|text| text.parse::<Ipv4Addr>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_two_tests_is_found() {
        let text = "fn one() {\n    serve(\"127.0.71.10\");\n    call(\"127.0.71.10:4791\");\n}\n\
                    pub(crate) async fn two<T>() {\n    serve(\"127.0.71.10\");\n    serve(\"127.0.0.1\");\n    format!(\"127.0.71.{n}\");\n}\n\
                    fn three() {\n    format!(\"127.0.71.{n}\");\n    serve(\"127.0.0.1\");\n}\n";
        let findings = check("naa/tests/kernels.rs", text);
        assert_eq!(findings.iter().map(|f| f.line).collect::<Vec<_>>(), [6]);
        assert_eq!(findings[0].what, "`one` and `two` both name 127.0.71.10");
        assert!(check("naa/src/main.rs", text).is_empty());
    }
}
