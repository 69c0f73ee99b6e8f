"""Keeps several accelerator calls in flight with asyncio: gather.py [ADDRESS]

Each task has a session of its own, and many calls on its arrays.
"""

import asyncio
import hashlib
import os
import sys

import naa

address = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1"


async def digests(blocks: list[bytes]) -> None:
    data, digest = bytearray(len(blocks[0])), bytearray(32)
    async with naa.connect_async(address, naa.regions_for("sha256", data=data, digest=digest)) as session:
        for block in blocks:
            data[:] = block
            await session.call_async("sha256", timeout=10)
            assert digest == hashlib.sha256(block).digest()


async def main() -> None:
    work = [[os.urandom(100_000) for _ in range(10)] for _ in range(8)]
    await asyncio.gather(*map(digests, work))
    print("80 digests over 8 sessions: right")


asyncio.run(main())
