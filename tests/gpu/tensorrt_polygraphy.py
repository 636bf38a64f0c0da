"""Polygraphy with every tensor marked beside this project: builds, seconds, tensors compared.

    . ENV/env.sh; cd CHECKOUT; OUT=/some/empty/folder python3.11 tests/gpu/tensorrt_polygraphy.py [CASE …]

Cases are those of tensorrt_builds.py. Needs Polygraphy. Both sides run in processes of their own, one after the other:
``polygraphy run M --trt --onnxrt --trt-outputs mark all --onnx-outputs mark all``, which builds one engine with all
marks and shows no other; and ours, whose real engine is built too. Prints one line of JSON a case and side.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from typing import Any

import checkout  # noqa: F401
import tensorrt_builds as builds

_RUN = "import sys; from polygraphy.tools import main; sys.exit(main())"
_MOST = 400.0
"""Seconds of one of the four runs; all.py runs it beside other checks, each of which waits for the card."""


def polygraphy(name: str) -> dict[str, Any]:
    """What the whole command took, its build as it says itself, and how it ended."""
    import onnx

    make, mode, _ = builds.CASES[name]
    model, feeds = make()
    path = builds.OUT / f"polygraphy_{name.replace(' ', '_')}.onnx"
    onnx.save(model, path)
    shapes = [f"{key}:[{','.join(map(str, value.shape))}]" for key, value in feeds.items()]
    words = [
        "run", str(path), "--trt", "--onnxrt", "--trt-outputs", "mark", "all", "--onnx-outputs", "mark", "all",
        "--input-shapes", *shapes, *(["--fp16"] if mode.endswith("fp16") else []),
        *(["--tactic-sources", *builds.SOURCES.split(",")] if builds.SOURCES else []),
    ]  # fmt: skip
    begun = time.monotonic()
    try:
        done = subprocess.run(
            [sys.executable, "-c", _RUN, *words], capture_output=True, text=True, check=False, timeout=_MOST
        )
        said, status = done.stdout + done.stderr, done.returncode
    except subprocess.TimeoutExpired as error:
        said, status = str(error.stdout), -1
    seconds = time.monotonic() - begun
    path.unlink(missing_ok=True)
    took = re.findall(r"Finished engine building in ([0-9.]+) seconds", said)
    compared = set(re.findall(r"Comparing Output: '([^']+)'", said))
    return {
        "case": name, "side": "polygraphy", "status": status, "whole": round(seconds, 1), "builds": len(took),
        "building": [float(text) for text in took], "compared": len(compared),
        "failed outputs": len(set(re.findall(r"FAILED \| Output: '([^']+)'", said))),
        "last words": said.strip().splitlines()[-3:] if said.strip() else [],
    }  # fmt: skip


def ours(name: str) -> dict[str, Any]:
    """As tensorrt_builds.py tells it."""
    done = subprocess.run(
        [sys.executable, builds.__file__, "--one", name], capture_output=True, text=True, check=False, timeout=_MOST
    )
    line = next((line for line in reversed(done.stdout.splitlines()) if line.startswith("{")), "")
    told: dict[str, Any] = json.loads(line) if line else {"case": name, "stderr": done.stderr[-1000:]}
    return {"side": "precision_debug", **told}


def main(names: list[str]) -> int:
    builds.OUT.mkdir(parents=True, exist_ok=True)
    failed = 0
    for name in names or ["resnet18 fp16", "encoder of 4 fp16"]:
        for side in (ours, polygraphy):
            told = side(name)
            failed += side is ours and "real" not in told
            print(json.dumps(told), flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
