"""ONNX Runtime's providers on a machine with a GPU and without TensorRT's libraries: who runs a model, and who says so.

    PYTHONPATH=<the unzipped wheel> LD_LIBRARY_PATH=<torch's nvidia/*/lib, by colons> python tests/gpu/ort_providers.py

Needs onnxruntime-gpu 1.24 or later and CUDA's and cuDNN's libraries, such as torch's wheels bring. Every line of the
output says PASS or FAIL; the exit status is 1 where one fails.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import checkout  # noqa: F401
import numpy as np
import onnx
import onnx_models
import onnxruntime
from checkout import ROOT
from precision_debug_onnxruntime.modes import availability

from precision_debug import Report, compare
from precision_debug.errors import BackendUnavailable

CUDA, TENSORRT = "CUDAExecutionProvider", "TensorrtExecutionProvider"
_failed: list[str] = []


def check(what: str, right: bool, seen: object) -> None:
    """One line of the output."""
    print(f"{'PASS' if right else 'FAIL'}  {what}: {seen}", flush=True)
    if not right:
        _failed.append(what)


def command(model: Path, inputs: Path, mode: str, output: Path) -> subprocess.CompletedProcess[str]:
    """The command line, as people type it."""
    arguments = ["--model_file", str(model), "--inputs", str(inputs), "--run_mode", mode, "--output", str(output)]
    return subprocess.run(
        [sys.executable, "-m", "precision_debug", *arguments, "--atol", "1e-2", "--rtol", "1e-2"],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip


def tensorrt(model: Path, inputs: Path, folder: Path) -> None:
    """Listed, but its libraries are missing: refused, in one line, and no report passes."""
    listed = TENSORRT in onnxruntime.get_available_providers()
    check("TensorRT's provider is listed", listed, onnxruntime.get_available_providers())
    found = availability("ort_tensorrt_fp16")
    check("doctor says that it does not start", not found.ok and TENSORRT in found.needs, found)
    done = command(model, inputs, "ort_tensorrt_fp16", folder / "trt.json")
    lines = done.stderr.strip().splitlines()
    said = lines[-1] if lines else ""
    check("ort_tensorrt_fp16 ends with status 2", done.returncode == 2, done.returncode)
    check("it says so in one line", len(lines) == 1 and TENSORRT in said, done.stderr.strip())
    check("it writes no report", not (folder / "trt.json").exists(), sorted(path.name for path in folder.iterdir()))


def cuda(model: Path, inputs: Path, folder: Path, mode: str) -> None:
    """Runs, and says how many nodes went to the GPU."""
    done = command(model, inputs, mode, folder / f"{mode}.json")
    check(f"{mode} ends with status 0 or 1", done.returncode in (0, 1), done.returncode or done.stderr.strip())
    if not (folder / f"{mode}.json").exists():
        check(f"{mode} writes a report", False, done.stderr.strip())
        return
    report = Report.load(folder / f"{mode}.json")
    note = next((note for note in report.target.notes if " took " in note), "")
    found = re.match(rf"{CUDA} took (\d+) of (\d+) nodes", note)
    check(f"{mode} says its providers' shares", found is not None and int(found[1]) > 0, note or report.target.notes)
    doubted = [doubt.code for doubt in report.doubts]
    check(f"{mode} is not in doubt about them", "providers_unknown" not in doubted, doubted)
    check(f"{mode} compares most tensors", report.coverage.share >= 0.5, report.coverage)


def no_node(folder: Path) -> None:
    """A model of text, of which CUDA takes nothing."""
    x, y = (onnx_models.value(name, (2,), onnx.TensorProto.STRING) for name in ("x", "y"))
    node = onnx.helper.make_node("StringNormalizer", ["x"], ["y"], case_change_action="LOWER")
    graph = onnx.helper.make_graph([node], "g", [x], [y])
    proto = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(proto, folder / "text.onnx")
    try:
        report = compare(folder / "text.onnx", run_mode="ort_cuda_fp32", inputs={"x": np.array(["A", "b"], object)})
        seen, refused = str(report.verdict), False
    except BackendUnavailable as error:
        seen, refused = str(error), f"{CUDA} took none" in str(error)
    check("a model of which CUDA takes nothing is refused", refused, seen)


def main() -> int:
    print(f"onnxruntime {onnxruntime.__version__}, {onnxruntime.get_available_providers()}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        model, inputs = folder / "model.onnx", folder / "inputs.npz"
        onnx.save(onnx_models.convnet(), model)
        np.savez(inputs, x=np.random.default_rng(0).standard_normal((2, 3, 16, 16)).astype(np.float32))
        tensorrt(model, inputs, folder)
        for mode in ("ort_cuda_fp32", "ort_cuda_fp16"):
            cuda(model, inputs, folder, mode)
        no_node(folder)
    print(f"{len(_failed)} checks failed" if _failed else "every check passed")
    return bool(_failed)


if __name__ == "__main__":
    sys.exit(main())
