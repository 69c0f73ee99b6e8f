"""Functions by the names that the accelerator has for them."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy
import pytest
from conftest import Server

import naa

KERNEL = """
#include <naa_kernel.h>
static int32_t twice(naa_kernel_call *call) {
    const double *x = call->data[0].address;
    double *y = call->data[1].address;
    if (call->data[0].size != call->data[1].size)
        return NAA_KERNEL_ERROR_BAD_ARGUMENTS;
    for (uint64_t i = 0; i < call->data[0].size / 8; i++)
        y[i] = 2 * x[i];
    return 0;
}
static const naa_kernel_parameter parameters[] = {
    {NAA_KERNEL_INPUT, NAA_KERNEL_F64, "x", "numbers"},
    {NAA_KERNEL_OUTPUT, NAA_KERNEL_F64, "y", "as many"},
};
static const naa_kernel kernels[] = {{101, 2, "twice", "y = 2 x", parameters, twice}};
NAA_KERNELS(kernels)
"""


@pytest.fixture(scope="module")
def with_kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("kernel")
    source, library = folder / "twice.c", folder / "libtwice.so"
    source.write_text(KERNEL)
    include = Path(__file__).parents[2] / "capi/include"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-I", include, "-o", library, source], check=True)
    server = Server("--kernels", str(library))
    yield server
    server.kill()


def test_kernels_are_called_by_name(with_kernel: Server) -> None:
    x, y = numpy.arange(10.0), numpy.zeros(10)
    with naa.connect(with_kernel.address, [naa.Input(x), naa.Output(y)]) as session:
        session.call("twice", timeout=5)
        assert (y == 2 * x).all()
        y[:] = 0
        session.start("twice")
        session.wait(5)
        assert (y == 2 * x).all()
        assert session.functions["twice"] == naa.Function(101, "twice", "<x:f64 >y:f64", "y = 2 x")


def test_kernels_are_called_by_name_in_tasks(with_kernel: Server) -> None:
    async def call() -> None:
        x, y = numpy.arange(10.0), numpy.zeros(10)
        async with naa.connect_async(with_kernel.address, [naa.Input(x), naa.Output(y)]) as session:
            await session.call_async("twice", timeout=5)
            assert (y == 2 * x).all()
            with pytest.raises(naa.ArgumentError, match='has no function "thrice"; it has increment, .*twice'):
                await session.call_async("thrice", timeout=5)

    async def test() -> None:
        await asyncio.gather(*(call() for _ in range(20)))

    asyncio.run(asyncio.wait_for(test(), 60))


def test_the_functions_of_an_accelerator_are_listed(server: Server) -> None:
    with naa.connect(server.address, [naa.InOut(bytearray(1))]) as session:
        functions = session.functions
        assert session.functions is functions
        assert [it.code for it in functions.values()] == sorted(it.code for it in functions.values())
        assert functions["dgemm"].code == naa.function_code("dgemm")
        assert functions["dgemm"].parameters == "<a:f64 <b:f64 >c:f64"
        assert functions["increment"].parameters == "any"
        # While a call runs, too.
        session.start("increment")
        assert "product" in functions["dgemm"].description
        session.wait(5)
    with pytest.raises(naa.ArgumentError, match="was closed"):
        naa.connect(server.address, [naa.InOut(bytearray(1))]).close()
        session._functions = None
        assert session.functions


def test_asking_a_server_that_is_gone_leaves_the_session(own_server: Server) -> None:
    # For the session itself, too: on a busy machine it takes its time.
    options = naa.Options(setup_timeout=2)
    with naa.connect(own_server.address, [naa.InOut(bytearray(1))], options) as session:
        own_server.pause()
        with pytest.raises((naa.TimedOut, naa.UnreachableError)):
            assert session.functions
        own_server.go_on()
        assert session.state == naa.State.IDLE
        session.call("increment", timeout=10)
