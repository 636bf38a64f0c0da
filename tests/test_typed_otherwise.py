"""What is typed a little otherwise: a slash behind a file, nothing at all, a locale without letters; and what stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

onnx = pytest.importorskip("onnx", reason="the models are ONNX files")
pytest.importorskip("onnxruntime", reason="a run needs an engine")
import onnx_models  # noqa: E402

from precision_debug.cli import main  # noqa: E402


def test_a_file_with_a_slash_is_no_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(onnx_models.mlp(), tmp_path / "m.onnx")
    words = ["--model_file", f"{tmp_path}/m.onnx/", "--run_mode", "ort_fp16", "--output", str(tmp_path / "o.json")]
    assert main(words) == 2
    assert "m.onnx/" in capsys.readouterr().err
    assert not (tmp_path / "o.json").exists()


@pytest.mark.parametrize("words", [[], ["compare"]])
def test_an_empty_command_says_what_is_missing(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    said = capsys.readouterr()
    assert "usage" in said.out
    assert len(said.err.strip().splitlines()) == 1
    assert "--model_file" in said.err


@pytest.mark.parametrize("more", [{}, {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}])
def test_a_locale_without_letters_takes_chinese_names(more: dict[str, str], tmp_path: Path) -> None:
    folder = tmp_path / "模型"
    folder.mkdir()
    onnx.save(onnx_models.mlp(), folder / "网络.onnx")
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "HOME") if name in os.environ}
    words = ["--model_file", "模型/网络.onnx", "--run_mode", "ort_opt", "--output", "输出.json", "--lang", "zh"]
    done = subprocess.run(
        [sys.executable, "-m", "precision_debug", *words], cwd=tmp_path, env={**kept, "LC_ALL": "POSIX", **more},
        capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "输出.json").is_file()
    assert "网络.onnx" in done.stdout.decode()


def test_sigterm_ends_a_process_that_imported_paddle_through_us() -> None:
    pytest.importorskip("paddle", reason="needs paddle")
    code = (
        "import signal, os\n"
        "from precision_debug_paddle.engine.framework import import_paddle\n"
        "import_paddle()\n"
        "print(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        "signal.pause()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGTERM
    assert done.stdout == "True\n"
    assert "SIGTERM" not in done.stderr, "Paddle's own handler prints a stack"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_search_that_was_stopped_leaves_no_half_files(number: signal.Signals, tmp_path: Path) -> None:
    onnx.save(onnx_models.mlp(), tmp_path / "m.onnx")
    words = ["search", "--model_file", "m.onnx", "--run_mode", "ort_int8", "--output", "o.json"]
    environment = {**os.environ, "TMPDIR": str(tmp_path / "tmp")}
    (tmp_path / "tmp").mkdir()
    with subprocess.Popen(
        [sys.executable, "-m", "precision_debug", *words], cwd=tmp_path, env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stderr is not None
        for line in process.stderr:
            if "baseline" in line:
                break
        process.send_signal(number)
        process.communicate()
    assert not [path for path in tmp_path.rglob("*") if path.name.endswith(".part") or "precision_debug-" in path.name]
