"""Pairs of models that are drawn, right and wrong ones, under drawn modes, marks, criteria and flags.

What is right or wrong is told by plain sessions of ONNX Runtime on both files. A wrong pair must never end with status
0, a right one never as out of tolerance, and status 0 never stands beside a claim that is open or refuted.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from precision_debug import Report, compare
from precision_debug.claims import State, Verdict
from precision_debug.errors import PrecisionDebugError

from .case import Lost

__all__ = ["drawn_pairs"]

_FAR = 0.2
"""Relative error of a whole output from which on no criterion that is drawn allows it."""

_RIGHT_WITHIN = 1e-5
"""Of a pair that was changed in form alone: other kernels may add in another order, and a choice may turn then."""

_ACTIVATIONS = ("Relu", "Tanh", "Sigmoid", "Softmax", "LeakyRelu", "Elu", "Softplus", "Neg", "Identity")
_MODES = ("ort_opt", "ort_opt", "ort_fp32", "onnx_ref", "ort_fp16_sim", "ort_bf16_sim")
_CRITERIA: tuple[dict[str, Any], ...] = (
    {}, {}, {"atol": 1e-3, "rtol": 1e-3}, {"rtol": 1e-2, "atol": 1e-5}, {"atol": 1e-3, "check_error_stat": "median"},
    {"atol": 1e-3, "check_error_stat": "max"}, {"atol": 1e-3, "check_error_stat": "mean"}, {"equal_nan": True},
    {"atol": 1e-3, "check_error_stat": "quantile"}, {"atol": 1e-3, "rtol": 1e-3, "tolerance_rule": "either"},
)  # fmt: skip
_FLAGS = ("validate", "allow_non_finite", "every_iteration", "run_once", "fail_fast", "top1", "without_outputs")
_LEAVES_OPEN = frozenset({"without_outputs", "run_once", "validate", "fail_fast", "top1"})
"""Flags under which a right pair may be refused or inconclusive."""

Change = Callable[[random.Random, onnx.ModelProto], None]


def drawn_pairs(random_: random.Random, folder: Path) -> None:
    """One pair under one set of options. Raises Lost."""
    first = _model(random_)
    second = onnx.ModelProto()
    second.CopyFrom(first)
    means_right = random_.random() < 0.5
    name = random_.choice(sorted(_RIGHT if means_right else _WRONG))
    (_RIGHT if means_right else _WRONG)[name](random_, second)
    paths = folder / "base.onnx", folder / "target.onnx"
    for model, path in zip((first, second), paths, strict=True):
        onnx.save(model, path)
    feeds = _feeds(random_, first)
    np.savez(folder / "feeds.npz", **feeds)
    base, target = _outputs(paths[0], feeds), _outputs(paths[1], feeds)
    off = _apart(base, target)
    is_right = means_right and off < _RIGHT_WITHIN
    options = _options(random_, first)
    told = f"{name} {[node.op_type for node in first.graph.node]} off by {off:.3g}: {options}"
    try:
        report = compare(paths[1], baseline_model=paths[0], inputs=folder / "feeds.npz", **options)
    except PrecisionDebugError as error:
        if is_right and not _LEAVES_OPEN & options.keys() and error.exit_status == 3:
            raise Lost(f"a right pair ends with {error}: {told}") from error
        return
    _judge(report, off, options, told, is_right=is_right, says_nothing=_says_nothing(base))


def _judge(
    report: Report, off: float, options: Mapping[str, Any], told: str, *, is_right: bool, says_nothing: bool
) -> None:
    spoken = [f"{claim.code} {claim.why.code if claim.why else ''}" for claim in report.claims
              if claim.state is not State.HELD]  # fmt: skip
    if report.exit_status == 0 and spoken:
        raise Lost(f"status 0 beside {spoken}: {told}")
    if report.exit_status and not spoken:
        raise Lost(f"status {report.exit_status} with nothing against it: {told}")
    if off > _FAR and report.exit_status == 0:
        raise Lost(f"a wrong pair passes: {told}")
    if is_right and report.verdict == Verdict.FAIL and not _narrow(options):
        raise Lost(f"a right pair is out of tolerance, {spoken}: {told}")
    plain = not _LEAVES_OPEN & options.keys() and not _narrow(options) and not says_nothing
    if is_right and plain and report.exit_status:
        raise Lost(f"a right pair is no pass, {spoken}: {told}")


def _narrow(options: Mapping[str, Any]) -> bool:
    """Whether the target rounds, and a criterion for float32 may rightly refuse it, or a choice of it turn."""
    return options["run_mode"].endswith("_sim")


def _options(random_: random.Random, model: onnx.ModelProto) -> dict[str, Any]:
    inside = [node.output[0] for node in model.graph.node]
    marks = random_.choice((
        {}, {}, {"marks": (random_.choice(inside),)}, {"marks": ("re:.*",)}, {"marks": tuple(inside[:2])},
        {"marks_between": (inside[0], inside[-1])}, {"fused_only": True},
    ))  # fmt: skip
    return {
        "run_mode": random_.choice(_MODES), **marks, **random_.choice(_CRITERIA),
        **dict.fromkeys(random_.sample(_FLAGS, random_.choice((0, 0, 1, 2))), True),
        "explain": "fast" if random_.random() < 0.2 else "off",
    }  # fmt: skip


def _model(random_: random.Random) -> onnx.ModelProto:
    """One to four layers, and one to three outputs of them: numbers, a choice, a flag, a count, or one number alone."""
    rng = np.random.default_rng(random_.randrange(1 << 30))
    width, rows = random_.randrange(3, 20), random_.randrange(1, 9)
    nodes, weights, last, widths = [], [], "x", {"x": width}
    for layer in range(random_.randrange(1, 5)):
        new = widths[last] if random_.random() < 0.5 else random_.randrange(3, 20)
        made = rng.normal(0, 1.0 / np.sqrt(widths[last]), (widths[last], new)).astype(np.float32)
        weights += [numpy_helper.from_array(made, f"w{layer}"),
                    numpy_helper.from_array(rng.normal(0, 0.1, new).astype(np.float32), f"b{layer}")]  # fmt: skip
        nodes += [helper.make_node("MatMul", [last, f"w{layer}"], [f"m{layer}"]),
                  helper.make_node("Add", [f"m{layer}", f"b{layer}"], [f"h{layer}"]),
                  helper.make_node(random_.choice(_ACTIVATIONS), [f"h{layer}"], [f"a{layer}"])]  # fmt: skip
        last = f"a{layer}"
        widths |= {f"{kind}{layer}": new for kind in "mha"}
    outputs = []
    for number, kind in enumerate(random_.sample(("numbers", "numbers2", "choice", "flag", "count", "one"), 3)):
        if number and random_.random() < 0.5:
            continue
        made_nodes, kind_of = _output(kind, last, f"y{number}")
        nodes += made_nodes
        outputs.append(helper.make_tensor_value_info(f"y{number}", kind_of, None))
    batch = "n" if random_.random() < 0.3 else rows
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, width])], outputs,
        [*weights, numpy_helper.from_array(np.float32(0.1).reshape(()), "bar")],
    )  # fmt: skip
    graph.doc_string = str(rows)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _output(kind: str, of: str, name: str) -> tuple[list[onnx.NodeProto], int]:
    if kind == "choice":
        return [helper.make_node("ArgMax", [of], [name], axis=1)], TensorProto.INT64
    if kind == "flag":
        return [helper.make_node("Greater", [of, "bar"], [name])], TensorProto.BOOL
    if kind == "count":
        inner = [helper.make_node("Greater", [of, "bar"], [f"{name}_flag"]),
                 helper.make_node("Cast", [f"{name}_flag"], [name], to=TensorProto.INT32)]  # fmt: skip
        return inner, TensorProto.INT32
    if kind == "one":
        return [helper.make_node("ReduceMean", [of], [name], keepdims=0)], TensorProto.FLOAT
    return [helper.make_node("Mul" if kind == "numbers" else "Add", [of, of], [name])], TensorProto.FLOAT


def _feeds(random_: random.Random, model: onnx.ModelProto) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(random_.randrange(1 << 30))
    shape = int(model.graph.doc_string), model.graph.input[0].type.tensor_type.shape.dim[1].dim_value
    return {"x": rng.normal(size=shape).astype(np.float32)}


def _outputs(path: Path, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return dict(zip([one.name for one in session.get_outputs()], session.run(None, dict(feeds)), strict=True))


def _apart(base: Mapping[str, np.ndarray], target: Mapping[str, np.ndarray]) -> float:
    """How far the worst output is off; Inf where there is another one, of another type or shape, or NaN."""
    if base.keys() != target.keys():
        return np.inf
    worst = 0.0
    for name, mine in base.items():
        theirs = target[name]
        if mine.dtype != theirs.dtype or mine.shape != theirs.shape or not np.isfinite(theirs).all():
            return np.inf
        if mine.dtype.kind == "f":
            size = float(np.linalg.norm(mine.astype(np.float64)))
            error = float(np.linalg.norm(theirs.astype(np.float64) - mine))
            typical = float(np.median(np.abs(theirs.astype(np.float64) - mine)))
            if typical > 0.01:  # else a median or a quantile that was asked for may allow it
                worst = max(worst, error / max(size, 1e-12))
            elif error:
                worst = max(worst, min(error / max(size, 1e-12), 0.1))
        elif (mine != theirs).mean() > 0.5:
            worst = np.inf
        elif (mine != theirs).any():
            worst = max(worst, 0.1)  # wrong for whoever counts, and a median would allow it
    return worst


def _says_nothing(outputs: Mapping[str, np.ndarray]) -> bool:
    """Whether all outputs are 0, or some is by chance what proves nothing."""
    return all(not np.any(one) for one in outputs.values())


def _last_weight(model: onnx.ModelProto) -> onnx.TensorProto:
    return next(one for one in reversed(model.graph.initializer) if one.name.startswith("w"))


def _with(tensor: onnx.TensorProto, value: np.ndarray) -> None:
    tensor.CopyFrom(numpy_helper.from_array(value, tensor.name))


def _scaled(random_: random.Random, model: onnx.ModelProto) -> None:
    tensor = _last_weight(model)
    _with(tensor, numpy_helper.to_array(tensor) * np.float32(random_.choice((3.0, -1.0, 0.2, 100.0))))


def _broken(random_: random.Random, model: onnx.ModelProto) -> None:
    tensor = _last_weight(model)
    value = numpy_helper.to_array(tensor).copy()
    value.flat[random_.randrange(value.size)] = random_.choice((np.nan, np.inf))
    _with(tensor, value)


def _drawn_again(random_: random.Random, model: onnx.ModelProto) -> None:
    tensor = random_.choice([one for one in model.graph.initializer if one.name.startswith("w")])
    rng = np.random.default_rng(random_.randrange(1 << 30))
    _with(tensor, rng.normal(0, 1, tuple(tensor.dims)).astype(np.float32))


def _lacking(random_: random.Random, model: onnx.ModelProto) -> None:
    if len(model.graph.output) == 1:
        _scaled(random_, model)
    else:
        del model.graph.output[random_.randrange(len(model.graph.output))]


def _more(_: random.Random, model: onnx.ModelProto) -> None:
    model.graph.output.append(helper.make_tensor_value_info("m0", TensorProto.FLOAT, None))


def _of_another_type(_: random.Random, model: onnx.ModelProto) -> None:
    info = model.graph.output[0]
    maker = next(node for node in model.graph.node if info.name in node.output)
    maker.output[0] = "before"
    kind = TensorProto.INT64 if info.type.tensor_type.elem_type == TensorProto.FLOAT else TensorProto.FLOAT
    model.graph.node.append(helper.make_node("Cast", ["before"], [info.name], to=kind))
    info.type.tensor_type.elem_type = kind


def _of_another_shape(_: random.Random, model: onnx.ModelProto) -> None:
    info = model.graph.output[0]
    maker = next(node for node in model.graph.node if info.name in node.output)
    maker.output[0] = "before"
    model.graph.initializer.append(numpy_helper.from_array(np.array([0]), "axes"))
    model.graph.node.append(helper.make_node("Unsqueeze", ["before", "axes"], [info.name]))


def _exchanged(random_: random.Random, model: onnx.ModelProto) -> None:
    names = [one.name for one in model.graph.output]
    if len(names) == 1:
        _drawn_again(random_, model)
        return
    for node in model.graph.node:
        for place, name in enumerate(node.output):
            if name in names[:2]:
                node.output[place] = names[1 - names.index(name)]
    kinds = [one.type.tensor_type.elem_type for one in model.graph.output[:2]]
    for one, kind in zip(model.graph.output, reversed(kinds), strict=False):
        one.type.tensor_type.elem_type = kind


def _same(_: random.Random, model: onnx.ModelProto) -> None:
    """Nothing is changed."""


def _other_names(_: random.Random, model: onnx.ModelProto) -> None:
    for number, node in enumerate(model.graph.node):
        node.name = f"other_{number}"


def _constants_as_operators(_: random.Random, model: onnx.ModelProto) -> None:
    held = list(model.graph.initializer)
    del model.graph.initializer[:]
    nodes = [helper.make_node("Constant", [], [one.name], value=one) for one in held] + list(model.graph.node)
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def _as_gemm(_: random.Random, model: onnx.ModelProto) -> None:
    product, total = model.graph.node[0], model.graph.node[1]
    product.CopyFrom(helper.make_node("Gemm", [product.input[0], product.input[1], total.input[1]], [total.output[0]]))
    model.graph.node.remove(total)


def _identities(random_: random.Random, model: onnx.ModelProto) -> None:
    place = random_.randrange(1, len(model.graph.node))
    node = model.graph.node[place]
    passed = helper.make_node("Identity", [node.input[0]], ["passed"])
    node.input[0] = "passed"
    model.graph.node.insert(place, passed)


def _outputs_turned(_: random.Random, model: onnx.ModelProto) -> None:
    turned = list(reversed(model.graph.output))
    del model.graph.output[:]
    model.graph.output.extend(turned)


def _beside(_: random.Random, model: onnx.ModelProto) -> None:
    """An operator that nobody reads."""
    model.graph.node.append(helper.make_node("Neg", ["m0"], ["read_by_nobody"]))


_WRONG: dict[str, Change] = {
    "scaled": _scaled, "broken": _broken, "drawn again": _drawn_again, "lacking": _lacking, "more": _more,
    "another type": _of_another_type, "another shape": _of_another_shape, "exchanged": _exchanged,
}  # fmt: skip
_RIGHT: dict[str, Change] = {
    "same": _same, "other names": _other_names, "constants as operators": _constants_as_operators, "gemm": _as_gemm,
    "identities": _identities, "outputs turned": _outputs_turned, "beside": _beside,
}  # fmt: skip
