"""PP-OCR's cls, det and rec as Paddle publishes them, in Paddle-TRT: seconds by phase, rows compared, numbers checked.

    . ENV/env.sh; PRECISION_DEBUG_WILD=DIR OUT=FOLDER python3.11 tests/gpu/paddle_published.py [CASE …]

A case is MODEL:MODE:MARKS with MARKS all, fused, none, FIRST..LAST for --marks_between, or keep=NAME+NAME: kept in FP32
by disable_tensorrt_half_ops, in an engine without marks. "+static" behind MODE keeps engines in $OUT/MODEL_MODE.
Without cases all twelve run. --at_once N: so many beside each other, whose seconds are then no one's alone. --seconds:
limit of one case. --root TREE: of another version of this project, to compare with. DIR holds NAME.npz and paddle/NAME
(tests/outside says how to get them), and NAME.onnx, whose outputs in ONNX Runtime the engine's are held against. Each
case is a process of its own and prints one line of JSON, and PASS or FAIL: the outputs are compared, and are off by at
most 1e-3 in FP32 and 5e-2 in FP16, relative L2. $OUT/CASE/times.txt tells what came when.
``--dry`` takes CPU modes, to try the script itself.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import threading
import time
import traceback
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from checkout import ROOT, phases, plain, stamped

WILD = Path(os.environ.get("PRECISION_DEBUG_WILD", "/nowhere"))
OUT = Path(os.environ.get("OUT", ROOT / "output" / "gpu_paddle")).resolve()
DRY = {"trt_fp32": "cpu_opt", "trt_fp16": "onednn_fp32"}
CASES = [
    f"{name}:{mode}:{marks}"
    for name in ("cls", "det", "rec") for mode in ("trt_fp32", "trt_fp16") for marks in ("fused", "all")
]  # fmt: skip


def one(case: str, dry: bool) -> int:
    """Run the command as it is typed, in this process, with everything that it tells stamped."""
    name, mode, marks = case.split(":", 2)
    mode, _, static = mode.partition("+")
    folder = _folder(case)
    folder.mkdir(parents=True, exist_ok=True)
    words = [
        "--model_file", str(WILD / "paddle" / name / "inference.pdmodel"),
        "--params_file", str(WILD / "paddle" / name / "inference.pdiparams"),
        "--run_mode", DRY[mode] if dry else mode, "--inputs", str(WILD / f"{name}.npz"),
        "--output", str(folder / "report.json"), "--save_outputs", str(folder / "outputs.json"),
    ]  # fmt: skip
    if not dry:
        words += _marked(marks)
    if static and not dry:
        words += ["--option", "use_static=True", "--option", f"cache_dir={str(OUT / f'{name}_{mode}')!r}"]
    with _log_copied(folder):
        status, times = stamped(words, folder / "times.txt")
    print(json.dumps({"case": case[:120], "status": status, **_told(folder, name), "times": phases(times)}), flush=True)
    return 0


def _folder(case: str) -> Path:
    name = re.sub(r"[^\w.]+", "_", case)
    return OUT / (name if len(name) < 80 else f"{name[:40]}_{zlib.crc32(case.encode()):08x}")


def _marked(marks: str) -> list[str]:
    if marks == "fused":
        return ["--fused_only"]
    if marks == "none":
        return ["--option", "mark_all=False"]
    if marks.startswith("keep="):
        return ["--option", "mark_all=False", "--option", f"disable_tensorrt_half_ops={marks[5:].split('+')!r}"]
    if ".." in marks:
        return ["--marks_between", *marks.split("..")]
    return []


@contextlib.contextmanager
def _log_copied(folder: Path) -> Iterator[None]:
    """What the engine printed, which a run that succeeds does not keep."""
    ended = threading.Event()

    def copy() -> None:
        while not ended.wait(1.0):
            for log in folder.glob(".precision_debug-*/log*"):
                with contextlib.suppress(OSError):
                    (folder / "engine.log").write_bytes(log.read_bytes()[:8_000_000])

    thread = threading.Thread(target=copy, daemon=True)
    thread.start()
    yield
    ended.set()
    thread.join()


def _told(folder: Path, name: str) -> dict[str, Any]:
    file = folder / "report.json"
    if not file.exists():
        return {}
    report = json.loads(file.read_text())
    rows = report["rows"]
    compared = [row for row in rows if row.get("comparison")]
    errors = sorted(_relative(row["comparison"].get("sqnr_db")) for row in compared)
    notes = [str(plain(note)) for note in report["target"].get("notes", ())]
    outputs = {row["name"]: _relative(row["comparison"].get("sqnr_db")) for row in compared if row.get("is_output")}
    return {
        "rows": len(rows), "compared": len(compared), "verdict": report.get("verdict"),
        "largest relative L2": errors[-1] if errors else None, "median": errors[len(errors) // 2] if errors else None,
        "outputs": outputs, "against ONNX Runtime": _beside_onnx(folder, name),
        "notes": [note for note in notes if re.search(r"built|ran in|RAN IN|layers|outputs of|TensorRT|fused", note)],
        "card": report["target"].get("versions"),
    }  # fmt: skip


def _relative(sqnr_db: Any) -> float:
    if isinstance(sqnr_db, (int, float)):
        return float(f"{10 ** (-sqnr_db / 20):.3g}")
    return 0.0 if sqnr_db == {"$float": "inf"} else float("inf")


def _beside_onnx(folder: Path, name: str) -> Any:
    """Relative L2 of the engine's first output against the ONNX file's in ONNX Runtime, where both are here."""
    try:
        import numpy as np
        import onnxruntime

        session = onnxruntime.InferenceSession(str(WILD / f"{name}.onnx"), providers=["CPUExecutionProvider"])
        feeds = dict(np.load(WILD / f"{name}.npz"))
        right = session.run(None, {session.get_inputs()[0].name: next(iter(feeds.values()))})[0]
        kept = json.loads((folder / "outputs.json").read_text())
        return _distance(kept, np.asarray(right, np.float64))
    except Exception:
        return traceback.format_exc().splitlines()[-1]


def _distance(kept: Any, right: Any) -> Any:
    """Of each array in a Polygraphy file that has the right one's size."""
    import base64
    import io

    import numpy as np

    found = []

    def look(part: Any) -> None:
        if isinstance(part, dict):
            if isinstance(part.get("array"), str):
                array = np.load(io.BytesIO(base64.b64decode(part["array"])), allow_pickle=False)
                if array.size == right.size:
                    gap = np.linalg.norm(array.reshape(-1).astype(np.float64) - right.reshape(-1))
                    found.append(float(f"{gap / np.linalg.norm(right):.3g}"))
                return
            for inner in part.values():
                look(inner)
        elif isinstance(part, list):
            for inner in part:
                look(inner)

    look(kept)
    return found


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--one", default="")
    parser.add_argument("--at_once", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float(os.environ.get("COMMAND_LIMIT", "240")))
    parser.add_argument("--budget", type=float, default=1e9, help="no case is started after so many seconds")
    parser.add_argument("--root", default=str(ROOT))
    parser.add_argument("--dry", action="store_true")
    given = parser.parse_args()
    if given.one:
        return one(given.one, given.dry)
    OUT.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()

    def run(case: str) -> int:
        left = begun + given.budget - time.monotonic()
        if left < 5:
            print(json.dumps({"case": case, "not run": "the budget was used up"}), flush=True)
            return 1
        return _run(case, given.root, min(given.seconds, left), given.dry)

    with ThreadPoolExecutor(given.at_once) as pool:
        failed = sum(pool.map(run, given.cases or CASES))
    return int(failed > 0)


def _run(case: str, root: str, seconds: float, dry: bool) -> int:
    plugin = OUT / "plugin" / "paddle_entry-0.dist-info"
    plugin.mkdir(parents=True, exist_ok=True)
    (plugin / "METADATA").write_text("Metadata-Version: 2.1\nName: paddle_entry\nVersion: 0\n")
    (plugin / "entry_points.txt").write_text(
        "[precision_debug.backends]\npaddle = precision_debug_paddle:PaddleBackend\n"
    )
    paths = [root, f"{root}/backends", str(plugin.parent), os.environ.get("PYTHONPATH", "")]
    command = [sys.executable, __file__, "--one", case, *(["--dry"] if dry else [])]
    begun = time.monotonic()
    child = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)},
    )  # fmt: skip
    try:
        out, err = child.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        child.terminate()  # as Ctrl-C: the partial report is written
        try:
            out, err = child.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            child.kill()
            out, err = child.communicate()
    line = next((line for line in reversed(out.splitlines()) if line.startswith("{")), "")
    times = _folder(case) / "times.txt"
    if line and child.returncode == 0:
        outputs = json.loads(line).get("outputs") or {}
        most = 5e-2 if "fp16" in case.split(":")[1] else 1e-3
        good = bool(outputs) and all(error <= most for error in outputs.values())
        print(f"{line}\n{'PASS' if good else 'FAIL'}  {case[:120]}: outputs within {most}", flush=True)
        return int(not good)
    told = {"case": case, "ended": child.returncode, "seconds": round(time.monotonic() - begun, 1), "err": err[-1500:],
            "times": times.read_text()[-3000:] if times.exists() else ""}  # fmt: skip
    print(json.dumps(told), flush=True)
    return 1


if __name__ == "__main__":
    sys.exit(main())
