"""What the page for Polygraphy's users promises of TensorRT: its rows, engines told apart, builds that differ.

    OUT=/some/empty/folder python3.11 tests/gpu/migration.py [--in_process] [--stand_in]

Runs each command of docs/from_polygraphy.md that names a TensorRT mode or an engine, in the page's order, on a small
model; then inspects a ResNet-18's engine, builds that model three times (--repeat 3), asks the parser what it refuses,
and reads a damaged engine. One line a check; those that are wrong begin with FAIL, and the status is then 1.
--stand_in: without a card, on the tests' stand-in for TensorRT, as far as that goes.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from checkout import ROOT
from onnx import helper

sys.path[:0] = [str(ROOT / "examples" / "resnet")]
OUT = Path(os.environ.get("OUT", ROOT / "output" / "gpu")).resolve()
PAGE = ROOT / "docs" / "from_polygraphy.md"
LIBRARIES = ["--tactic_sources", "EDGE_MASK_CONVOLUTIONS", "JIT_CONVOLUTIONS"]
"""The stubbed cuBLAS and cuDNN of the packed environment must not be used."""
QUICK = ["--optimization_level", "1"]
"""Builds take a third; not of the page's own rows, whose small model computes in FP32 at this level."""
CACHE = ["--timing_cache", "timing.cache"]
"""What one command timed serves the next."""

failed: list[str] = []


def told(words: list[str]) -> tuple[int, str, float]:
    """A command of ours in this process: its status, what it printed, seconds."""
    from precision_debug.cli import main

    said = io.StringIO()
    begun = time.monotonic()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        status = main(words)
    return status, said.getvalue(), time.monotonic() - begun


def check(name: str, good: bool, **facts: Any) -> None:
    if not good:
        failed.append(name)
    print(f"{'ok  ' if good else 'FAIL'} {name}  {json.dumps(facts, ensure_ascii=False)}", flush=True)


def rows() -> list[str]:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    ours = [line.split("|")[2].strip().strip("`") for line in lines if line.startswith("| `polygraphy ")]
    return [one for one in ours if re.search(r"\btrt_|\.engine\b", one)]


def run_rows() -> None:
    """m.onnx has a layer fc1, as the row on layer precisions wants. TensorRT may take FP32 for so small a model, of
    width 8 always; the report says so, and is inconclusive."""
    import onnx_models

    proto = onnx_models.mlp(512)
    for place, node in enumerate(proto.graph.node):
        node.name = "fc1" if place == 0 else f"node{place}"
    onnx.save(proto, "m.onnx")
    for command in rows():
        words = shlex.split(command)[1:]
        compares = words[0].startswith("--") and "trt_engine" not in words
        status, said, seconds = told([*words, *([*LIBRARIES, *CACHE] if compares else [])])
        lines = said.strip().splitlines()
        shown = [line.strip()[:240] for line in lines if not line.lstrip().startswith(("note", "running", "opening"))]
        ran_wide = status == 1 and "no trace of FP16" in said  # this card's engine took FP32 for so small a model
        said_so = [] if status == 0 else shown[:12]
        check(command, status == 0 or ran_wide, status=status, seconds=round(seconds, 1), said=said_so)


def inspect_resnet() -> None:
    from build import build

    onnx.save(build(18, image=64), "resnet.onnx")
    words = ["--model_file", "resnet.onnx", "--run_mode", "trt_fp16", "--baseline", "ort_fp32", "--explain", "off"]
    words += ["--quiet", *LIBRARIES, *QUICK, *CACHE, "--save_engine", "resnet.engine", "--output", "resnet.json"]
    status, said, seconds = told(words)
    check("a ResNet-18 engine is built", status == 0, status=status, seconds=round(seconds, 1), said=said[-300:])
    status, said, seconds = told(["inspect", "model", "resnet.engine", "--show", "layers"])
    lines = said.splitlines()
    report = json.loads(Path("resnet.json").read_text())
    layers = len(report.get("layers", []))
    counted = next((int(line.split()[0]) for line in lines if re.match(r"\d+ operators", line)), -1)
    check(
        "inspect model resnet.engine", status == 0 and counted == layers > 0, seconds=round(seconds, 1),
        layers=counted, of_the_report=layers, tactics=said.count("    tactic "), said=lines[:9],
    )  # fmt: skip
    Path("inspected.txt").write_text(said)


def broken_engines() -> None:
    """In processes of their own: TensorRT itself may end one."""
    data = Path("resnet.engine").read_bytes()
    for name, changed in (("cut", data[: len(data) // 2]), ("garbled", data[:8] + b"\xff" * 24 + data[32:])):
        Path("broken.engine").write_bytes(changed)
        words = [sys.executable, "-m", "precision_debug", "inspect", "model", "broken.engine"]
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
        lines = done.stderr.strip().splitlines()
        check(
            f"a {name} engine is one line", (done.returncode, len(lines)) == (2, 1), status=done.returncode, said=lines
        )


def builds_that_differ() -> None:
    words = ["--model_file", "resnet.onnx", "--run_mode", "trt_fp16", "--baseline", "ort_fp32", "--explain", "off"]
    status, said, seconds = told([*words, *LIBRARIES, *QUICK, "--repeat", "3", "--output", "repeat.json"])
    found = json.loads(Path("repeat.json").read_text()).get("repeats") or {}
    held = [row for row in json.loads(Path("repeat.json").read_text())["rows"] if row.get("repeated")]
    apart = [row for row in held if row["repeated"].get("times")]
    check(
        "--repeat 3", status == 0 and found.get("count") == 3 and len(held) > 10, seconds=round(seconds, 1),
        repeats=found, tensors=len(held), that_differ=len(apart),
        said=[line for line in said.splitlines() if "builds of the target" in line],
    )  # fmt: skip


def what_is_refused() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["a"], name="one"), helper.make_node("Nowhere", ["a"], ["y"], name="two")]
    ends = [helper.make_tensor_value_info(name, 1, [2]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), "odd.onnx")
    status, said, seconds = told(["inspect", "capability", "odd.onnx", "--run_mode", "trt_fp16"])
    good = status == 1 and "1 Relu" in said and "Nowhere two" in said
    check("inspect capability of an operator that TensorRT lacks", good, seconds=round(seconds, 1), said=said)


def stand_in() -> None:
    """Let the commands of this process see the tests' stand-in; supervised children are not used then."""
    from precision_debug_tensorrt import opening
    from precision_debug_tensorrt.engine import device_memory, versions
    from tensorrt_fake import HostGpu, fake_tensorrt

    api = versions.Api(fake_tensorrt("8.6.1", untaken=("Nowhere",)))
    memory = device_memory.Device(HostGpu(limit=10**9, free=10**9))
    for place in (versions, opening):
        place.load_api = lambda *_: api  # type: ignore[assignment]
    for place in (device_memory, opening):
        place.find_device = lambda: memory  # type: ignore[assignment]
    for options in (LIBRARIES, QUICK, CACHE):
        options.clear()


def in_process(spec: Any, outputs: Any, **_: Any) -> Any:
    """What the supervisor's child does."""
    from precision_debug.report import write
    from precision_debug.report.from_journal import report_of_events
    from precision_debug.run import pipeline
    from precision_debug.run.journal import Journal, read_events
    from precision_debug.run.outcome import Outcome

    with tempfile.TemporaryDirectory() as name:
        with Journal(Path(name, "journal.jsonl")) as journal:
            pipeline.execute(spec, journal, folder=Path(name))
        report = report_of_events(read_events(Path(name, "journal.jsonl")))
    for output in outputs:
        write(report, output)
    return Outcome(report, None)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stand_in", action="store_true")
    parser.add_argument("--in_process", action="store_true", help="without a child a command: TensorRT loads once")
    given = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    os.chdir(OUT)
    if given.stand_in:
        stand_in()
    if given.stand_in or given.in_process:
        from precision_debug.run import supervisor

        supervisor.supervise = in_process  # type: ignore[assignment]
    for part in (run_rows, inspect_resnet, builds_that_differ, what_is_refused, broken_engines):
        try:
            part()
        except Exception as error:  # the parts after it are to run all the same
            check(part.__name__, False, error=f"{type(error).__name__}: {error}")
    print(f"{len(failed)} failed" if failed else "all as promised", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    np.seterr(all="ignore")
    sys.exit(main())
