"""What people meet often when something goes wrong is said in Chinese where that is asked for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from precision_debug.cli import main
from precision_debug.errors import BackendCrash, InputError, UsageError
from precision_debug.events import Failure, read, written
from precision_debug.reasons import say
from precision_debug.report import Report
from precision_debug.report.failure import sentence_of
from precision_debug.report.words import word

DIGITS = Path(__file__).parent.parent / "examples" / "digits"
MODEL = str(DIGITS / "digits.onnx")
WORDS = re.compile(r"[A-Za-z']+ [A-Za-z']+ [A-Za-z']+ [A-Za-z']+")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--model_file", MODEL], "缺少 --run_mode"),
        (["--run_mode", "ort_opt"], "没有给出模型"),
        (["--model_file", MODEL, "--run_mode", "ort_otp"], "是否想写 ort_opt"),
        (["--model_file", MODEL, "--run_mode", "ort_opt", "--output", "r.doc"], "没有 '.doc' 这种报告格式"),
        (["--model_file", "gone.onnx", "--run_mode", "ort_opt"], "没有这个模型。建议：检查路径"),
        (["--model_file", "m.xyz", "--run_mode", "ort_opt"], "没有后端能读取 .xyz"),
        (["--model_file", MODEL, "--run_mode", "trt_fp16"], "无法在此运行"),
        (["--model_file", MODEL, "--run_mode", "ort_opt", "--inputs", "gone.npz"], "没有这个文件或文件夹"),
        (["--model_file", MODEL, "--run_mode", "ort_opt", "--input_shapes", "y:[1,1,8,8]"], "没有名为 'y' 的输入"),
        (["--model_file", MODEL, "--run_mode", "ort_opt", "--input_shapes", "image:[1,2]"], "模型需要 [N, 1, 8, 8]"),
        (["--model_file", MODEL, "--run_mode", "ort_opt", "--nonsense"], "无法识别的选项：--nonsense"),
        (["--model_file", MODEL, "--run_mode", "ort_opt", "--output"], "选项 --output：缺少值"),
        (["--model_file", MODEL, "--run_mode", "ort_opt", "--seed", "x"], "--seed：'x' 不是整数"),
        (["--model_file", MODEL, "--run_mode", "ort_opt", "--explain", "x"], "选项 --explain：没有 'x'，可选：'off'"),
        (["diff", "a.json"], "缺少参数：AFTER"),
        (["diff", "gone.json", "gone.json"], "无法读取报告"),
        (["--model_file", MODEL, "--run_mode", "ort_opt", "--mark", "nothing_here"], "没有名为 'nothing_here' 的张量"),
        (["--model_file", MODEL, "--run_mode", "ort_opt", "--option", "nonsense=1"], "均无此设置。建议：是否想写"),
        (["--model_file", MODEL, "--run_mode", "ort_opt", "--atol", "-1"], "-1 不在范围内：不小于 0"),
        (["--model_file", MODEL, "--run_mode", "ort_opt", "--rename", "a"], "请写 目标中的名字=基线中的名字"),
        (["--model_file", MODEL, "--run_mode", "ort_opt", "--val_range", "1"], "不是由两个有限数构成的范围"),
        (["--model_file", MODEL, "--run_mode", "ort_opt", "--sample", "3"], "没有样本 3"),
        (["--model_file", "bad.onnx", "--run_mode", "ort_opt"], "不是 ONNX 模型"),
        (["search", "--model_file", MODEL, "--run_mode", "ort_opt"], "没有可保留为更高精度的部分"),
        (["sweep", "--model_file", MODEL], "没有给出运行模式"),
    ],
)
def test_wrong_commands(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.xyz").touch()
    (tmp_path / "bad.onnx").write_text("junk")
    assert main([*arguments, "--lang", "zh"]) == 2
    chinese = capsys.readouterr().err
    assert said in chinese
    assert chinese.count("\n") == 1
    if not {"trt_fp16", "gone.npz", "gone.json"} & set(arguments):
        assert not WORDS.search(chinese), "English is left"
    assert main([*arguments, "--lang", "en"]) == 2
    assert not re.search("[\u4e00-\u9fff]", capsys.readouterr().err)


def test_a_line_is_the_same_in_english_and_survives_its_way_from_another_process() -> None:
    told = InputError(say("no_such_input", name="y"), where="--inputs", hint=say("its_inputs", names="x"))
    assert str(sentence_of(told)) == str(told)
    event = Failure(text=str(told), kind="InputError", what=told.what, where=told.where, hint=told.hint)
    again = read(written(event))
    assert isinstance(again, Failure)
    assert word(sentence_of(again), "zh") == "--inputs：模型没有名为 'y' 的输入。建议：模型的输入：x"
    bare = UsageError("something that nobody has worded", hint="do that")
    assert word(sentence_of(bare), "zh") == "something that nobody has worded。建议：do that"


def test_a_report_that_ended_early_begins_in_chinese(tmp_path: Path) -> None:
    from report_factory import make_report

    crash = BackendCrash(
        say("last_words", what=say("killed", signal="SIGKILL"), words="Killed"),
        where=say("stage_running", side=say("target"), mode="ort_int8"), hint=say("smaller"),
    )  # fmt: skip
    make_report(5, failure=sentence_of(crash)).save(tmp_path / "r.json")
    report = Report.load(tmp_path / "r.json")
    assert str(report.failure) == str(crash)
    report.save(tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "运行提前结束：运行目标：ort_int8：进程被终止（SIGKILL）" in page
    assert "请减小 batch" in page
