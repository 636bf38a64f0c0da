"""Real models in every mode of ONNX Runtime on the CPU, as a markdown table: does it run, and how much is compared.

    PRECISION_DEBUG_WILD=DIR python tests/benchmarks/wild_table.py [--json FILE] [--against FILE] [TAG…]
        [--modes MODE…] [--more="--explain off"]

DIR/list.txt names the models: tag, model and inputs, one line a model; DIR/paddle/TAG holds the same model as Paddle
publishes it, which is run in Paddle's modes of the CPU. Each case is the whole command in a process of
its own. A cell is the exit status, the tensors compared of those that the baseline has, and seconds; a refusal (status
2 or 3) says why, and whether ONNX Runtime's own converter refuses the model too. --against: the cells of an earlier
--json beside these. --more: goes to each command.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

PADDLE = ("cpu_opt", "onednn_fp32", "onednn_bf16", "onednn_int8")
MODES = ("ort_opt", "ort_fp16", "ort_int8", "ort_int8_dynamic", "ort_fp16_sim", "ort_bf16_sim", "onnx_ref")


def measured(model: Path, inputs: Path, mode: str, more: Sequence[str]) -> dict[str, Any]:
    """status, compared, tensors (of the baseline), rows, seconds, and why where it was refused."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        which = "--model_dir" if model.is_dir() else "--model_file"
        command = [sys.executable, "-m", "precision_debug", which, str(model), "--inputs", str(inputs)]
        begun = time.monotonic()
        done = subprocess.run(
            [*command, "--run_mode", mode, "--output", str(report), *more], capture_output=True, text=True, check=False
        )
        found: dict[str, Any] = {"status": done.returncode, "seconds": round(time.monotonic() - begun, 1)}
        rows = json.loads(report.read_text())["rows"] if report.exists() else []
        found["rows"] = len(rows)
        found["tensors"] = sum(row["status"] != "unmatched" for row in rows)
        found["compared"] = sum(row["status"] in {"pass", "fail"} for row in rows)
        if done.returncode > 1:
            found["why"] = next((line for line in reversed(done.stderr.splitlines()) if line.strip()), "")
            found["stock"] = "" if model.is_dir() else stock(model, inputs, mode)
        return found


def stock(model: Path, inputs: Path, mode: str) -> str:
    """What ONNX Runtime's own converter and a plain session make of it: "runs", or the error's first words."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, __file__, "--stock", str(model), str(inputs), mode, folder],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        return "runs" if not done.returncode else (done.stderr.strip().splitlines() or ["ended"])[-1][:160]


def run_stock(model: str, inputs: str, mode: str, folder: str) -> None:
    import numpy as np
    import onnxruntime

    ready = Path(folder, "ready.onnx")
    feeds = dict(np.load(inputs))
    makers: dict[str, Callable[[str, dict[str, Any], Path], None]] = {
        "ort_fp16": _to_float16, "ort_int8": _to_int8, "ort_int8_dynamic": _to_dynamic,
    }  # fmt: skip
    if mode in makers:
        makers[mode](model, feeds, ready)
        if "int8" in mode and not _is_quantised(ready):
            sys.exit("it quantises nothing in it")
    onnxruntime.InferenceSession(
        str(ready) if mode in makers else model, providers=["CPUExecutionProvider"]
    ).run(None, feeds)  # fmt: skip


def _is_quantised(path: Path) -> bool:
    import onnx

    return any("Quantize" in node.op_type or "Integer" in node.op_type for node in onnx.load(path).graph.node)


def _to_float16(model: str, feeds: dict[str, Any], ready: Path) -> None:
    import onnx
    from onnxruntime.transformers.float16 import convert_float_to_float16

    onnx.save(convert_float_to_float16(onnx.load(model), keep_io_types=True), ready)


def _to_int8(model: str, feeds: dict[str, Any], ready: Path) -> None:
    from onnxruntime import quantization

    left = [feeds]

    class Reader(quantization.CalibrationDataReader):  # type: ignore[misc]
        def get_next(self) -> Any:
            return left.pop() if left else None

    quantization.quantize_static(model, str(ready), Reader())


def _to_dynamic(model: str, feeds: dict[str, Any], ready: Path) -> None:
    from onnxruntime import quantization

    quantization.quantize_dynamic(model, str(ready))


def cell(found: dict[str, Any]) -> str:
    if found["status"] > 1:
        stock = f" (stock: {found['stock']})" if found["stock"] else ""
        return f"status {found['status']}: {found['why'][:120]}{stock}"
    share = 100 * found["compared"] / max(found["tensors"], 1)
    return f"{found['status']}: {found['compared']} of {found['tensors']} ({share:.0f} %), {found['seconds']} s"


def main() -> int:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("tags", nargs="*")
    arguments.add_argument("--modes", nargs="*", default=(*MODES, *PADDLE))
    arguments.add_argument("--json", type=Path)
    arguments.add_argument("--against", type=Path)
    arguments.add_argument("--more", default="")
    asked = arguments.parse_args()
    more = asked.more.split()
    folder = Path(os.environ["PRECISION_DEBUG_WILD"])
    before = json.loads(asked.against.read_text()) if asked.against else {}
    found: dict[str, dict[str, Any]] = {}
    print("| model | mode | result |" + (" before |" if before else ""))
    print("|---|---|---|" + ("---|" if before else ""))
    for line in (folder / "list.txt").read_text().splitlines():
        tag, model, inputs = line.split()
        program = folder / "paddle" / tag
        cases = [(tag, folder / model, mode) for mode in asked.modes if mode not in PADDLE]
        if program.is_dir():
            cases += [(f"paddle/{tag}", program, mode) for mode in asked.modes if mode in PADDLE]
        for name, path, mode in cases if not asked.tags or tag in asked.tags else ():
            one = found[f"{name} {mode}"] = measured(path, folder / inputs, mode, more)
            earlier = before.get(f"{name} {mode}")
            extra = f" {cell(earlier) if earlier else ''} |" if before else ""
            print(f"| {name} | {mode} | {cell(one)} |{extra}".replace("\n", " "), flush=True)
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=1))
    crashed = [name for name, one in found.items() if one["status"] > 2]
    print(f"\n{len(found)} cases, {len(crashed)} crashed: {', '.join(crashed) or 'none'}")
    return bool(crashed)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--stock"]:
        run_stock(*sys.argv[2:6])
    else:
        sys.exit(main())
