"""Synthesises a module with pyosys: synthesise.py TOP FAMILY OUT FILES...

FAMILY xcup: OUT is yosys' statistics as JSON, of UltraScale+ cells, for each module by itself.
FAMILY ecp5: OUT is a netlist for nextpnr-ecp5.
"""

import sys

from pyosys import libyosys as yosys

top, family, out, *files = sys.argv[1:]
design = yosys.Design()
keep = "--keep-hierarchy " if family == "xcup" else ""
yosys.run_pass(f"read_slang {keep}--top {top} {' '.join(files)}", design)
if family == "xcup":
    yosys.run_pass(f"synth_xilinx -family xcup -top {top} -noiopad", design)
    yosys.run_pass(f"tee -q -o {out} stat -json", design)
else:
    yosys.run_pass(f"synth_ecp5 -top {top} -json {out}", design)
