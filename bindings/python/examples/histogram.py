"""Samples of streamed events, as they come: histogram.py SOURCE [EVENTS]

Each event is little-endian uint16 samples, as of a detector's digitiser. Once a second, and after EVENTS events, mean,
deviation, extremes and a histogram of each data id.

NumPy gets a copy of each event: the bridge could change the event in the ring between two of the calls that read it, but it
cannot change the copy. A program for which the copy is too slow, and which trusts its bridge, calls
event.array_in_place() instead.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import sys
import time

import numpy

from naa.events import Worker

BINS = 16


class Tally:
    """Of one data id."""

    def __init__(self) -> None:
        self.events = self.samples = self.sum = self.squares = 0
        self.least, self.most = 65535, 0
        self.bins = numpy.zeros(BINS, dtype=numpy.int64)

    def add(self, samples: numpy.ndarray[tuple[int, ...], numpy.dtype[numpy.uint16]]) -> None:
        self.events += 1
        if samples.size > 0:
            wide = samples.astype(numpy.int64)
            self.samples += samples.size
            self.sum += int(wide.sum())
            self.squares += int((wide * wide).sum())
            self.least, self.most = min(self.least, int(samples.min())), max(self.most, int(samples.max()))
            self.bins += numpy.bincount(samples >> 12, minlength=BINS)

    def report(self, data_id: int) -> None:
        print(f"data id {data_id}: {self.events} events, {self.samples} samples", end="")
        if self.samples == 0:
            print()
            return
        mean = self.sum / self.samples
        deviation = math.sqrt(max(self.squares / self.samples - mean * mean, 0))
        print(f", mean {mean:.2f}, deviation {deviation:.2f}, {self.least} to {self.most}")
        for number, count in enumerate(self.bins):
            print(f"  {number * 65536 // BINS:5} {count:12} {'#' * int(count * 40 // self.bins.max())}")


async def main(source: str, most: float) -> None:
    tallies: dict[int, Tally] = {}
    due = time.monotonic() + 1
    with Worker(source) as worker:
        print(worker.description, file=sys.stderr)
        for number in itertools.count(1):
            event = await worker.next_async()
            # A whole number of samples.
            samples = event.array()[: len(event) // 2 * 2].view("<u2")
            tallies.setdefault(event.data_id, Tally()).add(samples)
            if time.monotonic() >= due or number >= most:
                print(*(f"{value} {name}" for name, value in worker.stats._asdict().items()), sep=", ")
                for data_id, tally in sorted(tallies.items()):
                    tally.report(data_id)
                due = time.monotonic() + 1
            if number >= most:
                return


if not 2 <= len(sys.argv) <= 3:
    raise SystemExit("usage: histogram.py SOURCE [EVENTS]   (a bridge: ADDRESS[:PORT] or unix:PATH)")
asyncio.run(main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) == 3 else math.inf))
