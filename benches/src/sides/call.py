"""Calls from Python: a number on standard input is how many to make; their median in microseconds is the answer."""

import statistics
import sys
import time

import naa

data = bytearray(64)
calls = 0
with naa.connect(sys.argv[1], [naa.InOut(data)]) as session:
    for line in sys.stdin:
        times = []
        for _ in range(int(line)):
            start = time.perf_counter_ns()
            session.call("increment")
            times.append(time.perf_counter_ns() - start)
        calls += len(times)
        assert data == bytes([calls % 256]) * 64, f"wrong result after {calls} calls"
        print(statistics.median(times) / 1000, flush=True)
