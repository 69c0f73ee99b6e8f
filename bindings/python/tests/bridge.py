"""A bridge on this host for tests, with one worker: it is given what the test says."""

from __future__ import annotations

import fcntl
import mmap
import os
import socket
import struct
import time
from pathlib import Path

BLOCK = 64
PAGE = 1 << 16


class Bridge:
    """Listens; accept() takes a worker."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "bridge.sock"
        self.source = f"unix:{self.path}"
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(str(self.path))
        self._listener.listen()
        self._seats: list[Seat] = []

    def accept(self) -> Seat:
        connection, _ = self._listener.accept()
        self._seats.append(Seat(connection))
        return self._seats[-1]

    def close(self) -> None:
        for seat in self._seats:
            seat.leave()
        self._listener.close()
        self.path.unlink()


def shared(name: str, size: int) -> tuple[int, mmap.mmap]:
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, -(-size // mmap.PAGESIZE) * mmap.PAGESIZE)
    # F_ADD_SEALS: F_SEAL_SHRINK, F_SEAL_GROW.
    fcntl.fcntl(fd, 1033, 0x2 | 0x4)
    return fd, mmap.mmap(fd, size)


class Seat:
    """A worker's ring. The protocol is that of ejfat::ring::shared."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        fields = struct.unpack("<IIIHHHH32s12x", connection.recv(BLOCK))
        version, self.slots, self.slot_bytes, first, last, member, flags, name = fields
        self.filter = (first, last, member if flags else None)
        self.name = name.rstrip(b"\0").decode()
        self._descriptors = 1 << (self.slots - 1).bit_length()
        self._ring = -(-(BLOCK + self._descriptors * BLOCK) // PAGE) * PAGE
        events_file, self._events = shared("naa-test-events", self._ring + self.slots * self.slot_bytes)
        credits_file, self._credits = shared("naa-test-credits", BLOCK + 4 * self.slots)
        # The answer's fields: the version that the worker asked for, no refusal, worker 1, placing "shared", an instance.
        answer = struct.pack("<IIIIQ40x", version, 0, 1, 2, 7)
        socket.send_fds(connection, [answer], [events_file, credits_file])
        os.close(events_file)
        os.close(credits_file)
        self._sequence = 0
        self._generations = [0] * self.slots
        # By first slot, how many.
        self._given: dict[int, int] = {}

    def held(self) -> int:
        """Events that were not given back."""
        for slot in list(self._given):
            if struct.unpack_from("<I", self._credits, BLOCK + 4 * slot)[0] == self._generations[slot]:
                del self._given[slot]
        return len(self._given)

    def wait_until_held(self, count: int) -> None:
        until = time.monotonic() + 10
        while self.held() != count:
            assert time.monotonic() < until, f"{self.held()} events are held, not {count}"
            time.sleep(0.001)

    def put(
        self, data: bytes, event: int = 0, data_id: int = 0, tick: int | None = None, again: bool = False
    ) -> bool:
        """Puts an event into the ring. Returns False if there is no room. `again`: the descriptor says that another worker had
        the event."""
        self.held()
        needed = max(-(-len(data) // self.slot_bytes), 1)
        used = {slot + at for slot, count in self._given.items() for at in range(count)}
        for slot in range(self.slots - needed + 1):
            if used.isdisjoint(range(slot, slot + needed)):
                break
        else:
            return False
        self._sequence += 1
        self._generations[slot] += 1
        self._given[slot] = needed
        offset = slot * self.slot_bytes
        self._events[self._ring + offset : self._ring + offset + len(data)] = data
        descriptor = struct.pack(
            "<IIQIHHQQQQII",
            self._sequence,
            self._generations[slot],
            offset,
            len(data),
            data_id,
            (1 if tick is not None else 0) | (2 if again else 0),
            event,
            tick or 0,
            1_000_000_000,
            5000,
            needed,
            slot,
        )
        at = BLOCK + self._sequence % self._descriptors * BLOCK
        self._events[at : at + BLOCK] = descriptor
        struct.pack_into("<I", self._events, 0, self._sequence)
        if struct.unpack_from("<I", self._credits, 4)[0] != 0:
            self._socket.send(b"\1", socket.MSG_DONTWAIT)
        return True

    def overwrite(self, slot: int, data: bytes) -> None:
        """Breaks the protocol: writes where the worker has an event."""
        at = self._ring + slot * self.slot_bytes
        self._events[at : at + len(data)] = data

    def leave(self) -> None:
        self._socket.close()
