"""Servers for tests: `naa serve` on loopback addresses of its own."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import naa

os.environ["NAA_PROVIDER"] = "embedded"
os.environ["NAA_LOCAL_IP"] = "127.7.40.1"

PROGRAM = os.environ.get("NAA_PROGRAM", str(Path(__file__).parents[3] / "target/release/naa"))
ADDRESSES = (f"127.7.41.{last}" for last in itertools.count(1))

# Deaths are noticed in about 2 seconds.
QUICK = naa.Options(setup_timeout=1.0, probe_interval=0.2, silence=1.0)
# Servers that are stopped for a while are not given up.
PATIENT = naa.Options(silence=20.0)


class Server:
    def __init__(self, *options: str) -> None:
        self.address = next(ADDRESSES)
        command = [PROGRAM, "serve", "--bind", self.address, "--json", "--max-sessions-per-peer", "1000", *options]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self._output = self._process.stdout
        assert json.loads(self._output.readline())["event"] == "ready"

    def pause(self) -> None:
        self._process.send_signal(signal.SIGSTOP)
        threads = Path(f"/proc/{self._process.pid}/task")
        while any((thread / "stat").read_text().rpartition(") ")[2][0] != "T" for thread in threads.iterdir()):
            time.sleep(0.001)

    def go_on(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._output.close()


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.kill()


@pytest.fixture
def own_server() -> Iterator[Server]:
    """To be paused and killed."""
    server = Server()
    yield server
    server.kill()


@pytest.fixture
def connect(server: Server) -> Iterator[Callable[..., naa.Session]]:
    """Sessions that are closed after the test."""
    sessions: list[naa.Session] = []

    def connect(*regions: naa.Region) -> naa.Session:
        sessions.append(naa.connect(server.address, regions))
        return sessions[-1]

    yield connect
    for session in sessions:
        session.close()
