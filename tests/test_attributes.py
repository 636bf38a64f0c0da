"""What an operator is told otherwise than the baseline's: both values, and a run that shows that it makes the error."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="files are made with onnx")

from onnx_models import save_operators  # noqa: E402
from planted.onnx_faults import Graph  # noqa: E402

import precision_debug  # noqa: E402
from precision_debug.explain import files  # noqa: E402
from precision_debug.explain.attributes import list_other_attributes  # noqa: E402
from precision_debug.records import Culprit, Operator  # noqa: E402
from precision_debug.report.blame import _evidence_sentence  # noqa: E402

RANDOM = np.random.default_rng(7)
WEIGHTS = {"w": RANDOM.normal(size=(16, 16)) / 2, "v": RANDOM.normal(size=(16, 16)) / 2, "one": np.ones(16),
           "other": np.r_[np.ones(15), 1.2], "low": np.array(-1.0), "high": np.array(0.5),
           "scale": np.array(2.0), "least": np.array(0.25), "eight": np.array(8), "first": np.array(1),
           "nought": np.array(0), "ends": np.array([-1])}  # fmt: skip
INPUTS = {"x": RANDOM.normal(size=(6, 16)).astype(np.float32)}
Ops = list[tuple[str, str, str, dict[str, Any]]]


def save(path: Path, between: Ops) -> str:
    ops = [("MatMul", "x w", "h"), *between, ("MatMul", "m v", "y")]
    return save_operators(path, ops, WEIGHTS, (6, 16))


def blame_files(folder: Path, base: Ops, target: Ops) -> tuple[Culprit, ...]:
    pytest.importorskip("onnxruntime")
    report = precision_debug.compare(
        save(folder / "target.onnx", target), baseline_model=save(folder / "base.onnx", base), inputs=INPUTS,
        run_mode="ort_fp32", baseline="ort_fp32",
    )  # fmt: skip
    assert report.explanation is not None
    return report.explanation.culprits


def told(one: Culprit) -> list[str]:
    assert one.cause == "files_differ"
    return [str(one.evidence[key]) for key in ("name", "base", "target")]


@pytest.mark.parametrize(
    ("kind", "attributes", "wanted"),
    [
        ("LeakyRelu", {"alpha": 0.1}, ["alpha", "0.01", "0.1"]),
        ("Gelu", {"approximate": "tanh"}, ["approximate", "none", "tanh"]),
        ("Selu", {"alpha": 1.0, "gamma": 2.0}, ["alpha, gamma", "1.6732632, 1.050701", "1.0, 2.0"]),
        ("Softmax", {"axis": 0}, ["axis", "-1", "0"]),
    ],
)
def test_an_attribute_makes_the_error(kind: str, attributes: dict[str, Any], wanted: list[str], tmp_path: Path) -> None:
    first, *_ = blame_files(tmp_path, [(kind, "h", "m", {})], [(kind, "h", "m", attributes)])
    assert told(first) == wanted
    assert first.evidence["left"] < 1e-3


@pytest.mark.parametrize(("axis", "same"), [(1, False), (2, True)])
def test_an_axis_of_the_result_is_counted_in_the_result(axis: int, same: bool) -> None:
    """OneHot's last of three axes is 2: of what it reads, which has two, -1 would be 1."""
    ours, theirs = (Operator(op_type="OneHot", attributes={"axis": one}) for one in (-1, axis))
    assert list_other_attributes(ours, theirs, (2, 3)) == ({} if same else {"axis": (-1, axis)})


def test_what_no_run_can_tell_is_called_not_measured() -> None:
    from precision_debug.explain.attributes import find_guilty_attributes

    evidence = find_guilty_attributes(None, "m", {"alpha": (0.01, 0.1), "beta": (None, 2)})
    assert (evidence["name"], evidence["left"]) == ("alpha", None)
    one = Culprit(name="m", node="n", op_types=("Op",), cause="files_differ", evidence=evidence, keep=("m",))
    for left, said in ((None, "not measured"), (0.25, "25%")):
        changed = dataclasses.replace(one, evidence={**evidence, "left": left})
        assert said in _evidence_sentence(changed, None, "").en


def test_an_epsilon_that_changes_nothing_is_not_why(tmp_path: Path) -> None:
    first, *_ = blame_files(tmp_path, [("LayerNormalization", "h one", "m", {})],
                            [("LayerNormalization", "h other", "m", {"epsilon": 1e-6})])  # fmt: skip
    assert first.evidence["name"] == "one (other in the target's file)"
    assert first.evidence["left"] < 1e-3


@pytest.mark.parametrize(
    ("base", "target", "wanted"),
    [
        ([("Clip", "h low", "m", {})], [("Clip", "h low high", "m", {})], ["high", "missing", "0.5"]),
        ([("Constant", "", "c", {"value_float": 2.0}), ("Mul", "h c", "m", {})],
         [("Constant", "", "c", {"value_float": 3.0}), ("Mul", "h c", "m", {})], ["c", "2.0", "3.0"]),
        ([("Div", "h scale", "d", {}), ("Tanh", "d", "t", {}), ("Mul", "t scale", "m", {})],
         [("Identity", "h", "m", {})], ["m", "Div+Tanh+Mul", "Identity"]),
        ([("Softplus", "h", "m", {})],
         [("Mul", "h scale", "d", {}), ("Softplus", "d", "s", {}), ("Div", "s scale", "m", {})],
         ["m", "Softplus", "Mul+Softplus+Div"]),
    ],
)  # fmt: skip
def test_a_number_or_a_stretch_that_one_file_lacks_is_told(
    base: Ops, target: Ops, wanted: list[str], tmp_path: Path
) -> None:
    first, *_ = blame_files(tmp_path, base, target)
    assert told(first) == wanted


_PARTS: Ops = [
    ("ReduceMean", "h ends", "mean", {}), ("Sub", "h mean", "d", {}), ("Mul", "d d", "dd", {}),
    ("ReduceMean", "dd ends", "var", {}), ("Add", "var least", "above", {}),
    ("Sqrt", "above", "root", {}), ("Div", "d root", "m", {}),
]  # fmt: skip
_SKIP = ("SkipLayerNormalization", "h h one", "m", {"domain": "com.microsoft"})
_SUM: Ops = [("Add", "h h", "s", {}), ("LayerNormalization", "s one", "m", {"epsilon": 0.5})]
_LAST: Ops = [("Sub", "rows first", "last", {}), ("Cast", "last", "f", {"to": 1}), ("Mul", "h f", "m", {})]
_ROWS: Ops = [("Shape", "h", "shape", {}), ("Gather", "shape nought", "rows", {})]


@pytest.mark.parametrize(
    ("base", "target", "wanted"),
    [
        (_SUM, [_SKIP], ["epsilon (LayerNormalization m)", "0.5", "1e-12"]),
        ([_SKIP], _SUM, ["epsilon", "1e-12", "0.5"]),
        (_PARTS, [("LayerNormalization", "h one", "m", {})], ["least (epsilon in the target's file)", "0.25", "1e-05"]),
        ([("LayerNormalization", "h one", "m", {})], _PARTS, ["epsilon", "1e-05", "0.25"]),
        ([*_ROWS, *_LAST], [(op, read.replace("rows", "eight"), *more) for op, read, *more in _LAST],
         ["rows (eight in the target's file)", "6", "8"]),
    ],
)  # fmt: skip
def test_parameters_of_other_operators_are_tried(base: Ops, target: Ops, wanted: list[str], tmp_path: Path) -> None:
    """What several operators are told is put in the place of what the one in their stead is told, its defaults too."""
    first, *_ = blame_files(tmp_path, base, target)
    assert told(first) == wanted
    assert first.evidence["left"] < 1e-3


def test_what_is_left_with_one_of_several_constants_put_back_is_computed_again(tmp_path: Path) -> None:
    """A norm's mean and variance are both others. The share is the target's operator's with one of the baseline's."""
    names = [f"{one}{side}" for side in ("", "_there") for one in ("mean", "variance")]
    WEIGHTS.update({name: RANDOM.uniform(0.2, 2, 16) for name in names})
    read = ["h one other mean variance", "h one other mean_there variance_there"]
    base, target = ([("BatchNormalization", one, "m", {})] for one in read)
    first, *_ = blame_files(tmp_path, base, target)
    h, held = INPUTS["x"].astype(np.float64) @ WEIGHTS["w"], [WEIGHTS[name] for name in names]
    exact, wrong, *mended = (
        (h - held[mean]) / np.sqrt(held[variance] + 1e-5) for mean, variance in ((0, 1), (2, 3), (0, 3), (2, 1))
    )
    left = [np.linalg.norm(one - exact) / np.linalg.norm(wrong - exact) for one in mended]
    assert str(first.evidence["name"]).startswith(names[int(np.argmin(left))] + " (")
    assert first.evidence["others"] == f"`{names[int(np.argmax(left))]}`"
    assert first.evidence["alone"] == pytest.approx(min(left), rel=1e-3)


@pytest.mark.parametrize("turned", [False, True])
def test_what_is_read_in_the_place_of_a_constant_is_told(turned: bool, tmp_path: Path) -> None:
    held, read = (
        [("Relu", "h", "r", {}), ("Mul", f"h {one}", "p", {}), ("Add", "p r", "m", {})] for one in ("one", "r")
    )
    first, *_ = blame_files(tmp_path, *((held, read) if turned else (read, held)))
    wanted = ["r", "constant one"]
    assert told(first) == ["p", *(wanted[::-1] if turned else wanted)]
    assert turned or first.evidence["left"] < 1e-3


GRU_INPUTS = {"x": RANDOM.normal(size=(5, 2, 8)).astype(np.float32)}
_GRU = {"w": RANDOM.normal(size=(1, 30, 8)), "r": RANDOM.normal(size=(1, 30, 10)) / 2,
        "v": RANDOM.normal(size=(10, 4))}  # fmt: skip


def save_gru(path: Path, more: dict[str, Any]) -> str:
    ops = [("GRU", "x w r", "h", {"hidden_size": 10, **more}), ("MatMul", "h v", "y")]
    return save_operators(path, ops, _GRU, (5, 2, 8))


_HARD = {"activations": ["HardSigmoid", "Tanh"], "activation_alpha": [0.2, 0.0], "activation_beta": [0.5, 0.0]}


@pytest.mark.parametrize(
    ("mode", "base", "target", "wanted"),
    [
        ("ort_fp32", _HARD, {}, "activations"),
        ("ov_opt", _HARD, {}, "activations"),  # OpenVINO has no hard sigmoid, and rounds coarsely
        ("ort_fp32", {}, _HARD, "activations"),
        ("ov_opt", _HARD, {"activations": ["Sigmoid", "Tanh"]}, "activations"),
        ("ort_fp32", {"activations": ["LeakyRelu", "Tanh"], "activation_alpha": [0.5, 0.0]}, {}, "activations"),
        ("ort_fp32", _HARD, {**_HARD, "activation_alpha": [0.4, 0.0]}, "activation_alpha"),
        ("ort_fp32", _HARD, {**_HARD, "activation_alpha": [0.4, 0.0], "activation_beta": [0.3, 0.0]},
         "activation_alpha, activation_beta"),
    ],
)  # fmt: skip
def test_of_several_attributes_those_that_explain_the_error_are_told(
    mode: str, base: dict[str, Any], target: dict[str, Any], wanted: str, tmp_path: Path
) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("openvino") if mode == "ov_opt" else None
    files = [save_gru(tmp_path / f"{side}.onnx", more) for side, more in (("base", base), ("target", target))]
    report = precision_debug.compare(
        files[1], baseline_model=files[0], inputs=GRU_INPUTS, run_mode=mode, baseline="ort_fp32"
    )
    assert report.explanation is not None
    evidence = report.explanation.culprits[0].evidence
    assert (str(evidence["name"]).split(" (")[0], evidence["left"] < 0.1) == (wanted, True)
    assert "b'" not in f"{evidence['base']}{evidence['target']}"


@pytest.mark.parametrize("kind", ["FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ"])
def test_a_cast_that_no_longer_saturates_is_told_before_what_its_type_does(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("ml_dtypes")
    to = int(getattr(onnx.TensorProto, kind))  # ONNX Runtime hands out no arrays of the last three
    files = [[("Gemm", "h w", "g", {"alpha": 1e5 if "E5M2" in kind else 2e2}),
              ("Cast", "g", "c", {"to": to, **more}), ("Cast", "c", "m", {"to": 1})]
             for more in ({}, {"saturate": 0})]  # fmt: skip
    first, *_ = blame_files(tmp_path, *files)
    assert told(first) == ["saturate", "1", "0"]
    assert first.evidence["left"] == 0


# Modules: an operator is told what PyTorch's own schema says where nothing is said.

def blame_modules(folder: Path, base: str, target: str) -> tuple[Culprit, ...]:
    pytest.importorskip("torch", reason="torch is not installed")
    (folder / "net.py").write_text(f"""
import torch
from torch.nn import functional as F

class Net(torch.nn.Module):
    def __init__(self, first):
        super().__init__()
        torch.manual_seed(3)
        self.first, self.a, self.b = first, torch.nn.Linear(16, 16), torch.nn.Linear(16, 16)

    def forward(self, x):
        h = 3 * self.a(x)
        return self.b(({base}) if self.first else ({target}))

def base():
    return Net(True).eval()

def target():
    return Net(False).eval()
""")
    report = precision_debug.compare(
        f"{folder / 'net.py'}:target", baseline_model=f"{folder / 'net.py'}:base", inputs=INPUTS,
        run_mode="torch_fp32", baseline="torch_fp32",
    )  # fmt: skip
    assert report.explanation is not None
    return report.explanation.culprits


@pytest.mark.parametrize(
    ("base", "target", "wanted"),
    [
        ("F.softplus(h)", "F.softplus(h, 2.0)", ["beta", "1", "2.0"]),
        ("F.softplus(h)", "F.softplus(h, threshold=1.0)", ["threshold", "20", "1.0"]),
        ("F.hardtanh(h)", "F.hardtanh(h, -2.0, 2.0)", ["max_val, min_val", "1.0, -1.0", "2.0, -2.0"]),
        ("F.leaky_relu(h)", "F.leaky_relu(h, 0.1)", ["negative_slope", "0.01", "0.1"]),
        ("F.gelu(h)", "F.gelu(h, approximate='tanh')", ["approximate", "none", "tanh"]),
        ("F.group_norm(h, 4)", "F.group_norm(h, 2)", ["group", "4", "2"]),
        ("F.interpolate(h[None], 24, mode='linear')[0, :, 4:20]",
         "F.interpolate(h[None], 24, mode='linear', align_corners=True)[0, :, 4:20]",
         ["align_corners", "False", "True"]),
        ("h / h.var(-1, correction=1, keepdim=True)", "h / h.var(-1, correction=0, keepdim=True)",
         ["correction", "1", "0"]),
        ("F.scaled_dot_product_attention(h[None, None], h[None, None], h[None, None])[0, 0]",
         "F.scaled_dot_product_attention(h[None, None], h[None, None], h[None, None], scale=1.0)[0, 0]",
         ["scale", "missing", "1.0"]),
    ],
)  # fmt: skip
def test_an_argument_makes_the_error(
    base: str, target: str, wanted: list[str] | None, tmp_path: Path
) -> None:
    first, *_ = blame_modules(tmp_path, base, target)
    if wanted is not None:
        assert told(first) == wanted
        assert first.evidence["left"] < 1e-3


def test_an_argument_that_changes_nothing_is_not_why(tmp_path: Path) -> None:
    """Beside another epsilon, the weight of a norm is off: the norm is named with its weight."""
    base, target = ("F.layer_norm(h, (16,), torch.full((16,), 1.0), None, 1e-5)",
                    "F.layer_norm(h, (16,), torch.full((16,), 1.1), None, 2e-5)")  # fmt: skip
    for one in blame_modules(tmp_path, base, target):
        assert one.evidence.get("name") != "eps"


def test_what_a_file_leaves_out_is_what_each_operator_s_own_schema_says(tmp_path: Path) -> None:
    """What repairs an exported operator is told with what the file has in its place."""
    pytest.importorskip("onnxruntime")
    from precision_debug_onnxruntime.isolate import read_operators

    path = save(tmp_path / "m.onnx", [("LeakyRelu", "h", "l", {}), ("Elu", "l", "e", {}),
                                      ("LayerNormalization", "e one", "n", {}), ("Softmax", "n", "m", {})])  # fmt: skip
    found = {one.op_type: one.attributes for one in read_operators(path).operators}
    assert found["LeakyRelu"]["alpha"] == pytest.approx(0.01)
    assert found["Elu"]["alpha"] == 1.0
    assert (found["LayerNormalization"]["epsilon"], found["Softmax"]["axis"]) == (pytest.approx(1e-5), -1)


@pytest.mark.parametrize(
    ("case", "wanted"),
    [("softplus_that_lost_its_beta", ["beta", "3.0", "1"]),
     ("limits_of_a_default_hardtanh", ["min_val, max_val", "-2.0, 2.0", "-1.0, 1.0"])],
)  # fmt: skip
def test_what_another_framework_has_no_word_for_is_told(case: str, wanted: list[str], tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    from planted.eighteenth_torch import CASES

    one = next(one for one in CASES if one.name == case)
    model, base, feeds = one.make(tmp_path)
    more = {"baseline_model": base} if base is not None else {}
    report = precision_debug.compare(model, run_mode=one.mode, baseline=one.baseline, inputs=feeds, **more)
    assert report.explanation is not None
    first, *_ = report.explanation.culprits
    assert told(first) == wanted
    assert first.evidence["left"] < 1e-3


@pytest.mark.parametrize(
    ("base", "target", "wanted"),
    [
        ({"add_zero_attn": True}, {}, ["add_zero_attn", "True", "False"]),
        ({}, {"add_zero_attn": True}, ["add_zero_attn", "False", "True"]),
        ({"add_bias_kv": True}, {}, ["bias_k, bias_v", "there", "missing"]),
        ({}, {"add_bias_kv": True}, ["bias_k, bias_v", "missing", "there"]),
    ],
)
def test_what_a_module_is_told_makes_the_error_whatever_operators_it_computes_by(
    base: dict[str, bool], target: dict[str, bool], wanted: list[str], tmp_path: Path
) -> None:
    """PyTorch's fused attention takes neither: one of both sides computes by 35 operators."""
    pytest.importorskip("torch")
    (tmp_path / "net.py").write_text(f"""
import torch

class Net(torch.nn.Module):
    def __init__(self, **told):
        super().__init__()
        self.a = torch.nn.Linear(16, 16)
        self.att = torch.nn.MultiheadAttention(16, 2, batch_first=True, **told)
        self.b = torch.nn.Linear(16, 4)
        for one in self.parameters():
            torch.manual_seed(one.numel())
            one.data = torch.randn(one.shape) / 3

    def forward(self, x):
        h = self.a(x)[None]
        return self.b(self.att(h, h, h, need_weights=False)[0])

def base():
    return Net(**{base}).eval()

def target():
    return Net(**{target}).eval()
""")
    report = precision_debug.compare(
        f"{tmp_path / 'net.py'}:target", baseline_model=f"{tmp_path / 'net.py'}:base", inputs=INPUTS,
        run_mode="torch_fp32", baseline="torch_fp32",
    )  # fmt: skip
    assert report.explanation is not None
    first, *_ = report.explanation.culprits
    name, of = str(first.evidence["name"]).split(" (")
    assert (of, [name, *map(str, told(first)[1:])], first.evidence["left"] < 1e-3) == (
        "MultiheadAttention att)", wanted, True
    )


@pytest.mark.parametrize(
    ("old", "new", "cause", "name"),
    [
        ('coordinate_transformation_mode="half_pixel"', 'coordinate_transformation_mode="asymmetric"', "files_differ",
         "coordinate_transformation_mode"),
        ('coordinate_transformation_mode="half_pixel"', 'coordinate_transformation_mode="asymmetric"',
         "other_arithmetic", ""),  # where no word is known for it
    ],
)  # fmt: skip
@pytest.mark.parametrize("mode", ["ov_fp32", "ov_bf16", "ov_opt"])
def test_what_an_ir_is_told_otherwise_than_its_source_is_no_coarse_type(
    mode: str, old: str, new: str, cause: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not name:
        monkeypatch.setattr(files, "_find_other_word", lambda *_: {})
    openvino = pytest.importorskip("openvino")
    g = Graph(seed=5, opset=18)
    x = g.conv(g.input("x", RANDOM.normal(size=(1, 3, 8, 8)).astype(np.float32)), 3, 8, "a", 2)
    x = g.op("Resize", [x, "", g.weight("scales", np.float32([1, 1, 2, 2]))], "up", mode="linear",
             coordinate_transformation_mode="half_pixel")  # fmt: skip
    source = g.save(tmp_path / "base.onnx", [g.conv(g.op("LeakyRelu", [x], "r", alpha=0.125), 8, 4, "y")])
    file = tmp_path / "ir.xml"
    openvino.save_model(openvino.convert_model(source), file, compress_to_fp16=False)
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))
    report = precision_debug.compare(file, baseline_model=source, run_mode=mode, baseline="ort_fp32", inputs=g.feeds)
    assert report.explanation is not None
    first = report.explanation.culprits[0]
    tried = mode == "ov_fp32"  # what is told there is tried in its place, and nothing is left where nothing is rounded
    assert first.cause == ("files_differ" if tried else cause)
    assert not name or (str(first.evidence["name"]).startswith(name) and first.evidence["left"] < 0.05)


@pytest.mark.parametrize("causal", [False, True])
def test_a_flag_of_a_fused_attention_is_told_beside_one_that_is_written_out(causal: bool, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    there = "h @ h.transpose(-1, -2) / h.shape[-1] ** 0.5"
    mask = ".masked_fill(torch.ones(6, 6, dtype=torch.bool).triu(1), float('-inf'))"
    first, *_ = blame_modules(
        tmp_path, f"F.scaled_dot_product_attention(*[h[None, None]] * 3, is_causal={causal})[0, 0]",
        f"({there}){'' if causal else mask}.softmax(-1) @ h",
    )  # fmt: skip
    name, base, target = told(first)
    assert (name.split(" (")[0], base, target, first.evidence["left"] < 1e-3) == (
        "is_causal", str(causal), str(not causal), True
    )


LOSS = """
import torch

def net():
    torch.manual_seed(0)
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a = torch.nn.Linear(16, 16)
        def forward(self, x):
            return torch.tanh(self.a(x)).square().mean() / %s
    return Net(), (torch.linspace(-1, 1, 96).reshape(6, 16),)
"""


def test_what_an_attribute_makes_of_a_number_of_no_axis_is_undone(tmp_path: Path) -> None:
    """A scalar loss: an attribute of the operator that makes it is exchanged as that of any other."""
    pytest.importorskip("torch", reason="torch is not installed")
    for name, parts in (("base", 4), ("target", 1)):
        (tmp_path / f"{name}.py").write_text(LOSS % parts)
    report = precision_debug.compare(
        tmp_path / "target.py:net", baseline_model=tmp_path / "base.py:net", run_mode="torch_fp32",
        baseline="torch_fp32",
    )  # fmt: skip
    assert report.explanation is not None
    assert [(one.name, told(one)[1:]) for one in report.explanation.culprits] == [("div", ["4", "1"])]


def test_each_number_of_a_factor_that_was_not_folded_is_counted(tmp_path: Path) -> None:
    """A factor for each of two channels; a number of the weight may be small beside the largest change."""
    pytest.importorskip("onnxruntime")
    weight = np.ones((2, 3, 1, 1)) + np.arange(6).reshape(2, 3, 1, 1) / 8
    weight[0, 0] = 1e-5
    constants = {"w": weight, "to": np.full((1, 3, 1, 1), 1 / 255)}
    ops: Ops = [("Mul", "x to", "n"), ("Conv", "n w", "c"), ("Tanh", "c", "y")]
    report = precision_debug.compare(
        save_operators(tmp_path / "target.onnx", [("Conv", "x w", "c"), ("Tanh", "c", "y")], constants, (1, 3, 4, 4)),
        baseline_model=save_operators(tmp_path / "base.onnx", ops, constants, (1, 3, 4, 4)),
        inputs={"x": RANDOM.uniform(0, 1, (1, 3, 4, 4)).astype(np.float32)}, run_mode="ort_fp32", baseline="ort_fp32",
    )  # fmt: skip
    assert report.explanation is not None
    evidence = report.explanation.culprits[0].evidence
    assert (evidence["folded"], evidence["count"], evidence["elements"]) == ("Mul+Conv", 6, 6)
