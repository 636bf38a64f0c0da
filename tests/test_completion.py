"""A shell completes verbs, options, run modes and files, by argcomplete."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("argcomplete", reason="argcomplete is not installed")


def completed(line: str, folder: Path) -> list[str]:
    """What bash would show, by argcomplete's own protocol: the line and the cursor in the environment, answers in a
    file."""
    answer = folder / "answer"
    asked = {
        "_ARGCOMPLETE": "1", "COMP_LINE": line, "COMP_POINT": str(len(line)),
        "_ARGCOMPLETE_STDOUT_FILENAME": str(answer), "_ARGCOMPLETE_IFS": "\n", "_ARGCOMPLETE_SHELL": "bash",
        "COMP_TYPE": "9", "_ARGCOMPLETE_COMP_WORDBREAKS": " ",
    }  # fmt: skip
    program = "import sys; sys.argv = ['precision_debug']; from precision_debug.__main__ import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | asked, cwd=folder, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return [word.strip() for word in answer.read_text(encoding="utf-8").splitlines()]


def test_verbs_options_modes_and_files_are_completed(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").touch()
    assert {"search", "doctor", "sweep", "--model_file"} <= set(completed("precision_debug ", tmp_path))
    assert completed("precision_debug sea", tmp_path) == ["search"]
    assert "--run_mode" in completed("precision_debug --run", tmp_path)
    assert {"ort_fp16", "ort_int8"} <= set(completed("precision_debug --model_file net.onnx --run_mode ort_", tmp_path))
    assert completed("precision_debug --model_file n", tmp_path) == ["net.onnx"]
    assert "--held_out" in completed("precision_debug search --hel", tmp_path)
    assert "search" not in completed("precision_debug search ", tmp_path)
    assert completed("precision_debug doctor --columns", tmp_path) == ["--columns_page"]
