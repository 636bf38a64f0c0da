"""What comparing costs where TensorRT's tensors lie, and what it costs from copies in the host's memory; no torch.

    . ENV/env.sh; cd CHECKOUT; OUT=/some/empty/folder python3.11 tests/gpu/tensorrt_compare.py [CASE …]

ResNet-50 of batch 8 and an encoder of 12 layers in trt_fp16 against ort_fp32, engines built at optimization level 0,
since only the comparison is looked at. Each pair is compared twice, on the device (the baseline's array is uploaded)
and by the host's kernel from a copy of the target's; both are timed, and their numbers held against each other. One
line of JSON a case, each in a process of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Any

import checkout  # noqa: F401
from tensorrt_builds import OUT, SOURCES, _encoder, _resnet

CASES: dict[str, Any] = {"ResNet-50 b8": lambda: _resnet(50, "8"), "encoder of 12": lambda: _encoder(12)}
LIMIT = float(os.environ.get("LIMIT", "180"))


def one(name: str) -> int:
    import onnx
    import test_cuda_kernel as known

    from precision_debug import compare, numbers
    from precision_debug.numbers.arrays import as_array
    from precision_debug.products.device.comparer import CudaComparer

    spent = {"pairs": 0, "MB": 0.0, "device_s": 0.0, "host_s": 0.0, "on the device": 0}
    wrong: list[Any] = []
    plain = CudaComparer.compare

    def told() -> None:
        rounded = {key: round(value, 4) for key, value in spent.items()}
        print(json.dumps({"case": name, **rounded, "wrong": wrong[:3]}), flush=True)

    def both(self: CudaComparer, base: Any, target: Any, tolerance: Any, then: Any) -> None:
        found: list[Any] = []
        before, begun = self.on_device, time.perf_counter()
        plain(self, base, target, tolerance, found.append)
        between = time.perf_counter()
        theirs = as_array(target)
        want = numbers.compare(as_array(base), theirs, tolerance)
        spent["host_s"] += time.perf_counter() - between
        spent["device_s"] += between - begun
        spent["pairs"] += 1
        spent["on the device"] += self.on_device - before
        spent["MB"] += (as_array(base).nbytes + theirs.nbytes) / 1e6
        if differs := known.differences(found[0], want, theirs.size):
            wrong.append([str(theirs.dtype), list(theirs.shape), differs])
        if spent["pairs"] % 50 == 0:
            told()
        then(found[0])

    CudaComparer.compare = both  # type: ignore[method-assign]
    OUT.mkdir(parents=True, exist_ok=True)
    model, feeds = CASES[name]()
    path = OUT / f"{name.replace(' ', '_')}.onnx"
    onnx.save(model, path)
    begun = time.perf_counter()
    report = compare(
        path, run_mode="trt_fp16", inputs=feeds, explain="off", optimization_level=0, tactic_sources=SOURCES.split(","),
        timing_cache=str(OUT / "timing.cache"),
    )  # fmt: skip
    told()
    where = [str(note) for note in report.target.notes if "GPU's memory" in str(note)]
    seconds = round(time.perf_counter() - begun, 1)
    print(json.dumps({"case": name, "whole command_s": seconds, "rows": len(report.rows), "said": where}), flush=True)
    return bool(wrong)


def main() -> int:
    failed = 0
    for name in sys.argv[1:] or CASES:
        try:
            done = subprocess.run([sys.executable, __file__, "--one", name], check=False, timeout=LIMIT)
            failed += bool(done.returncode)
        except subprocess.TimeoutExpired:
            print(json.dumps({"case": name, "stopped after_s": LIMIT}), flush=True)
            failed += 1
    return failed


if __name__ == "__main__":
    sys.exit(one(sys.argv[2]) if sys.argv[1:2] == ["--one"] else main())
