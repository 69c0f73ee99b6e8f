"""Puts mutants into a module with pyosys. Each mutant is one small fault, such as an inverted bit.

OUT is the module as Verilog, with one more input, `mutsel`: 0 is the module as it is, and each other number turns one mutant on. The files are
named relative to the working folder, so that each mutation names the same lines everywhere. OUT.NAME has a line for each mutant of the part NAME.
"""

import argparse

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
run("opt -full; wreduce; splitcells; opt_clean")
# write_verilog has no expression for this cell.
run("simplemap t:$bwmux; opt_clean")
lists = []
for part in options.part:
    first, count, name = part.split(":")
    listed = f"{options.out}.{name}"
    # A memory has ports that are not used, such as resets, and write_verilog refuses a fault in them.
    cells = f"a:src=*/{name}.sv* t:$mem_v2 %d"
    run(f"mutate -list {count} -seed {options.seed} -ctrl mutsel 16 {first} -o {listed} {cells}")
    lists.append(listed)
for listed in lists:
    run(f"script {listed}")
run("opt_clean")
run(f"write_verilog -noattr {options.out}")
