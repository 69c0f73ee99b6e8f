//! The functions that the headers declare, held against the rows and against the library's symbols.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    process::Command,
    time::Instant,
};

use super::{
    programs::{Listed, label},
    row::Row,
};

const HEADERS: [&str; 8] = [
    "naa.h",
    "naa_events.h",
    "naaice.h",
    "naaice_ap2.h",
    "naaice_ap2_cpp.h",
    "naaice_swnaa.h",
    "swnaa_kernels.h",
    "ulog.h",
];

/// Public methods of `naaice_ap2_cpp.h`, which has nothing else.
const METHODS: [&str; 3] = ["NAAHandler", "~NAAHandler", "invoke"];

/// Functions without arguments, or that take anything: there is nothing to do wrong.
const CANNOT_BE_MISUSED: [&str; 8] = [
    "naaice_last_error",
    "naa_last_error",
    "naa_version",
    "ulog_cleanup",
    "ulog_log",
    "NAAHandler",
    "~NAAHandler",
    "match_function_code",
];

/// Defined by the header or by the program, not by the library.
const NOT_IN_THE_LIBRARY: [&str; 3] = ["ulog_log", "naaice_swnaa_init_master", "match_function_code"];

/// Comments and preprocessor lines taken out.
fn code(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("/*") {
        out.push_str(&rest[..at]);
        rest = rest[at..].split_once("*/").map_or("", |(_, rest)| rest);
    }
    out.push_str(rest);
    let lines = out.lines().map(|line| line.split("//").next().unwrap_or_default());
    lines.filter(|line| !line.trim_start().starts_with('#')).collect::<Vec<_>>().join("\n")
}

/// Names that stand before a parenthesis outside of braces, parentheses and typedefs.
fn functions(header: &str) -> BTreeSet<String> {
    // Its closing brace finds nothing open.
    let code = code(header).replace("extern \"C\" {", "");
    let mut found = BTreeSet::new();
    let mut depth = 0usize;
    let mut statement = String::new();
    for c in code.chars() {
        match c {
            '(' if depth == 0 => {
                let name = statement.rsplit(|c: char| !c.is_alphanumeric() && c != '_').next();
                let name = name.unwrap_or_default();
                let is_function = !statement.contains("typedef")
                    && name != "__attribute__"
                    && statement.split_whitespace().count() > 1
                    && !name.is_empty();
                if is_function {
                    found.insert(name.to_owned());
                }
                depth += 1;
            }
            '(' | '{' => depth += 1,
            ')' | '}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 && c == '}' {
                    statement.clear();
                }
            }
            ';' if depth == 0 => statement.clear(),
            _ if depth == 0 => statement.push(c),
            _ => {}
        }
    }
    found
}

/// The names of the functions that each header declares.
fn declared(folder: &Path) -> Result<BTreeMap<&'static str, BTreeSet<String>>, String> {
    let read = |name| {
        let path = folder.join(name);
        let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let names = if name == "naaice_ap2_cpp.h" {
            METHODS.map(str::to_owned).into_iter().collect()
        } else {
            functions(&text)
        };
        Ok((name, names))
    };
    HEADERS.into_iter().map(read).collect()
}

/// Symbols that a shared library defines.
fn defined(library: &Path) -> Result<BTreeSet<String>, String> {
    let output = Command::new("nm").args(["-D", "--defined-only"]).arg(library).output();
    let output = output.map_err(|e| format!("nm: {e}; apt-get install binutils"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().filter_map(|line| line.split_whitespace().last()).map(str::to_owned).collect())
}

fn missing(
    what: &str,
    wanted: &BTreeMap<&'static str, BTreeSet<String>>,
    there: impl Fn(&str) -> bool,
) -> Result<String, String> {
    let all = wanted.iter().flat_map(|(header, names)| names.iter().map(move |name| (header, name)));
    let missing: Vec<_> = all
        .clone()
        .filter(|(_, name)| !there(name))
        .map(|(header, name)| format!("{name} ({header})"))
        .collect();
    let count = all.count();
    if missing.is_empty() {
        Ok(format!("{count} functions"))
    } else {
        Err(format!("{what}: {}", missing.join(", ")))
    }
}

/// No public function is without a row in C and in C++, none without a row of misuse, none without a symbol.
pub(super) fn check(headers: &Path, library: &Path, rows: &[Listed]) -> Result<Vec<Row>, String> {
    let start = Instant::now();
    let wanted = declared(headers)?;
    let symbols = defined(library)?;
    let of = |language: &str, name: &str, misuse: bool| {
        rows.iter().any(|row| {
            row.function == name
                && label(&row.program).ends_with(language)
                && (!misuse || row.what.starts_with("arguments") || row.what.starts_with("states"))
        })
    };
    let only_cpp = |name: &str| METHODS.contains(&name);
    let mut table = Vec::new();
    let mut add = |case: &str, result| table.push(Row::new("headers", case, start.elapsed(), result));
    add(
        "every function has a row in C",
        missing("no row in C", &wanted, |n| only_cpp(n) || of(", C", n, false)),
    );
    add("every function has a row in C++", missing("no row in C++", &wanted, |n| of(", C++", n, false)));
    let used = |n: &str| rows.iter().any(|row| row.function == n && !row.what.starts_with("arguments"));
    add("every function is used well", missing("only misused", &wanted, used));
    add(
        "every function that can be misused is, in C and C++",
        missing("no misuse", &wanted, |n| {
            CANNOT_BE_MISUSED.contains(&n) || of(", C++", n, true) && (only_cpp(n) || of(", C", n, true))
        }),
    );
    add(
        "every function is in the library",
        missing("not in the library", &wanted, |n| {
            symbols.contains(n) || only_cpp(n) || NOT_IN_THE_LIBRARY.contains(&n)
        }),
    );
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        functions(text).into_iter().collect()
    }

    #[test]
    fn functions_are_told_from_what_looks_like_them() {
        let text = "/* int no(void); */\n#define M(x) f(x)\ntypedef int (g)(int);\nint\nf(void);\nextern \"C\" {\n\
                    const char *h(int (*call)(int), int);\n}\nstruct s { int (*k)(void); };\n\
                    static inline int in(int a) { return call(a); }\nenum e { A = (1) };\n";
        assert_eq!(names(text), ["f", "h", "in"]);
    }

    #[test]
    fn the_real_headers_are_read() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bindings/capi/include");
        let all = declared(&folder).unwrap();
        assert!(all["naaice.h"].contains("naaice_disconnect_and_cleanup"), "{all:?}");
        assert!(all["naa.h"].contains("naa_call_wait_any"), "{all:?}");
        assert!(all["ulog.h"].contains("ulog_log"), "{all:?}");
        assert!(all["naaice_swnaa.h"].contains("worker_procedure"), "{all:?}");
    }
}
