"""What people meet often when something goes wrong is said in Chinese where that is asked for."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from approval import is_approved

from precision_debug.cli import main
from precision_debug.errors import BackendCrash, InputError, UsageError
from precision_debug.events import Failure, read, to_plain_event
from precision_debug.reasons import say
from precision_debug.report import Report
from precision_debug.report.doubts import error_sentence
from precision_debug.report.words import reason_text

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
    assert len([line for line in chinese.splitlines() if "已用" not in line]) == 1  # a busy machine sees progress too
    if not {"trt_fp16", "gone.npz", "gone.json"} & set(arguments):
        assert not WORDS.search(chinese), "English is left"
    assert main([*arguments, "--lang", "en"]) == 2
    assert not re.search("[\u4e00-\u9fff]", capsys.readouterr().err)


ORT = ["--model_file", MODEL, "--run_mode", "ort_opt"]

MISTAKES = [
    (["--model_file", "empty.onnx", "--run_mode", "ort_opt"], "文件是空的"),
    ([*ORT, "--model_dir", "folder"], "--model_file 与 --model_dir 不能同时使用"),
    ([*ORT, "--params_file", "gone.bin"], "gone.bin：没有这个文件。建议：请检查 --params_file"),
    (["--model_file", "m.engine", "--run_mode", "trt_engine"], "的默认基线 ort_fp32 不能读取此文件"),
    ([*ORT, "--baseline", "none"], "没有可对比的一侧。建议：请加上 --validate"),
    ([*ORT, "--baseline", "folder"], "folder：其中没有张量"),
    ([*ORT, "--load_outputs", "gone.json"], "没有这个文件或文件夹"),
    ([*ORT, "--load_outputs", "bad.json", "--baseline", "ort_fp32"], "--load_outputs 与 --baseline 不能同时使用"),
    ([*ORT, "--inputs", "bad.npz"], "含有 Python 对象，不予读取。建议：请用 numpy.savez"),
    ([*ORT, "--inputs", "text.npz"], "输入 'image' 的类型为 str，模型需要 float32，转换会改变数值"),
    ([*ORT, "--inputs", "folder"], "文件夹中没有 .npz、.npy 或 input_N.pb 文件"),
    ([*ORT, "--inputs", "boom.py:f"], "请修正脚本后重新运行"),
    ([*ORT, "--inputs", "boom.py:g"], "脚本中没有函数 'g'。建议：其中定义了 f"),
    ([*ORT, "--inputs", "bad.json"], "不是可读的 JSON"),
    ([*ORT, "--metric", "f"], "请写 FILE.py:函数，而不是 'f'"),
    ([*ORT, "--input_shapes", "image"], "'image' 中没有输入的名字"),
    ([*ORT, "--val_range", "2,1"], "'2,1' 的下限大于上限"),
    ([*ORT, "--option", "nokey"], "请写 KEY=VALUE，而不是 'nokey'"),
    ([*ORT, "--step", "backward"], "它是 2 个后端的设置：paddle、torch"),
    ([*ORT, "--save_model", "m.onnx"], "它只用于目标"),
    ([*ORT, "--checkpoint", "c"], "--checkpoint 须与 --engine ray 或 --jobs 同用"),
    ([*ORT, "--mark", "re:("], "不是正则表达式"),
    ([*ORT, "--marks_between", "logits", "pool_out"], "顺序反了，请写 --marks_between pool_out logits"),
    ([*ORT, "--marks_from_inspector", "gone*.json"], "没有匹配的引擎 inspector 文件"),
    ([*ORT, "--output", "foo:x.txt"], "没有名为 'foo' 的查看器"),
    ([*ORT, "--output", "netron:x.txt"], "须为 .onnx 文件。建议：例如 netron:output/report.onnx"),
    ([*ORT, "--output", MODEL], "即此命令要读取的"),
    ([*ORT, "--record", "bad.json"], "是一个文件。建议：请指定文件夹"),
    ([*ORT, "--gen_script", "x.txt"], "不是 .py 文件"),
    ([*ORT, "--gen_script", "bad.json/x.py"], "无法写入："),
    (["--model_file", MODEL, "--run_mode", "ort_ep"], "未指定是哪一个"),
    (["search", "--model_file", MODEL, "--run_mode", "ort_fp16_sim", "--check", "x"], "没有代表模型路径的 {model}"),
    (["report", "bad.json", "--output", "r.html"], "不是完整的 JSON 文件"),
    (["dumps", "folder", "--model_file", MODEL], "其中没有张量。建议：请用含 .npy"),
    (["inputs", "empty.onnx"], "文件是空的"),
    (["marks", "--model_file", "gone.onnx"], "没有这个模型"),
    (["inspect", "model", "gone.onnx"], "没有这个文件"),
    (["training", "folder"], "其中没有训练过程的统计量"),
    (["--model_file", MODEL, "--run_mode", "ort_opt8"], "是否想写 ort_opt 或"),
]


@pytest.mark.parametrize(("arguments", "said"), MISTAKES, ids=[said for _, said in MISTAKES])
def test_mistakes_that_people_make(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each is said in Chinese; what a library or the system said of it stays as it is."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    for name, text in (
        ("empty.onnx", ""), ("m.engine", "junk"), ("bad.npz", "junk"), ("bad.json", "{"),
        ("boom.py", "def f():\n    raise ValueError('boom')\n"),
    ):  # fmt: skip
        (tmp_path / name).write_text(text)
    np.savez(tmp_path / "text.npz", image=np.array(["a"]))
    assert main([*arguments, "--lang", "zh"]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("module", "source", "mode", "said"),
    [
        ("paddle", "m.pdmodel", "cpu_opt", "不是 Paddle 程序，或文件不完整"),
        ("openvino", "m.xml", "ov_opt", "OpenVINO 无法读取它"),
        ("torch", "m.pt2", "torch_bf16", "不是导出的程序"),
        ("torch", "m.py", "torch_bf16", "没有指明工厂函数。建议：请写 m.py:函数；工厂函数返回"),
        ("torch", "m.py:f", "torch_bf16", "工厂函数出错：ValueError: boom"),
        ("torch", "m.py:g", "torch_bf16", "脚本中没有函数 'g'。建议：其中定义了 f"),
    ],
)
def test_models_that_an_engine_cannot_read(
    module: str, source: str, mode: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    pytest.importorskip(module)
    monkeypatch.chdir(tmp_path)
    (tmp_path / source.partition(":")[0]).write_text(
        "def f():\n    raise ValueError('boom')\n" if ".py" in source else "junk"
    )
    assert main(["--model_file", source, "--run_mode", mode, "--lang", "zh"]) == 2
    assert said in capsys.readouterr().err


def test_a_line_is_the_same_in_english_and_survives_its_way_from_another_process() -> None:
    told = InputError(say("no_such_input", name="y"), where="--inputs", hint=say("its_inputs", names="x"))
    assert str(error_sentence(told)) == str(told)
    event = Failure(text=str(told), kind="InputError", what=told.what, where=told.where, hint=told.hint)
    again = read(to_plain_event(event))
    assert isinstance(again, Failure)
    assert reason_text(error_sentence(again), "zh") == "--inputs：模型没有名为 'y' 的输入。建议：模型的输入：x"
    bare = UsageError("something that nobody has worded", hint="do that")
    assert is_approved(reason_text(error_sentence(bare), "zh"))


def test_a_report_that_ended_early_begins_in_chinese(tmp_path: Path) -> None:
    from report_factory import make_report

    crash = BackendCrash(
        say("last_words", what=say("killed", signal="SIGKILL"), words="Killed"),
        where=say("stage_running", side=say("target"), mode="ort_int8"), hint=say("smaller"),
    )  # fmt: skip
    make_report(5, failure=error_sentence(crash)).save(tmp_path / "r.json")
    report = Report.load(tmp_path / "r.json")
    assert str(report.failure) == str(crash)
    report.save(tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "运行提前结束：运行目标：ort_int8：进程被终止（SIGKILL）" in page
    assert "请减小 batch" in page
