"""Has an accelerator multiply two matrices, and compares with NumPy: dgemm.py [ADDRESS]"""

import sys

import numpy

import naa

address = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1"
m, n, k = 500, 400, 300
random = numpy.random.default_rng()
a, b = random.random((m, k)), random.random((k, n))
c = numpy.empty((m, n))

naa.offload(address, "dgemm", a=a, b=b, c=c, timeout=10)

difference = float(numpy.abs(c - a @ b).max())
print(f"dgemm {m} x {k} by {k} x {n}: difference from NumPy at most {difference:.1e}")
sys.exit(difference > 1e-9)
