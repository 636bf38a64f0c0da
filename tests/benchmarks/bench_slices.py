"""What judging an output by slices costs, beside the comparison that reads it anyway: seconds, and the share.

    python tests/benchmarks/bench_slices.py [--repeat 7]

Each shape is that of an output people have; the two numbers are the least CPU seconds of several runs in turn. A target
of INT8 (every element off by up to half a step) has slices judged; one of FP32 has nothing to read again.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

from precision_debug.numbers import compare
from precision_debug.numbers.slices import with_slices

SHAPES = {
    "classifier": (1, 1000), "batch of classes": (32, 1000), "keypoints": (1, 17, 3), "detections": (1, 8400, 84),
    "logits of tokens": (1, 64, 32000), "mask": (1, 21, 512, 512), "features": (8, 256, 56, 56), "embedding": (64, 384),
}  # fmt: skip


def least(work: Callable[[], object], repeat: int) -> float:
    """Seconds of the quickest run, each of at least some milliseconds."""
    begin = time.process_time()
    work()
    often = max(1, int(5e-3 / max(1e-7, time.process_time() - begin)))
    found = []
    for _ in range(repeat):
        begin = time.process_time()
        for _ in range(often):
            work()
        found.append((time.process_time() - begin) / often)
    return min(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=7)
    repeat = parser.parse_args().repeat
    random = np.random.default_rng(0)
    print("output | shape | compared | with slices | share")
    print("---|---|---|---|---")
    for name, shape in SHAPES.items():
        base = random.normal(size=shape).astype(np.float32)
        step = float(np.ptp(base)) / 255
        target = (np.rint(base / step) * step).astype(np.float32)
        found = compare(base, target)
        alone = least(lambda base=base, target=target: compare(base, target), repeat)
        more = least(lambda base=base, target=target, found=found: with_slices(found, base, target, {}), repeat)
        print(f"{name} | {shape} | {alone * 1e6:,.0f} us | +{more * 1e6:,.0f} us | {more / alone:.0%}")


if __name__ == "__main__":
    main()
