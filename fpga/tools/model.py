"""Writes a harness of fpga/formal with the modules under proof as a model in SMT-LIB: model.py TOP OUT PARAMETERS MEMORIES FILES...

PARAMETERS: values for parameters of TOP, NAME=VALUE, with commas between them.
MEMORIES exact: memories hold what was written to them.
MEMORIES any: a memory may give any value when it is read. What is proved then holds the more for the exact ones, and solvers are much faster.
"""

import sys

from pyosys import libyosys as yosys

# Memories of at most this many entries become registers, which solvers do better with.
FEW = 16

top, out, parameters, memories, *files = sys.argv[1:]
given = " ".join(f"-G {parameter}" for parameter in parameters.split(",") if parameter)
design = yosys.Design()
for command in [
    f"read_slang --empty-blackboxes --top {top} {given} {' '.join(files)}",
    # A module without a body has outputs that may have any values.
    "cutpoint -blackbox",
    f"prep -flatten -nomem -top {top}",
    "memory_collect",
    f"memory_map r:SIZE<={FEW}",
    *(["cutpoint t:$mem_v2"] if memories == "any" else []),
    # A signal that nothing drives may have any value.
    "setundef -undriven -anyseq",
    "opt_clean",
    "check -assert",
    "chformal -lower",
    "dffunmap",
    f"write_smt2 -wires {out}",
]:
    yosys.run_pass(command, design)
