"""What is told while Paddle-TRT builds an engine, from Paddle's and TensorRT's own lines."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import paddle_models
import pytest
from approval import begins_approved, is_approved
from attack.case import patience

from precision_debug.cli import progress
from precision_debug.events import Stage, to_plain_event
from precision_debug.protocols import progress_to, tell
from precision_debug.reasons import Reason
from precision_debug.run.supervisor import EngineOutput

pytest.importorskip("paddle", reason="paddlepaddle is not installed")

from precision_debug_paddle.engine import build_log
from precision_debug_paddle.engine.predictor import Runner
from precision_debug_paddle.make import make_config
from precision_debug_paddle.modes import recipe
from precision_debug_paddle.reasons import say

LINES = {  # in the form in which glog prints the messages of Paddle's and TensorRT's sources
    "I1122 11:58:02.310912  4242 tensorrt_subgraph_pass.cc:302] ---  detect a sub-graph with 157 nodes":
        "a subgraph of 157 operators",
    "I1122 11:58:02.401871  4242 tensorrt_subgraph_pass.cc:846] Prepare TRT engine (Optimize model structure, Select "
    "OP kernel etc). This process may cost a lot of time.": "Paddle is handing over a subgraph",
    "I1122 11:58:09.1 4242 helper.h:134] Detected 1 inputs and 158 output network tensors.":
        "an engine with 158 outputs",
    "I1122 11:58:07.9 4242 helper.h:131] --------------- Timing Runner: conv2d (Output: batch_norm_0.tmp_2) "
    "(CaskConvolution[0x80000009])": "timing kernels for conv2d (Output: batch_norm_0.tmp_2)",
    "I1122 11:58:31.2 4242 helper.h:131] Engine generation completed in 28.4 seconds.":
        "a subgraph's engine is ready after 28 s",
    "I1122 11:59:02.1 4242 tensorrt_engine_op.h:421] Adjust dynamic shape range, rebuild trt engine!":
        "a shape was outside the range, so Paddle is rebuilding the engine",
    "--- Running IR pass [conv_bn_fuse_pass]": "Paddle's pass conv_bn_fuse_pass",
    "I1122 11:58:07.9 4242 helper.h:131] Tactic: 0x7342be9c7ac4ac5a Time: 0.0184": None,
    "a line of somebody else": None,
}  # fmt: skip


@pytest.mark.parametrize(("line", "said"), LINES.items())
def test_a_line_of_the_log_says_how_far_the_build_is(line: str, said: str | None) -> None:
    assert build_log.read_progress(line) == said


def test_the_log_is_audible_again_after_a_quiet_predictor(tmp_path: Path, capfd: Any) -> None:
    program = paddle_models.legacy("cnn", tmp_path)
    params = program.with_suffix(".pdiparams")

    def open_one(*, quiet: bool) -> str:
        config = make_config(recipe("cpu_opt"), program, params, {}, device="cpu", quiet=quiet)
        capfd.readouterr()
        Runner(config, where="here", mode="cpu_opt").close()
        return str(capfd.readouterr().err)

    open_one(quiet=True)
    assert "naive_executor.cc" not in open_one(quiet=False), "quiet once is quiet for the whole process"
    with build_log.make_audible():
        assert "naive_executor.cc" in open_one(quiet=False)
    assert "naive_executor.cc" not in open_one(quiet=False)


@pytest.mark.slow
def test_one_file_of_paddles_sources_is_heard_at_the_level_of_tensorrts(tmp_path: Path) -> None:
    """In a process of its own: glog looks once at each place whether its file is to be heard, when it first comes by.
    naive_executor stands in for helper, which prints only where there is TensorRT.
    """
    program = paddle_models.legacy("cnn", tmp_path)
    code = f"""
from paddle import inference
from precision_debug_paddle.engine import build_log
build_log._TENSORRT = b"naive_executor"
config = inference.Config({str(program)!r}, {str(program.with_suffix(".pdiparams"))!r})
config.disable_gpu()
with build_log.make_audible():
    inference.create_predictor(config)
"""
    with (tmp_path / "log").open("w") as log:
        subprocess.run([sys.executable, "-c", code], stderr=log, check=True, timeout=patience(120))
    heard = (tmp_path / "log").read_text().count("naive_executor.cc")
    with (tmp_path / "log").open("w") as log:
        quiet = code.replace('b"naive_executor"', 'b"nobody"')
        subprocess.run([sys.executable, "-c", quiet], stderr=log, check=True, timeout=patience(120))
    assert heard > 3 * (tmp_path / "log").read_text().count("naive_executor.cc")


class _Paddle:
    heard = staticmethod(build_log.read_progress)


def test_the_newest_news_of_a_growing_log_is_passed_on(tmp_path: Path) -> None:
    log, lines = tmp_path / "log.txt", list(LINES)
    log.write_text("of an earlier run: Running IR pass [old_pass]\n")
    hearing = EngineOutput(log, [_Paddle()])
    assert hearing.news() is None, "what was there before is no news"
    with log.open("a") as file:
        file.write("\n".join(lines[:4]) + "\n")
        file.write(lines[4])  # the end of this line is yet to come
        file.flush()
        said: Any = hearing.news()
        assert "timing kernels for conv2d" in str(said)
        assert hearing.news() is None
        file.write("\n" + lines[7] + "\n")
        file.flush()
        run = progress.Progress("en")
        run.take(to_plain_event(Stage(text=say("building_marked", build=2, marks=57))))
        news: Any = hearing.news()
        run.take(news)
    assert begins_approved(run.line())


def test_seconds_in_a_step_stand_beside_those_of_the_run() -> None:
    now = [0.0]
    run = progress.Progress("en", clock=lambda: now[0])
    now[0] = 80.0
    run.take(to_plain_event(Stage(text=say("building_unmarked", build=1, count=182))))
    now[0] = 125.0
    assert is_approved(run.line())


def test_what_a_session_tells_goes_to_who_listens_on_this_thread() -> None:
    heard: list[Reason] = []
    tell(say("heard_loading"))
    with progress_to(heard.append):
        tell(say("heard_preparing"))
    tell(say("heard_loading"))
    assert [one.code for one in heard] == ["paddle.heard_preparing"]


def test_a_new_step_is_told_at_once_where_there_is_no_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "NEWS", 0.0)
    monkeypatch.delenv(progress.VARIABLE)
    with progress.show_progress(language="en") as on_event:
        on_event(to_plain_event(Stage(text=say("building_unmarked", build=1, count=182))))
    assert "building engine 1" in capsys.readouterr().err
