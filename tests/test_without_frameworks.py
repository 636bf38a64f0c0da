"""Where no framework is installed, or none that a command needs: one line says which and how to get it, never "internal
error". Frameworks that are installed here are taken away (absent.without)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from absent import without

ENGINES = ("torch", "paddle", "openvino", "tensorrt", "onnxruntime", "ai_edge_litert", "xllamacpp")
LIBRARIES = ("onnx", "onnxruntime_extensions", "transformers", "onnxscript", "nncf", "pandas", "matplotlib", "ray",
             "yaml", "torchao", "tensorboard", "polygraphy", "datasets", "cuda", "cupy", "triton")  # fmt: skip
ALL = """
import contextlib, io, json, sys
from unittest import mock
from precision_debug.cli import main
from precision_debug.products.search import search_verb, sweep_verb
from precision_debug.products.tools import ladder
from precision_debug.run import child, supervisor
from precision_debug.run.outcome import Outcome
sys.path.append(sys.argv[1])
import warm
said = []
forks = contextlib.ExitStack()
child.start = forks.enter_context(warm.serving())["onnxruntime"].start
for words in json.load(sys.stdin):
    out, err = io.StringIO(), io.StringIO()
    no_run = mock.patch.object(supervisor, "supervise", return_value=Outcome(None, None))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), no_run:
        try:
            status = main(words)
        except SystemExit as leaving:
            status = leaving.code
    said.append([words, status, out.getvalue(), err.getvalue()])
forks.close()
json.dump(said, sys.stdout)
"""
"""Every command in one process, up to where a run would start, and its children as forks of another that lacks the
same: starting Python for each would take minutes."""


def files(folder: Path) -> list[str]:
    """A file of each kind that a verb or a run mode reads; the first bytes are right, which is all that is looked at
    before the engine is asked for."""
    (folder / "factory.py").write_text("def model():\n    import torch\n    return torch.nn.Linear(2, 2)\n")
    (folder / "config.json").write_text('{"model_type": "bert"}')
    zipped, engine = b"PK\x03\x04", b"ftrt" + b"\0" * 60
    made = {
        "m.onnx": b"\x08\x08", "m.ort": b"\0" * 4 + b"ORTM" + b"\0" * 64, "m.tflite": b"\x1c\0\0\0TFL3",
        "m.pt2": zipped, "m.pt": zipped, "m.pth": zipped, "m.ts": zipped, "m.engine": engine, "m.plan": engine,
        "m.xml": b'<?xml version="1.0"?><net name="n" version="11"/>', "m.bin": b"",
        "m.pdmodel": b"\0" * 16, "m.pdiparams": b"", "m.json": b'{"program": {"regions": []}}',
    }  # fmt: skip
    for name, data in made.items():
        (folder / name).write_bytes(data)
    np.savez(folder / "x.npz", x=np.ones((1, 2), np.float32))
    return [*(name for name in made if name not in ("m.bin", "m.pdiparams")), "factory.py:model", "."]


def commands(names: list[str]) -> list[list[str]]:
    from precision_debug import registry

    modes = [mode for backend in registry.backends() for mode in backend.run_modes]
    found = [["inspect", "model", name] for name in names]
    found += [["inspect", "model", name, "--show", "layers", "weights"] for name in names]
    found += [["inputs", name] for name in names]
    found += [["marks", "--model_file", name] for name in names]
    found += [["reduce", "--model_file", name, "--run_mode", "ort_fp16"] for name in names]
    for mode in modes:
        reads = [name for name in names if any(name.partition(":")[0].endswith(end) for end in mode.suffixes if end)]
        reads += ["."] if "" in mode.suffixes else []
        for name in reads or names[:1]:
            more = ["--model_file", name, "--run_mode", mode.name]
            found += [more, [*more, "--inputs", "x.npz"], ["ladder", *more]]
        found += [["inspect", "capability", *more], [*more, "--gen_script", "s.py"], [*more, "--baseline", mode.name]]
    return [*found, ["doctor"], ["doctor", "--lang", "zh"], ["doctor", "--settings"], ["--help"]]


@pytest.mark.parametrize("absent", [ENGINES, (*ENGINES, *LIBRARIES)], ids=["no engine", "the core alone"])
def test_nothing_ends_with_an_internal_error(absent: tuple[str, ...], root: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    every = commands(files(work))
    paths = [str(without(*absent, folder=tmp_path / "without")), os.environ["PYTHONPATH"]]
    done = subprocess.run(
        [sys.executable, "-c", ALL, str(root / "tests")], input=json.dumps(every), cwd=work, capture_output=True,
        text=True, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert len(said) == len(every) > 300
    wrong = [one for one in said if "internal error" in one[3] or "Traceback" in one[3] + one[2]]
    assert not wrong, wrong[:5]
    described = [one for one in said if one[0][:2] == ["inspect", "model"] and one[1] == 2]
    unnamed = [one for one in described if one[0][2].partition(":")[0] not in one[3]]
    assert described
    assert not unnamed, unnamed[:5]
