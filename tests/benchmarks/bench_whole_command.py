"""The whole command beside its rivals, on ResNet-50, every tensor, in one run.

    python tests/benchmarks/bench_whole_command.py [--batch 8] [--repeat 3] [--skip-polygraphy]

Each case is a fresh process, timed from after its imports (so without interpreter start-up) to its end, with its peak
memory (the largest process of the case); cases take turns, and medians are printed as a markdown table:

  bare        two plain inferences in two plain sessions (no fusion, then all), one process
  ours        precision_debug ort_fp32 against ort_opt, every tensor, to output.xlsx: lockstep, and one after the other
  command     the same as a command line, interpreter start-up, child process and report included
  Polygraphy  two live ONNX Runtime runners with every tensor marked; and save, then load and compare
  demo        the Paddle demo's numpy comparison on the same tensors, both kept in memory (no report)
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "examples" / "resnet" / "build.py"


def bare(model: str, folder: str) -> None:
    import numpy as np
    import onnxruntime as ort

    yield_clock()
    feeds = {"image": np.random.default_rng(0).random((batch(), 3, 224, 224), np.float32)}
    inference = 0.0
    for level in (ort.GraphOptimizationLevel.ORT_DISABLE_ALL, ort.GraphOptimizationLevel.ORT_ENABLE_ALL):
        options = ort.SessionOptions()
        options.graph_optimization_level = level
        session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        begun = time.perf_counter()
        session.run(None, feeds)
        inference += time.perf_counter() - begun
        del session
    print(json.dumps({"inference": inference}))


def ours(model: str, folder: str, lockstep: bool = True) -> None:
    import onnx  # noqa: F401
    import onnxruntime  # noqa: F401
    import xlsxwriter  # noqa: F401

    from precision_debug import compare

    yield_clock()
    report = compare(
        model, run_mode="ort_opt", output=Path(folder, "output.xlsx"), lockstep=lockstep, atol=1e-3, rtol=1e-3
    )
    print(json.dumps({"compared": len(report.compared), "rows": len(report.rows)}))


def one_after_the_other(model: str, folder: str) -> None:
    ours(model, folder, lockstep=False)


def command(model: str, folder: str) -> None:
    yield_clock()
    subprocess.run(
        [sys.executable, "-m", "precision_debug", "--model_file", model, "--run_mode", "ort_opt", "--quiet",
         "--output", str(Path(folder, "output.xlsx"))],
        check=False,
    )  # fmt: skip


def _polygraphy(model: str, *arguments: str) -> None:
    program = Path(sys.executable).with_name("polygraphy")
    done = subprocess.run(
        [program, "run", model, "--onnxrt", "--onnx-outputs", "mark", "all", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in (0, 1) or "Runtime:" not in done.stdout:  # 1: a difference was found
        raise SystemExit(f"Polygraphy did not run: {done.stdout[-1000:]} {done.stderr[-1000:]}")


def polygraphy_live(model: str, folder: str) -> None:
    yield_clock()
    _polygraphy(model, "--onnxrt", "--atol", "1e-3", "--rtol", "1e-3")


def polygraphy_saved(model: str, folder: str) -> None:
    yield_clock()
    saved = str(Path(folder, "outputs.json"))
    _polygraphy(model, "--save-outputs", saved)
    _polygraphy(model, "--load-outputs", saved, "--atol", "1e-3", "--rtol", "1e-3")


def demo(model: str, folder: str) -> None:
    """As Paddle-Inference-Demo compares: everything to float64, whole arrays, one numpy pass a statistic."""
    import numpy as np
    import onnxruntime  # noqa: F401

    sys.path[:0] = [str(ROOT / "backends")]
    from precision_debug_onnxruntime import OnnxRuntimeBackend

    from precision_debug.records import ModelFiles, SessionSpec

    yield_clock()
    backend, kept, seconds = OnnxRuntimeBackend(), {}, 0.0
    feeds = {"image": np.random.default_rng(0).random((batch(), 3, 224, 224), np.float32)}
    for mode in ("ort_fp32", "ort_opt"):
        work = Path(folder, mode)
        work.mkdir()
        session = backend.open(SessionSpec(model=ModelFiles(model_file=model), mode=mode, work_dir=str(work)), [feeds])
        origins = {meta.name: meta.origin or meta.name for meta in session.tensors}

        def hook(op_type: str, name: str, tensor: np.ndarray, mode: str = mode, origins: dict = origins) -> None:
            nonlocal seconds
            if mode == "ort_fp32":
                kept[name] = np.array(tensor)
                return
            base = kept.get(origins[name])
            if base is None or base.shape != tensor.shape:
                return
            begun = time.perf_counter()
            a, b = np.asarray(tensor).astype(np.float64), base.astype(np.float64)
            np.sum(~np.isclose(a, b, rtol=1e-4, atol=1e-4))
            difference = np.abs(a - b)
            np.max(difference), np.max(difference / (np.abs(b) + 1e-7)), b.min(), b.max(), a.min(), a.max()
            seconds += time.perf_counter() - begun

        session.run(feeds, hook)
        session.close()
    print(json.dumps({"comparison alone": seconds}))


CASES = {
    "bare": bare,
    "ours, lockstep": ours,
    "ours, one after the other": one_after_the_other,
    "ours, command line": command,
    "Paddle demo's numpy": demo,
    "Polygraphy, two live runners": polygraphy_live,
    "Polygraphy, save and load": polygraphy_saved,
}

_begun = 0.0


def yield_clock() -> None:
    global _begun
    _begun = time.perf_counter()


def batch() -> int:
    return int(os.environ["BATCH"])


def child(case: str, model: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        CASES[case](model, folder)
        seconds = time.perf_counter() - _begun
    peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    print(json.dumps({"seconds": seconds, "peak_mb": peak / 1024}))


def measure(case: str, model: str, size: int) -> dict[str, float]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "backends")]), "BATCH": str(size)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # as installed, where modules are compiled once
    done = subprocess.run(
        [sys.executable, __file__, "--case", case, "--model", model],
        capture_output=True, text=True, check=False, env=environment,
    )  # fmt: skip
    result: dict[str, float] = {}
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            result |= json.loads(line)
    if "seconds" not in result:
        raise SystemExit(f"{case}: {done.stderr[-2000:]}")
    return result


def turns_of(case: str, repeat: int) -> set[int]:
    """Where a case has its turns: Polygraphy takes half a minute or a whole one, so three spread out, or one."""
    if case == "Polygraphy, two live runners":
        return {0, repeat // 2, repeat - 1}
    return {0} if case.startswith("Polygraphy") else set(range(repeat))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", choices=CASES)
    parser.add_argument("--model", default="")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--skip-polygraphy", action="store_true")
    given = parser.parse_args()
    if given.case:
        child(given.case, given.model)
        return
    with tempfile.TemporaryDirectory() as folder:
        model = str(Path(folder, "resnet50.onnx"))
        subprocess.run([sys.executable, BUILD, "--depth", "50", "--batch", str(given.batch), "-o", model], check=True)
        cases = [case for case in CASES if not (given.skip_polygraphy and case.startswith("Polygraphy"))]
        runs: dict[str, list[dict[str, float]]] = {case: [] for case in cases}
        for turn in range(given.repeat):
            for case in cases:
                if turn in turns_of(case, given.repeat):
                    runs[case].append(measure(case, model, given.batch))
                    print(f"  {case}: {runs[case][-1]}", file=sys.stderr, flush=True)
    median = {
        case: {key: statistics.median(run[key] for run in found) for key in found[0]} for case, found in runs.items()
    }
    bare_run, mine, demo_run = median["bare"], median["ours, lockstep"], median["Paddle demo's numpy"]
    print(f"| ResNet-50, batch {given.batch}, medians | runs | s | x bare | x ours | peak MB | x bare | x ours |")
    print("|---|---|---|---|---|---|---|---|")
    for case, value in median.items():
        seconds, peak = value["seconds"], value["peak_mb"]
        print(
            f"| {case} | {len(runs[case])} "
            f"| {seconds:.2f} | {seconds / bare_run['seconds']:.2f} | {seconds / mine['seconds']:.2f} "
            f"| {peak:.0f} | {peak / bare_run['peak_mb']:.2f} | {peak / mine['peak_mb']:.2f} |"
        )
    print(f"\nbare: loading both sessions included; the two inferences alone take {bare_run['inference']:.2f} s,")
    print(
        f"ours is {mine['seconds'] / bare_run['inference']:.2f} times that. "
        f"Rows: {mine['rows']:.0f}, compared: {mine['compared']:.0f}."
    )
    print(f"The demo's comparison alone takes {demo_run['comparison alone']:.2f} s of its time.")


if __name__ == "__main__":
    main()
