//! C functions for the C++ class that Verilator makes of a module.

use std::fmt::Write;

/// A port of a module, as the header of its class declares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Declared {
    pub(crate) name: String,
    /// The number of bytes of the variable that holds its value.
    pub(crate) bytes: usize,
}

/// The ports that a header declares.
///
/// # Source
/// Verilator's macros: `VL_IN8(&name,msb,lsb)`, also of 16 and 64 bits, without a number for 32, and
/// `VL_INW(&name,msb,lsb,words)`; `VL_OUT` likewise.
pub(crate) fn ports(header: &str) -> Vec<Declared> {
    header.lines().filter_map(|line| port(line.trim())).collect()
}

fn port(line: &str) -> Option<Declared> {
    let rest = line.strip_prefix("VL_IN").or_else(|| line.strip_prefix("VL_OUT"))?;
    let (kind, rest) = rest.split_once("(&")?;
    let mut fields = rest.strip_suffix(");")?.split(',');
    let name = fields.next()?.to_owned();
    let bytes = match kind {
        "8" => 1,
        "16" => 2,
        "" => 4,
        "64" => 8,
        "W" => 4 * fields.nth(2)?.parse::<usize>().ok()?,
        _ => return None,
    };
    Some(Declared { name, bytes })
}

/// The C++ of functions that make a model, evaluate it and say where its ports are.
pub(crate) fn source(ports: &[Declared]) -> String {
    let mut text = String::from(HEAD);
    for (at, Declared { name, bytes }) in ports.iter().enumerate() {
        let _ =
            writeln!(text, "    case {at}: *name = \"{name}\"; *bytes = {bytes}; return &model.top.{name};");
    }
    text.push_str(TAIL);
    text
}

const HEAD: &str = r#"#include "Vtop.h"
#include "verilated.h"
#if VM_TRACE_FST
#include "verilated_fst_c.h"
#endif
#if VM_COVERAGE
#include "verilated_cov.h"
#endif

// Registers and memories begin with random values, which the seed tells, because nobody knows what those of hardware begin with.
struct Context : VerilatedContext {
    explicit Context(int seed) { randReset(2); randSeed(seed); }
};

struct Model {
    Context context;
    Vtop top{&context};
#if VM_TRACE_FST
    VerilatedFstC waveform;
#endif
    explicit Model(int seed) : context(seed) {}
};

extern "C" {
Model* naa_new(int seed) { return new Model(seed); }
void naa_free(Model* model) {
    model->top.final();
#if VM_TRACE_FST
    model->waveform.close();
#endif
    delete model;
}
void naa_eval(Model* model) { model->top.eval(); }
#if VM_TRACE_FST
void naa_trace(Model* model, const char* file) {
    model->context.traceEverOn(true);
    model->top.trace(&model->waveform, 99);
    model->waveform.open(file);
}
void naa_dump(Model* model, uint64_t time) { model->waveform.dump(time); }
#endif
#if VM_COVERAGE
void naa_coverage(Model* model, const char* file) { model->context.coveragep()->write(file); }
#endif
void* naa_port(Model* held, unsigned at, const char** name, unsigned* bytes) {
    Model& model = *held;
    switch (at) {
"#;

const TAIL: &str = "    default: return nullptr;
    }
}
}
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_of_every_width_are_found() {
        let header = "    // PORTS\n    VL_IN8(&clk,0,0);\n    VL_OUT16(&half,15,0);\n    VL_IN(&word,31,0);\n    \
                      VL_OUT64(&keep,63,0);\n    VL_INW(&data,511,0,16);\n    VL_INOUT8(&pad,0,0);\n    int x;\n";
        let declared: Vec<_> = ports(header).into_iter().map(|port| (port.name, port.bytes)).collect();
        let expected = [("clk", 1), ("half", 2), ("word", 4), ("keep", 8), ("data", 64)];
        assert_eq!(declared, expected.map(|(name, bytes)| (name.to_owned(), bytes)));
    }
}
