"""docs/from_polygraphy.md: each command of ours runs, and every chapter of Polygraphy's has all of its tools there."""

from __future__ import annotations

import os
import re
import shlex
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx_models import mlp

from precision_debug.cli import main

PAGE = Path(__file__).parent.parent / "docs" / "from_polygraphy.md"
ROWS = [
    [cell.strip() for cell in line.strip().strip("|").split("|")]
    for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `polygraphy ")
]  # fmt: skip
OURS = {row[0]: row[1].strip("`") for row in ROWS if row[1].startswith("`")}
STATUS = {"`polygraphy inspect diff-tactics --dir replays`": 1}
"""What is found in the prepared files is an answer of no."""


def test_both_languages_have_the_same_commands() -> None:
    lines = PAGE.with_suffix(".zh.md").read_text(encoding="utf-8").splitlines()
    chinese = [[cell.strip() for cell in line.strip().strip("|").split("|")][:2] for line in lines
               if line.startswith("| `polygraphy ")]  # fmt: skip
    assert chinese == [row[:2] for row in ROWS]


def test_every_row_has_a_command_or_a_reason() -> None:
    for row in ROWS:
        assert re.fullmatch(r"`polygraphy [^`]+`", row[0]), row
        assert re.fullmatch(r"`precision_debug [^`]+`", row[1]) or len(row[2]) > 10, row


@pytest.mark.parametrize("chapter", ["debug", "inspect", "data"])
def test_every_tool_of_a_chapter_has_a_row(chapter: str) -> None:
    """What this release of Polygraphy has; a tool that it dropped may stand on the page."""
    tools = pytest.importorskip("polygraphy.tools", reason="needs polygraphy")
    folder = Path(tools.__file__).parent / chapter / "subtool"
    names = {path.stem.replace("_", "-") for path in folder.iterdir() if path.stem[0] != "_"} - {
        "base", "iterative-debug-args"
    }  # fmt: skip
    told = {row[0].split()[2] for row in ROWS if row[0].startswith(f"`polygraphy {chapter} ")}
    assert names
    assert names <= told


def replays(folder: Path) -> None:
    """Tactic files as Polygraphy writes them: one good build and one bad, which took another tactic in fc1."""
    from polygraphy.backend.trt.algorithm_selector import Algorithm, TacticReplayData

    for kind, tactic in (("good", 7), ("bad", 8)):
        data = TacticReplayData()
        for name, number in (("fc1", tactic), ("fc2", 5)):
            data.add(name, Algorithm(implementation=3, tactic=number, inputs=[], outputs=[]))
        (folder / "replays" / kind).mkdir(parents=True)
        data.save(str(folder / "replays" / kind / "0.json"))
    data.save(str(folder / "replay.json"))


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """m.onnx, and in.json and out.json as Polygraphy writes them."""
    polygraphy_json = pytest.importorskip("polygraphy.json", reason="needs polygraphy")
    import onnxruntime
    from polygraphy.comparator import RunResults

    folder = tmp_path_factory.mktemp("polygraphy")
    onnx.save(mlp(), folder / "m.onnx")
    session = onnxruntime.InferenceSession(str(folder / "m.onnx"), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    feeds = [{"x": np.full((2, 8), scale, np.float32)} for scale in (0.5, 1.0)]
    polygraphy_json.save_json(feeds, str(folder / "in.json"))
    results = RunResults()
    results.add([dict(zip(names, session.run(None, one), strict=True)) for one in feeds], 0.1, "onnxrt-runner")
    results.save(str(folder / "out.json"))
    (folder / "load.py").write_text(
        "import numpy\n\ndef load_data():\n    for _ in range(2):\n"
        "        yield {'x': numpy.ones((2, 8), numpy.float32)}\n"
    )
    (folder / "f.py").write_text(
        "import numpy\n\ndef compare_outputs(one, other):\n"
        "    return {name: numpy.allclose(one[name], other[name], atol=1e-3) for name in one}\n"
    )
    replays(folder)
    (folder / "check.py").write_text("import sys\nimport onnx\n\nonnx.checker.check_model(sys.argv[1])\n")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("theirs", OURS)
def test_our_command_runs(theirs: str, prepared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = shlex.split(OURS[theirs])[1:]
    if any(word.startswith("trt_") or word.endswith(".engine") for word in words):
        pytest.skip("needs a GPU with TensorRT: tests/gpu/migration.py runs these rows")
    monkeypatch.chdir(prepared)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")  # "python" is this one
    assert main(words) == STATUS.get(theirs, 0)
    for option in ("--save_inputs", "--save_outputs", "--gen_script"):
        if option in words:
            assert Path(words[words.index(option) + 1]).stat().st_size > 100
