"""ONNX Runtime on CUDA: what is compared in the device's memory, held against the host's numbers pair by pair.

    PYTHONPATH=WHEEL LD_LIBRARY_PATH=<torch nvidia/*/lib, by colons> python tests/gpu/ort_device.py

Convolutions with TF32 off and on, float16, QDQ, If, Loop, Scan and both nested, dynamic shapes, an operator that CUDA's
provider does not take, bfloat16; a baseline on the CPU and one on the card, in lockstep and one after the other. In
every run each pair is compared twice: on the device, and from copies in the host's memory by the host's kernel. One
line of JSON a case: pairs, how many on the device, what differs, whether the rows are those of a run whose tensors are
copied to the host, and what was taken of the card's memory. "--bodies": on the device in If, Loop and Scan too.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import checkout  # noqa: F401
import numpy as np
import onnx
import onnx_models
import test_cuda_kernel as known
from onnx import TensorProto, helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static
from precision_debug_onnxruntime import on_device, session

from precision_debug import compare, numbers
from precision_debug.numbers.arrays import as_array
from precision_debug.numbers.cuda import open_device
from precision_debug.products.device.comparer import CudaComparer

pairs: list[tuple[str, list[str]]] = []
_plain = CudaComparer.compare
_used = [0]


def checked(self: CudaComparer, base: Any, target: Any, tolerance: Any, then: Any) -> None:
    before = self.on_device
    told: list[Any] = []
    _plain(self, base, target, tolerance, told.append)
    _used[0] += self.on_device - before
    ours, theirs = as_array(base), as_array(target)
    want = numbers.compare(ours, theirs, tolerance)
    pairs.append((f"{ours.dtype}-{theirs.dtype}{ours.shape}", known.differences(told[0], want, ours.size)))
    then(told[0])


class Once(CalibrationDataReader):
    def __init__(self, feeds: list[dict[str, Any]]) -> None:
        self._feeds = iter(feeds)

    def get_next(self) -> dict[str, Any] | None:
        return next(self._feeds, None)


def fallback() -> onnx.ModelProto:
    """Unique is the CPU's alone; its neighbours are the card's."""
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Cast", ["r"], ["whole"], to=TensorProto.INT64),
        helper.make_node("Unique", ["whole"], ["u"], axis=1),
        helper.make_node("Cast", ["u"], ["back"], to=TensorProto.FLOAT),
        helper.make_node("Sigmoid", ["back"], ["y"]),
    ]
    x = onnx_models.value("x", (4, 8))
    y = onnx_models.value("y", (4, "n"))
    graph = helper.make_graph(nodes, "g", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def said(row: Any) -> tuple[str, str, str]:
    return row.name, row.target_name, str(row.reason) if row.comparison is None else "compared"


def main() -> int:
    """Every case in a process of its own kind: after one that ends it, the next begins in a new one."""
    done, failed = 0, 0
    while True:
        words = [sys.executable, "-X", "faulthandler", __file__, "--from", str(done), *sys.argv[1:]]
        ran = subprocess.run(words, capture_output=True, text=True, check=False)
        lines = [line for line in ran.stdout.splitlines() if line.startswith("{")]
        print("\n".join(lines), flush=True)
        failed += sum('"failed": true' in line for line in lines)
        done += len(lines)
        if ran.returncode == 0:
            break
        print(json.dumps({"case": done, "ended by": ran.returncode, "said": ran.stderr[-3000:]}), flush=True)
        failed, done = failed + 1, done + 1
    print(f"{failed} of {done} FAILED" if failed else f"{done} cases: every pair agrees")
    return bool(failed or not done)


def cases_from(first: int) -> int:
    session.IN_BODIES = "--bodies" in sys.argv
    CudaComparer.compare = checked  # type: ignore[method-assign]
    chosen = on_device.make_device_comparer
    random = np.random.default_rng(0)
    image = {"x": random.standard_normal((2, 3, 16, 16)).astype(np.float32)}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        models = {
            "convnet": onnx_models.convnet(), "attention": onnx_models.attention(), "if": onnx_models.if_model(),
            "loop": onnx_models.loop_model(), "scan": onnx_models.scan_model(), "nested": onnx_models.nested_model(),
            "mobile": onnx_models.mobile(), "fallback": fallback(), "exotic": onnx_models.exotic_types(),
        }  # fmt: skip
        for name, proto in models.items():
            onnx.save(proto, folder / f"{name}.onnx")
        quantize_static(
            str(folder / "convnet.onnx"), str(folder / "qdq.onnx"), Once([image]), quant_format=QuantFormat.QDQ
        )
        off, on = {"use_tf32": False}, {"use_tf32": True}
        cases: list[tuple[str, str, dict[str, Any]]] = [
            ("convnet", "ort_cuda_fp32", off), ("convnet", "ort_cuda_fp32", on),
            ("convnet", "ort_cuda_fp16", {}), ("convnet", "ort_cuda_fp16", {"baseline": "ort_cuda_fp32"}),
            ("convnet", "ort_cuda_fp16", {"baseline": "ort_cuda_fp32", "lockstep": False}),
            ("convnet", "ort_cuda_fp32", {"lockstep": False}), ("attention", "ort_cuda_fp16", {}),
            ("attention", "ort_cuda_fp16", {"baseline": "ort_cuda_fp32"}), ("mobile", "ort_cuda_fp16", {}),
            ("qdq", "ort_cuda_fp32", {"baseline_model": folder / "convnet.onnx"}), ("qdq", "ort_cuda_fp32", {}),
            ("if", "ort_cuda_fp32", {}), ("loop", "ort_cuda_fp32", {}), ("scan", "ort_cuda_fp32", {}),
            ("nested", "ort_cuda_fp32", {}), ("loop", "ort_cuda_fp16", {}), ("fallback", "ort_cuda_fp32", {}),
            ("exotic", "ort_cuda_fp32", {}),
        ]  # fmt: skip
        for name, mode, more in cases[first:]:
            pairs.clear()
            _used[0] = 0
            told: dict[str, Any] = {"model": name, "mode": mode, **{k: str(v) for k, v in more.items()}}
            on_device.make_device_comparer = chosen
            free = open_device(0).memory()[0]
            try:
                report = compare(folder / f"{name}.onnx", run_mode=mode, seed=1, **more)
                on_device.make_device_comparer = lambda spec: None
                plain = compare(folder / f"{name}.onnx", run_mode=mode, seed=1, **more)
                on_device.make_device_comparer = chosen
                told["same rows as by the host"] = [*map(said, report.rows)] == [*map(said, plain.rows)]
                if not told["same rows as by the host"]:
                    told["apart"] = [[*map(said, report.rows)], [*map(said, plain.rows)]]
                told |= {"rows": len(report.rows), "pairs": len(pairs), "on the device": _used[0]}
                told["statuses"] = sorted({f"{row.status}" for row in report.rows})
                told["wrong"] = [pair for pair in pairs if pair[1]][:3]
                told["order"] = [row.name for row in report.rows][:4]
                told["verdict"] = str(report.verdict)
                told["notes"] = [str(note) for note in report.target.notes if " took " in str(note)][:1]
                told["failed"] = bool(told["wrong"]) or not told["same rows as by the host"]
            except Exception as error:
                told["failed"] = True
                told["error"] = f"{type(error).__name__}: {error}"[:500]
            told["MB more than before"] = round((free - open_device(0).memory()[0]) / 1e6)
            print(json.dumps(told), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(cases_from(int(sys.argv[2])) if sys.argv[1:2] == ["--from"] else main())
