"""disable_tensorrt_half_ops by output name, on a real engine: error before and after, and the inspector's word.

    . ENV/env.sh; OUT=FOLDER python3.11 tests/gpu/paddle_keep.py [--model convs]

A small convolutional net of tests/paddle_models in trt_fp16, without marks: nothing kept; every operator kept, by its
output's name; one kept. Prints a line of JSON each, and PASS or FAIL: with all kept the output's error must fall, and
the inspector must tell of no layer in FP16 (TF32, which FP32 layers of a trt_fp16 engine may run in, keeps an error).
``--dry`` takes a CPU mode, to try the script itself.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import checkout  # noqa: F401


def ran(program: Path, feeds: dict[str, Any], right: Any, kept: tuple[str, ...], dry: bool) -> dict[str, Any]:
    """One engine. right: the output on the CPU in FP32."""
    import numpy as np
    from precision_debug_paddle import PaddleBackend

    from precision_debug.records import ModelFiles, SessionSpec

    begun = time.monotonic()
    options = {} if dry else {"mark_all": False, **({"disable_tensorrt_half_ops": kept} if kept else {})}
    spec = SessionSpec(
        model=ModelFiles(model_file=str(program)), mode="onednn_fp32" if dry else "trt_fp16", options=options,
        work_dir=tempfile.mkdtemp(),
    )  # fmt: skip
    session: Any = PaddleBackend().open(spec, [feeds])
    output = next(iter(session.run(feeds).values()))
    gap = float(np.linalg.norm((output - right).astype(np.float64)) / np.linalg.norm(right.astype(np.float64)))
    told = {
        "kept": len(kept), "error": float(f"{gap:.3g}"), "obeyed": list(getattr(session, "obeyed", list)()),
        "seconds": round(time.monotonic() - begun, 1),
        "notes": [str(note) for note in session.notes if "ran in" in note or "RAN IN" in note],
    }  # fmt: skip
    session.close()
    return told


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="convs")
    parser.add_argument("--dry", action="store_true")
    given = parser.parse_args()
    import paddle_models
    from precision_debug_paddle import PaddleBackend
    from precision_debug_paddle.model import read_model

    from precision_debug.records import ModelFiles, SessionSpec

    folder = Path(os.environ.get("OUT", tempfile.mkdtemp()))
    folder.mkdir(parents=True, exist_ok=True)
    program = paddle_models.legacy(given.model, folder)
    feeds = paddle_models.feeds(given.model)
    files = ModelFiles(model_file=str(program))
    plain = PaddleBackend().open(SessionSpec(model=files, mode="cpu_fp32", work_dir=tempfile.mkdtemp()), [feeds])
    right = next(iter(plain.run(feeds).values()))
    plain.close()
    names = [value.name for value in read_model(files).program.values]
    nothing = ran(program, feeds, right, (), given.dry)
    everything = ran(program, feeds, right, tuple(names), given.dry)
    # the last one that a layer of the engine is told of
    one = next((word.partition(" ")[0] for word in reversed(everything["obeyed"])), names[-1])
    single = ran(program, feeds, right, (one,), given.dry)
    words = " ".join(everything["obeyed"])
    obeyed = "runs as asked" in words and "does NOT" not in words
    passed = given.dry or (obeyed and everything["error"] < nothing["error"] / 2)
    for told in (nothing, everything, {"name": one, **single}):
        print(json.dumps(told), flush=True)
    print("PASS" if passed else "FAIL", flush=True)
    return int(not passed)


if __name__ == "__main__":
    sys.exit(main())
