"""How fast two tensors are compared, beside the reading of them, the Paddle demo's numpy and Polygraphy.

    python tests/benchmarks/bench_kernel.py [--elements 10000000] [--threads 1,2] [--rounds 7]

Every round runs every way once, so that all of them see the same machine; the table shows medians. GB/s are of the
bytes of both inputs. "ceiling" is the reading of two float32 arrays (their maxima as int64) on the same number of
threads. All pairs are within tolerance (1e-4, of 16-bit types 1e-2) but those that the table says are not.
Whether the targets are met is printed, and never tested: a shared machine decides about that too.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import statistics
import sys
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from unittest import mock

import ml_dtypes
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from precision_debug.numbers import compare, describe_kernel, native
from precision_debug.records import Tolerance

Array = np.ndarray
TOLERANCE, COARSE, STRICT = Tolerance(), Tolerance(atol=1e-2, rtol=1e-2), Tolerance(atol=1e-9, rtol=1e-9)


@dataclass
class Way:
    """One way to compare, and the seconds of its runs. only_rounds: rounds that it takes part in, for the slow ones."""

    name: str
    dtype: str
    threads: int
    call: Callable[[], object]
    bytes: int
    only_rounds: int = 1 << 30
    seconds: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return self.bytes / statistics.median(self.seconds) / 1e9


def pair(elements: int, dtype: np.dtype) -> tuple[Array, Array]:
    """A baseline, and a target that is off by about 1e-5: it passes, as most tensors of a run do."""
    rng = np.random.default_rng(0)
    base = rng.standard_normal(elements, dtype=np.float32)
    target = base + np.float32(1e-5) * rng.standard_normal(elements, dtype=np.float32)
    return base.astype(dtype), target.astype(dtype)


def read(arrays: tuple[Array, Array], threads: int) -> None:
    """Read both arrays once, each thread its share of each."""

    def work(index: int) -> None:
        for array in arrays:
            words = array.view(np.int64)
            share = words.size // threads
            words[index * share : (index + 1) * share].max()

    helpers = [threading.Thread(target=work, args=(index,)) for index in range(1, threads)]
    for helper in helpers:
        helper.start()
    work(0)
    for helper in helpers:
        helper.join()


def ours(arrays: tuple[Array, Array], threads: int, tolerance: Tolerance = TOLERANCE) -> None:
    with mock.patch.object(native, "count_available_cores", return_value=threads):
        compare(*arrays, tolerance)


def in_numpy(arrays: tuple[Array, Array], tolerance: Tolerance = TOLERANCE) -> None:
    with mock.patch.object(native, "load", return_value=None):
        compare(*arrays, tolerance)


def paddle_demo(arrays: tuple[Array, Array]) -> tuple[object, ...]:
    """The six numbers of the Paddle demo's table, over float64 copies."""
    base, target = (array.astype(np.float64) for array in arrays)
    mismatched = base.size - np.count_nonzero(np.isclose(target, base, rtol=TOLERANCE.rtol, atol=TOLERANCE.atol))
    diff = np.abs(target - base)
    return mismatched, base.size, diff.max(), (diff / (np.abs(base) + 1e-7)).max(), base.min(), base.max()


def polygraphy(arrays: tuple[Array, Array], log: bool) -> Callable[[], object] | str:
    """Its simple comparison; a string says why there is none. log: at its default level, written to nowhere."""
    try:
        from polygraphy.comparator import CompareFunc, IterationResult
        from polygraphy.logger import G_LOGGER
    except ImportError as error:
        return str(error)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # its newer name is not in older versions
        function = CompareFunc.simple(atol=TOLERANCE.atol, rtol=TOLERANCE.rtol, check_error_stat="elemwise")
    base, target = (IterationResult({"x": array}, runner_name=name) for array, name in zip(arrays, "bt", strict=True))

    def call() -> None:
        severity = G_LOGGER.INFO if log else G_LOGGER.CRITICAL
        with G_LOGGER.verbosity(severity), contextlib.redirect_stdout(io.StringIO()):
            function(target, base)

    return call


def ways(elements: int, threads: list[int]) -> tuple[list[Way], list[str]]:
    arrays = pair(elements, np.dtype(np.float32))
    size = arrays[0].nbytes * 2
    found, notes = [], []
    for count in threads:
        found.append(Way("ceiling: reading both", "float32", count, partial(read, arrays, count), size))
    same = arrays[0], arrays[0].copy()
    narrow = {kind: pair(elements, np.dtype(kind)) for kind in (np.float16, ml_dtypes.bfloat16)}
    if native.load() is None:
        notes.append(f"no C kernel in this table: {describe_kernel()}")
    else:
        for count in threads:
            found.append(Way("ours, C", "float32", count, partial(ours, arrays, count), size))
            found.append(Way("ours, C, out of tolerance", "float32", count, partial(ours, arrays, count, STRICT), size))
            found.append(Way("ours, C, identical", "float32", count, partial(ours, same, count), size))
            for kind, both in narrow.items():
                name = np.dtype(kind).name
                found.append(Way("ours, C", name, count, partial(ours, both, count, COARSE), both[0].nbytes * 2))
    found.append(Way("ours, numpy blocks", "float32", 1, partial(in_numpy, arrays), size))
    for kind, both in narrow.items():
        found.append(
            Way("ours, numpy blocks", np.dtype(kind).name, 1, partial(in_numpy, both, COARSE), both[0].nbytes * 2)
        )
    found.append(Way("Paddle demo", "float32", 1, partial(paddle_demo, arrays), size))
    for name, log in (("Polygraphy", True), ("Polygraphy, log off", False)):
        call = polygraphy(arrays, log)
        if isinstance(call, str):
            notes.append(f"{name}: skipped, {call}")
        else:
            found.append(Way(name, "float32", 1, call, size, only_rounds=3))
    return found, notes


def run(found: list[Way], rounds: int) -> None:
    for number in range(rounds + 1):  # the first one warms up
        for way in found:
            if number > way.only_rounds:
                continue
            start = time.perf_counter()
            way.call()
            if number:
                way.seconds.append(time.perf_counter() - start)
            elif way.name.startswith("Poly"):
                way.seconds.append(time.perf_counter() - start)
                way.only_rounds -= 1


def rate_of(found: list[Way], name: str, dtype: str = "float32", threads: int = 1) -> float | None:
    return next((w.rate for w in found if (w.name, w.dtype, w.threads) == (name, dtype, threads)), None)


def ratio(rate: float, other: float | None, form: str) -> str:
    return "" if other is None else format(rate / other, form)


def table(found: list[Way]) -> None:
    print("| way | type | threads | GB/s | of the ceiling | x Paddle demo | x Polygraphy |")
    print("|---|---|---:|---:|---:|---:|---:|")
    demo, poly = rate_of(found, "Paddle demo"), rate_of(found, "Polygraphy")
    for way in found:
        ceiling = rate_of(found, "ceiling: reading both", threads=way.threads)
        cells = [way.name, way.dtype, str(way.threads), f"{way.rate:.2f}", ratio(way.rate, ceiling, ".0%")]
        print("|", " | ".join([*cells, ratio(way.rate, demo, ".1f"), ratio(way.rate, poly, ".1f")]), "|")


def targets(found: list[Way], threads: list[int]) -> None:
    most = max(threads)
    fast = rate_of(found, "ours, C", threads=most)
    if fast is None:
        return
    checks = [
        (f"float32, {most} threads, x Paddle demo", rate_of(found, "Paddle demo"), 20.0),
        (f"float32, {most} threads, x Polygraphy", rate_of(found, "Polygraphy"), 60.0),
    ]
    lines = [(name, fast / other, wanted) for name, other, wanted in checks if other]
    for count in threads:
        ceiling, mine = rate_of(found, "ceiling: reading both", threads=count), rate_of(found, "ours, C", threads=count)
        if ceiling and mine:
            lines.append((f"float32, {count} threads, of the ceiling", mine / ceiling, 0.25))
        for dtype in ("float16", "bfloat16"):
            other = rate_of(found, "ours, C", dtype, count)
            if other and mine:
                lines.append((f"{dtype} bytes, {count} threads, of float32's", other / mine, 0.5))
    print()
    for name, value, wanted in lines:
        print(f"- {name}: {value:.3g} (target {wanted:g}: {'reached' if value >= wanted else 'missed'})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--elements", type=int, default=10_000_000)
    cores = native.count_available_cores()
    parser.add_argument("--threads", default=",".join(map(str, sorted({1, cores}))))
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    threads = [int(count) for count in options.threads.split(",")]
    load = f", load average {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    found, notes = ways(options.elements, threads)
    run(found, options.rounds)
    print(f"\n{options.elements} elements, {options.rounds} rounds, {cores} cores{load}; {describe_kernel()}\n")
    table(found)
    targets(found, threads)
    for note in notes:
        print(f"- {note}")


if __name__ == "__main__":
    main()
