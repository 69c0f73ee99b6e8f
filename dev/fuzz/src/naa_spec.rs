//! NAA_SPEC: what can be read can be written in full and read again.

use naa_host::Spec;

pub fn run(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    match text.parse::<Spec>() {
        Ok(spec) => {
            let again: Vec<_> = spec
                .entries()
                .iter()
                .map(|entry| format!("{}:{}:{}", entry.peer, entry.function, entry.inputs))
                .collect();
            let again: Spec = again.join(",").parse().expect("what was written in full can be read");
            assert_eq!(again.entries(), spec.entries());
        }
        // The message quotes what is wrong.
        Err(error) => drop(error.to_string()),
    }
}
