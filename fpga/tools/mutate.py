"""Puts mutants into a module with pyosys. Each mutant is one small fault, such as an inverted bit.

OUT is the module as Verilog, with one more input, `mutsel`: 0 is the module as it is, and each other number turns one mutant on. The files are
named relative to the working folder, so that each mutation names the same lines everywhere. OUT.NAME has a line for each mutant of the part NAME.
"""

import argparse
import pathlib
import re

from pyosys import libyosys as yosys

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--top", required=True)
parser.add_argument("--parameter", action="append", default=[], metavar="NAME=VALUE")
parser.add_argument("--seed", type=int, required=True)
parser.add_argument("--part", action="append", required=True, metavar="FIRST:COUNT:NAME", help="mutants of the file NAME.sv")
parser.add_argument("--out", required=True)
parser.add_argument("files", nargs="+")
options = parser.parse_args()

design = yosys.Design()


def run(command):
    yosys.run_pass(command, design)


parameters = " ".join(f"-G {parameter}" for parameter in options.parameter)
run(f"read_slang --top {options.top} {parameters} {' '.join(options.files)}")
run("proc; flatten; memory_collect")
# read_slang makes memories of arrays. Those whose indices are constants are stages of pipelines, and become registers here.
for cell in design.top_module().selected_cells():
    ports = ["\\RD_ADDR", "\\WR_ADDR"]
    if cell.type.str() == "$mem_v2" and all(cell.getPort(yosys.IdString(port)).is_fully_const() for port in ports):
        run(f"memory_map c:{cell.name.str()}")
# Faults in logic that has no effect could not be seen, so that this logic is removed first.
run("opt -full; wreduce; opt_clean")
# write_verilog has no expression for this cell.
run("simplemap t:$bwmux; opt_clean")
top = design.top_module()


def bits_of(signal):
    """Each bit as a name that can be compared."""
    return [(bit.wire.name.str(), bit.offset) if bit.is_wire() else bit.data for bit in signal.bits()]


def output_of(cell, port):
    """The output of a cell each bit of which depends on the same bit of this input, and on no other bit of it. None if there is no such output."""
    if cell.type.str() == "$mux" and port in ("\\A", "\\B"):
        return "\\Y"
    return "\\Q" if port == "\\D" and cell.hasPort(yosys.IdString("\\Q")) else None


# The bits on which an output of the module depends: first those that are read as a whole, then those that lead to them bit by bit.
needed = []
sources = {}
for cell in top.selected_cells():
    for port, signal in cell.connections_.items():
        if not cell.input(port):
            continue
        output = output_of(cell, port.str())
        if output is None:
            needed += bits_of(signal)
        else:
            for into, bit in zip(bits_of(cell.getPort(yosys.IdString(output))), bits_of(signal)):
                sources.setdefault(into, []).append(bit)
for into, signal in top.connections():
    for into, bit in zip(bits_of(into), bits_of(signal)):
        sources.setdefault(into, []).append(bit)
for wire in top.selected_wires():
    if wire.port_output:
        needed += bits_of(yosys.SigSpec(wire))
read = set()
while needed:
    bit = needed.pop()
    if bit not in read:
        read.add(bit)
        needed += sources.get(bit, [])


def is_fault(line):
    """Whether a mutation changes anything. It does not if the bit has no other value, or if no output depends on it."""
    words = line.split()
    of = {name: words[at + 1] for at, name in enumerate(words) if name in ("-mode", "-cell", "-port", "-portbit", "-ctrlbit")}
    name = of["-cell"] if of["-cell"].startswith("$") else "\\" + of["-cell"]
    port = yosys.IdString("\\" + of["-port"])
    cell = top.cell(yosys.IdString(name))
    bits = bits_of(cell.getPort(port))
    bit = bits[int(of["-portbit"])]
    output = of["-port"] if cell.output(port) else output_of(cell, port.str())
    if output is not None and bits_of(cell.getPort(yosys.IdString("\\" + output.lstrip("\\"))))[int(of["-portbit"])] not in read:
        return False
    if of["-mode"] in ("cnot0", "cnot1"):
        control = bits[int(of["-ctrlbit"])]
        when = yosys.State.S0 if of["-mode"] == "cnot0" else yosys.State.S1
        return isinstance(control, tuple) or control == when
    # The values that the bit may have without any change.
    kept = {"const0": [yosys.State.S0], "const1": [yosys.State.S1], "inv": []}[of["-mode"]]
    return isinstance(bit, tuple) or bit not in [*kept, yosys.State.Sx]


lists = []
for part in options.part:
    first, count, name = part.split(":")
    listed = f"{options.out}.{name}"
    # A memory has ports that are not used, such as resets, and write_verilog refuses a fault in them.
    cells = f"a:src=*/{name}.sv* t:$mem_v2 %d"
    # Asks for more mutations until enough of them are faults.
    asked = int(count)
    while True:
        run(f"mutate -list {asked} -seed {options.seed} -ctrl mutsel 16 {first} -o {listed} {cells}")
        lines = pathlib.Path(listed).read_text().splitlines()
        faults = [line for line in lines if is_fault(line)]
        if len(faults) >= int(count) or len(lines) < asked:
            break
        asked += int(count) - len(faults)
    numbered = enumerate(faults[: int(count)], int(first))
    texts = [re.sub(r"(mutsel 16) \d+", rf"\1 {number}", line) + "\n" for number, line in numbered]
    pathlib.Path(listed).write_text("".join(texts))
    lists.append(listed)
for listed in lists:
    run(f"script {listed}")
run("opt_clean")
run(f"write_verilog -noattr {options.out}")
