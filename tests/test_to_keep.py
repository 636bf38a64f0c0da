"""What a report says to paste, pasted: read out of each format as a user copies it, the second run is as promised."""

from __future__ import annotations

import dataclasses
import html
import importlib.util
import json
import re
import shlex
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from approval import begins_approved, holds_approved, is_approved
from planted.onnx_faults import CASES, Graph, tokens
from planted.onnx_further import CASES as FURTHER

import precision_debug
from precision_debug.cli import main
from precision_debug.recording import open_recording
from precision_debug.records import ModelFiles
from precision_debug.report.blame import blame
from precision_debug.report.lead import lead_sentences
from precision_debug.report.model import Report
from precision_debug.report.next_step import NEXT
from precision_debug.run.fix_finder import FixFinder
from precision_debug.search.fix import ToKeep
from precision_debug.settings import Setting

CASE = {case.name: case for case in CASES}


def needs(module: str) -> None:
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed")


def planted(name: str, folder: Path) -> list[str]:
    """A planted ONNX model and its inputs, as options."""
    model, _, feeds = CASE[name].make(folder)
    np.savez(folder / "feeds.npz", **feeds)
    return ["--model_file", str(model), "--inputs", str(folder / "feeds.npz")]


def with_odd_names(folder: Path) -> list[str]:
    """The names of an overflow's operators have what shells, JSON, Markdown and spreadsheets give a meaning."""
    graph = Graph(seed=3)
    x = tokens(graph, size=16, length=4)
    big = graph.op("Mul", [x, graph.weight("k", np.float32(3e5))], "it's $HOME `big`|\u202e\n\"1\",\\2 中文")
    back = graph.op("Mul", [big, graph.weight("l", np.float32(1 / 3e5))], "=1+1")
    model = graph.save(folder / "odd.onnx", [graph.dense(graph.op("Tanh", [back], "rest"), 16, 16, "y")])
    np.savez(folder / "feeds.npz", **graph.feeds)
    return ["--model_file", str(model), "--inputs", str(folder / "feeds.npz")]


def in_torch(folder: Path, names: Sequence[str] = ("first", "up", "down")) -> list[str]:
    """Three products, whose second one's numbers are beyond float16 until the third brings them back."""
    needs("torch")
    parts = ", ".join(f"{name}=nn.Linear(16, 16)" for name in names)
    body = "".join(f"        x = self.{name}(x)\n" for name in names)
    (folder / "net.py").write_text(
        "import torch\nfrom torch import nn\n\n\nclass Net(nn.Module):\n    def __init__(self):\n"
        f"        super().__init__()\n        for name, part in dict({parts}).items():\n"
        "            self.add_module(name, part)\n\n"
        f"    def forward(self, x):\n{body}        return x\n\n\ndef build():\n    torch.manual_seed(0)\n"
        "    net = Net().eval()\n    with torch.no_grad():\n        net.up.weight *= 1e6\n"
        "        net.down.weight *= 1e-6\n    return net, torch.randn(4, 16)\n"
    )
    return ["--model_file", f"{folder / 'net.py'}:build", "--device", "cpu"]


def in_paddle(folder: Path) -> list[str]:
    """Convolutions, products and a GELU; 3000 is added and taken away by two scales: in bfloat16 nothing is left."""
    needs("paddle")
    import paddle_models

    np.savez(folder / "feeds.npz", x=np.random.default_rng(0).normal(size=(2, 3, 8, 8)).astype(np.float32))
    path = paddle_models.legacy("shift_and_back", folder)
    return ["--model_file", str(path), "--inputs", str(folder / "feeds.npz")]


RUNS: dict[str, Callable[[Path], list[str]]] = {
    "ort_fp16_sim": lambda folder: planted("dense_overflow", folder),
    "ort_bf16_sim": lambda folder: planted("shift_bf16", folder),
    "ort_int8": lambda folder: planted("mask_in_int8", folder),
    "ov_fp16": lambda folder: planted("dense_overflow", folder),
    "torch_fp16": in_torch,
    "torch_autocast_fp16": in_torch,
    "onednn_bf16": in_paddle,
}


def runs_here(mode: str) -> None:
    from precision_debug import registry

    for backend in registry.backends():
        if any(one.name == mode for one in backend.run_modes):
            available = backend.availability(mode)
            if not available.ok:
                pytest.skip(f"{mode}: {available.needs}")
            return
    pytest.skip(f"no backend with {mode} is installed")


def compared(folder: Path, mode: str, model: Sequence[str], *more: str, kinds: str = "json") -> Report:
    outputs = [word for kind in kinds.split() for word in ("--output", str(folder / f"report.{kind}"))]
    assert main([*model, "--run_mode", mode, *outputs, *more]) in (0, 1)
    return Report.load(folder / "report.json")


def pasted_from(folder: Path, terminal: str) -> dict[str, str]:
    """The option as each format shows it."""
    import openpyxl

    found = {"terminal": next(line for line in terminal.splitlines() if line.startswith("  paste"))[7:].strip()}
    found["json"] = json.loads((folder / "report.json").read_text(encoding="utf-8"))["summary"]["paste"]
    page = (folder / "report.html").read_text(encoding="utf-8")
    found["html"] = html.unescape(re.search('<code class="paste">(.*?)</code>', page, re.S)[1])  # type: ignore[index]
    text = (folder / "report.md").read_text(encoding="utf-8")
    found["md"] = re.search(r"\n *(`{3,})bash\n *(.*?)\n *\1", text, re.S)[2]  # type: ignore[index]
    sheet = openpyxl.load_workbook(folder / "report.xlsx")["Summary"]
    found["xlsx"] = next(
        str(row[place + 1].value) for row in sheet.iter_rows() for place, cell in enumerate(row)
        if cell.value == "Paste / 可粘贴"
    )  # fmt: skip
    return found


@pytest.mark.parametrize("mode", RUNS)
def test_what_is_pasted_keeps_the_culprit(mode: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs_here(mode)
    model = RUNS[mode](tmp_path)
    before = compared(tmp_path, mode, model, kinds="json html md xlsx")
    assert before.explanation is not None
    assert before.to_keep is not None
    named = {culprit.name for culprit in before.explanation.culprits}
    assert named
    copied = pasted_from(tmp_path, capsys.readouterr().out)
    assert set(copied.values()) == {before.to_keep.option}
    after = compared(tmp_path, mode, model, *shlex.split(copied["terminal"]))
    assert after.explanation is not None
    assert not named & {culprit.name for culprit in after.explanation.culprits}
    for output, kept in zip(before.outputs, after.outputs, strict=True):
        assert kept.relative_l2 is not None
        assert kept.relative_l2 < 0.1
        assert output.non_finite or output.relative_l2 is None or kept.relative_l2 < output.relative_l2 / 4


def test_odd_names_come_back_as_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = with_odd_names(tmp_path)
    before = compared(tmp_path, "ort_fp16_sim", model, kinds="json html md xlsx")
    copied = pasted_from(tmp_path, capsys.readouterr().out)
    assert len(set(copied.values())) == 1, copied
    after = compared(tmp_path, "ort_fp16_sim", model, *shlex.split(copied["html"]))
    assert before.explanation is not None
    assert before.explanation.culprits
    assert after.explanation is not None
    assert not after.explanation.culprits


def test_what_the_command_keeps_already_stays_kept_and_is_replaced(tmp_path: Path) -> None:
    model = planted("two_branches", tmp_path)
    own = ["--option", "node_block_list=y"]
    report = compared(tmp_path, "ort_fp16_sim", model, *own)
    assert report.explanation is not None
    kept = report.to_keep
    assert kept is not None
    assert kept.settings["node_block_list"][0] == "y"
    assert kept.replaced == ("node_block_list",)
    said = [cell.text for line in blame(report).lines for cell in line]
    assert holds_approved([text.en for text in said])
    assert any("替换此命令已有的 node_block_list" in text.zh for text in said)


def test_a_model_against_its_export_gives_names_of_the_file_that_runs(tmp_path: Path) -> None:
    needs("torch")
    runs_here("ort_fp16")
    import torch

    model = in_torch(tmp_path)
    spec = importlib.util.spec_from_file_location("net", tmp_path / "net.py")
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    net, x = loaded.build()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what the exporter says of itself
        torch.onnx.export(net, (x,), dynamo=True, verbose=False).save(str(tmp_path / "net.onnx"))
    np.savez(tmp_path / "feeds.npz", **{onnx.load(tmp_path / "net.onnx").graph.input[0].name: x.numpy()})
    across = ["--model_file", str(tmp_path / "net.onnx"), "--baseline", "torch_fp32", "--baseline_model", model[1],
              "--inputs", str(tmp_path / "feeds.npz")]  # fmt: skip
    before = compared(tmp_path, "ort_fp16_sim", across)
    assert before.explanation is not None
    assert before.to_keep is not None
    nodes = {node.name for node in onnx.load(tmp_path / "net.onnx").graph.node}
    assert set(before.to_keep.keys) <= nodes
    after = compared(tmp_path, "ort_fp16_sim", across, *shlex.split(before.to_keep.option))
    assert after.explanation is not None
    assert not after.explanation.culprits


def test_what_the_forward_computes_between_modules_is_kept_without_them(tmp_path: Path) -> None:
    needs("torch")
    (tmp_path / "net.py").write_text(
        "import torch\n\n\nclass Net(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.a, self.b = torch.nn.Linear(32, 32), torch.nn.Linear(32, 32)\n\n    def forward(self, x):\n"
        "        return self.b((self.a(x) * 3e5).sin())\n\n\ndef build():\n    torch.manual_seed(0)\n"
        "    return Net().eval(), torch.linspace(1, 2, 32)\n"
    )
    report = compared(tmp_path, "torch_fp16", ["--model_file", f"{tmp_path / 'net.py'}:build", "--device", "cpu"])
    said = [cell.text for line in blame(report).lines for cell in line]
    assert report.to_keep is not None
    if report.to_keep.option:
        assert any("the operations between modules" in text.en for text in said)
        assert any("模块之间的运算" in text.zh for text in said)
    else:
        assert any(text.en.startswith("No fix was found") for text in said)


def test_nothing_is_offered_where_only_everything_helps(tmp_path: Path) -> None:
    """What leaves nothing in the low precision is no fix: the sentence says so, and there is nothing to paste."""
    graph = Graph(seed=3)
    x = tokens(graph, size=16, length=4)
    big = graph.op("Mul", [x, graph.weight("k", np.float32(3e5))], "big")
    model = graph.save(tmp_path / "m.onnx", [graph.op("Mul", [big, graph.weight("l", np.float32(1 / 3e5))], "y")])
    np.savez(tmp_path / "feeds.npz", **graph.feeds)
    report = compared(tmp_path, "ort_fp16_sim", ["--model_file", str(model), "--inputs", str(tmp_path / "feeds.npz")])
    assert report.to_keep is not None
    assert (report.to_keep.option, report.to_keep.state) == ("", "none")
    assert any(text.en.startswith("No fix was found") for text in lead_sentences(report))
    assert any(text.zh.startswith("未找到修复") for text in lead_sentences(report))


def test_the_sentence_says_what_was_measured(tmp_path: Path) -> None:
    """The error before and after are those of the two runs, and what still runs in float16 is counted."""
    model = planted("dense_overflow", tmp_path)
    before = compared(tmp_path, "ort_fp16_sim", model)
    tried = before.to_keep
    assert tried is not None
    after = compared(tmp_path, "ort_fp16_sim", model, *shlex.split(before.to_keep.option))
    assert tried.before is None  # Inf
    assert tried.after == pytest.approx(after.outputs[0].relative_l2)
    assert tried.still is not None
    assert tried.was is not None
    low = [row for row in after.rows if row.view.startswith("rounded to") and not row.view.endswith("behind float32")]
    assert tried.still.low == sum(row.target_op_type not in ("Cast", "Input") for row in low)
    assert 0 < tried.still.low < tried.was.low
    said = next(text for text in lead_sentences(before) if text.en.startswith("Tried: "))
    assert f"{tried.still.low} of {tried.still.of} operators still" in said.en


def test_nothing_is_offered_for_what_was_recorded_elsewhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A recording and another tool's tensors do not run here: neither an option nor a search can be applied to them."""
    model = planted("square_overflow", tmp_path)
    recorded, dump = tmp_path / "recorded", tmp_path / "dump"
    assert main([*model, "--run_mode", "ort_fp16_sim", "--record", str(recorded)]) == 0
    dump.mkdir()
    session = open_recording(str(recorded))
    with np.load(tmp_path / "feeds.npz") as feeds:
        session.run(dict(feeds), lambda _kind, name, value: np.save(dump / f"{name}.npy", value.astype(np.float16)))
    session.close()
    for target, more in ((recorded, model[:2]), (dump, model)):
        report = compared(tmp_path, str(target), more, "--baseline", "ort_fp32")
        said = capsys.readouterr().out
        assert report.explanation is not None
        assert report.explanation.culprits[0].cause == "overflow"
        assert report.to_keep is not None
        assert report.to_keep.why.code == "recorded_tensors"
        assert "search" not in said
        assert holds_approved(said)


def test_a_mode_without_such_a_setting_says_what_to_do(tmp_path: Path) -> None:
    """A quantised OpenVINO model brings its own; Paddle asks nobody in a PIR program."""
    report = compared(tmp_path, "ort_fp16_sim", planted("dense_overflow", tmp_path))

    def told(kept: ToKeep | None) -> list[str]:
        said = blame(dataclasses.replace(report, to_keep=kept)).lines
        following = next(line[-1].text for line in said if line[0].text == NEXT)
        return [following.en, following.zh]

    typed, _, meaning = told(None)[0].partition(" finds the smallest set to keep")
    assert meaning
    assert typed.startswith("`")
    assert " search --model_file " in typed
    assert "--output" not in typed
    english, chinese = told(ToKeep())
    assert begins_approved(english)
    assert chinese.startswith("ort_fp16_sim 没有可保留单个算子的设置")
    english, chinese = told(ToKeep(modes=("ort_fp16", "ort_cuda_fp16")))
    assert holds_approved(english, 2)
    assert "precision_debug search" in chinese


def test_paddles_pir_programs_keep_operators_and_no_types(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    needs("paddle")
    runs_here("onednn_bf16")
    from planted.paddle_faults import CASES as PADDLE

    case = next(one for one in PADDLE if one.name == "shift_and_back_onednn_bf16")
    model, _, feeds = case.make(tmp_path)
    np.savez(tmp_path / "feeds.npz", **feeds)
    common = ["--model_file", str(model), "--inputs", str(tmp_path / "feeds.npz")]
    report = compared(tmp_path, "onednn_bf16", common)
    assert report.explanation is not None
    assert report.to_keep is not None
    assert report.to_keep.option.startswith("--option 'keep_operators=[")
    assert report.to_keep.unit == "operator"
    capsys.readouterr()
    only = ["--option", "bfloat16_ops=conv2d", "--output", str(tmp_path / "o.md")]
    given = [*common, "--run_mode", "onednn_bf16", *only]
    for language, words in (("en", "ignore which operators"), ("zh", "不理会哪些算子")):
        assert main([*given, "--lang", language]) == 2
        assert words in capsys.readouterr().err
    searched = ["search", *common, "--run_mode", "onednn_bf16", "--limit", "0.02", "--quiet"]
    assert main([*searched, "--output", str(tmp_path / "o.json")]) == 0


@pytest.mark.parametrize(
    ("setting", "given", "typed"),
    [
        (Setting(name="a", kind="names", help="", zh=""), ("x y", "z"), "--option 'a=[\"x y\",\"z\"]'"),
        (Setting(name="a", kind="names", help="", zh="", flag=True, nargs="+"), ("x y", "z"), "--a 'x y' z"),
        (Setting(name="a", kind="names", help="", zh="", flag=True, nargs="+"), ("-x",), "--option 'a=[\"-x\"]'"),
        (Setting(name="a", kind="choice", help="", zh="", flag=True, choices=("obey",)), "obey", "--a obey"),
        (Setting(name="a", kind="text", help="", zh=""), "o b", "--option 'a=o b'"),
    ],
)
def test_a_setting_as_it_is_typed(setting: Setting, given: object, typed: str) -> None:
    assert setting.typed(given) == typed


def test_names_that_nobody_sees_are_typed_in_escapes() -> None:
    setting = Setting(name="a", kind="names", help="", zh="")
    for name in ("\u202ex", 'a\n"b"\\', "😀\x1b", "it's"):
        _, text = shlex.split(setting.typed((name,)))
        assert setting.read(text.removeprefix("a=")) == (name,)
        assert text.isprintable()


def test_tensorrt_takes_both_of_its_flags(tmp_path: Path) -> None:
    from precision_debug_tensorrt import TensorRTBackend

    from precision_debug.records import SessionSpec

    backend = TensorRTBackend()
    model, _, _ = CASE["dense_overflow"].make(tmp_path)
    keep = backend.keep(SessionSpec(model=ModelFiles(model_file=str(model)), mode="trt_fp16"))
    assert keep is not None
    table = {one.name: one for one in backend.settings}
    words = " ".join(table[name].typed(value) for name, value in keep.options(["/a/Mul", "b"]).items())
    assert is_approved(words)


def test_two_operators_are_offered_where_half_of_the_model_would_bring_little_more(tmp_path: Path) -> None:
    """An encoder of 86 operators: two take the error from infinite to 1.4 x what is expected, 45 to 0.96 x."""
    pytest.importorskip("PIL", reason="the model is that of the pictures")
    import take_pictures

    graph, outputs = take_pictures.encoder()
    path = graph.save(tmp_path / "encoder.onnx", outputs)
    kept = precision_debug.compare(path, run_mode="ort_fp16_sim", inputs=graph.feeds).to_keep
    assert kept is not None
    assert kept.keys == ("node_l2/attn/scores", "node_l2/attn/scaled")
    assert kept.after is not None
    assert kept.allowed is not None
    assert kept.after <= 2 * kept.allowed


def test_nothing_is_tried_where_the_model_draws_random_numbers(tmp_path: Path) -> None:
    """Two runs of a set may agree by chance, and what was measured then is not what the next run gives."""
    graph = Graph(seed=3)
    x = tokens(graph, size=16, length=4)
    noisy = graph.op("Add", [x, graph.op("RandomNormalLike", [x], "noise", scale=0.3)], "noisy")
    big = graph.op("Mul", [noisy, graph.weight("k", np.float32(3e5))], "big")  # overflows whatever is drawn
    back = graph.op("Tanh", [graph.op("Mul", [big, graph.weight("l", np.float32(1 / 3e5))], "back")], "rest")
    model = graph.save(tmp_path / "noisy.onnx", [graph.dense(back, 16, 16, "y")])
    report = precision_debug.compare(model, run_mode="ort_fp16_sim", inputs=graph.feeds)
    assert report.explanation is not None
    assert {"noise", "big"} <= {one.name for one in report.explanation.culprits}
    kept = report.to_keep
    assert kept is not None
    assert not kept.option
    assert (kept.why.code, kept.runs) == ("fix_random", 0)


def test_where_every_operator_is_needed_each_was_left_low(tmp_path: Path) -> None:
    model, _, feeds = CASE["outlier_conv_channel"].make(tmp_path)
    report = precision_debug.compare(model, run_mode="ort_int8", inputs=feeds)
    tried = report.to_keep
    assert tried is not None
    assert (tried.state, tried.each) == ("none", True)
    assert holds_approved([text.en for text in lead_sentences(report)])


def test_what_smaller_sets_do_too_does_not_take_all_of_them(tmp_path: Path) -> None:
    """Next to nothing runs in INT8, so that no set leaves any of it; five of seven take the error away all the same."""
    model, _, feeds = CASE["outlier_activation"].make(tmp_path)
    report = precision_debug.compare(model, run_mode="ort_int8", inputs=feeds, pre_process=True)
    tried = report.to_keep
    assert tried is not None
    assert (tried.state, tried.each) == ("none", True)
    assert any(point.error is not None and point.error < 0.1 for point in tried.trade)
    said = " ".join(text.en for text in lead_sentences(report))
    assert "only keeping all" not in said
    assert "(with nothing kept, 2 of 4 operators run in INT8)" in said


def test_a_mask_far_from_the_culprit_is_found_by_leaving_the_rest_low(tmp_path: Path) -> None:
    """OpenVINO's INT8 scale of an attention mask: keeping what is named, and its readers, changes nothing."""
    runs_here("ov_int8")
    pytest.importorskip("nncf", reason="nncf is not installed")
    model, _, feeds = CASE["mask_in_int8"].make(tmp_path)
    kept = precision_debug.compare(model, run_mode="ov_int8", inputs=feeds).to_keep
    assert kept is not None
    assert kept.state == "mended"
    assert len(kept.keys) <= 4
    assert kept.was is not None
    assert kept.still is not None
    assert kept.still.low >= kept.was.low // 2


def test_a_set_that_one_calibration_recommends_in_vain_is_not_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the ranges of the first calibration more looks needed than is; calibrated anew, each member is left out."""
    runs_here("ov_int8")
    pytest.importorskip("nncf", reason="nncf is not installed")
    case = next(one for one in FURTHER if one.name.startswith("concat_of_two_ranges"))
    model, _, feeds = case.make(tmp_path)
    ran, plain = list[int](), FixFinder._judged

    def counted(self: FixFinder, kept: Any) -> Any:
        ran.append(1)
        return plain(self, kept)

    monkeypatch.setattr(FixFinder, "_judged", counted)
    kept = precision_debug.compare(model, run_mode="ov_int8", inputs=feeds).to_keep
    assert kept is not None
    assert kept.state == "mended"
    assert kept.keys == ("y",)
    assert kept.after is not None
    assert kept.after < 0.02
    assert kept.runs == sum(ran)  # those too that are judged anew


TABLE = """
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.last = torch.nn.Linear(32, 8)
        self.{how}

    def forward(self, position):
        angle = position[:, None] * self.frequencies
        return self.last(torch.cat([angle.sin(), angle.cos()], -1))


def build():
    torch.manual_seed(0)
    return Net().eval(), torch.arange(0, 3000, 13).float()
"""


@pytest.mark.parametrize("how", [
    'register_buffer("frequencies", 10000.0 ** -(torch.arange(16) / 16))',
    "frequencies = torch.nn.Parameter(10000.0 ** -(torch.arange(16) / 16))",
])  # fmt: skip
def test_what_the_model_itself_holds_is_kept_exact_between_modules(tmp_path: Path, how: str) -> None:
    """A table of the model's own is rounded by .to(bfloat16): kept operators that read it rounded gain little."""
    needs("torch")
    (tmp_path / "table.py").write_text(TABLE.replace("{how}", how))
    model = f"{tmp_path / 'table.py'}:build"
    kept = precision_debug.compare(model, run_mode="torch_bf16", device="cpu").to_keep
    assert kept is not None
    assert (kept.keys, kept.state) == (("(between)",), "mended")
    out = tmp_path / "o.json"
    assert main(["search", "--model_file", model, "--run_mode", "torch_bf16", "--device", "cpu", "--quiet",
                 "--output", str(out)]) == 0  # fmt: skip
    assert all(item.verified is not False for item in Report.load(out).fix.artefacts)
