"""Whether a fix is found for every model, on a real TensorRT 8.6, and holds when another program builds it.

    . ENV/env.sh; cd CHECKOUT; OUT=/some/empty/folder python3.11 tests/gpu/tensorrt_fixes.py NAME …

For each model: the engine to ship, built by tensorrt_truth.py without the tool (its error, its seconds); the command as
a user types it (its fix, its seconds); and the fix, built by it again. NAME:search runs ``search`` in place of the
comparison; NAME may be a file of one's own, FOLDER/MODEL.onnx, its inputs beside it in MODEL.npz. Results come one line
a step, and to $OUT/fixes.jsonl, so that what ends early has told what it knew.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from checkout import ROOT, stamped

OUT = Path(os.environ.get("OUT", ROOT / "output" / "gpu"))
SOURCES = "EDGE_MASK_CONVOLUTIONS,JIT_CONVOLUTIONS"  # the packed environment's cuBLAS and cuDNN are stubs
Made = tuple[Any, dict[str, Any], list[str]]
"""A model, its inputs, and words for the command."""


def tower() -> Made:
    """Four Gemm of which the first subtracts two nearly equal products: the engine takes TF32 for all of them."""
    import numpy as np
    from onnx import helper, numpy_helper

    rng, sizes = np.random.default_rng(0), [384, 512, 256, 64, 1]
    weights = {}
    for number, (inside, outside) in enumerate(itertools.pairwise(sizes), 1):
        scale = np.sqrt(inside)
        weights[f"w{number}"] = (rng.uniform(-1, 1, (outside, inside)) / scale).astype("f4")
        weights[f"b{number}"] = (rng.uniform(-1, 1, outside) / scale).astype("f4")
    weights["w1"][:, 8] = -weights["w1"][:, 7]
    x = rng.standard_normal((511, 384)).astype("f4")
    x[:, 7] = x[:, 7] * 30000 + 41000
    x[:, 8] = x[:, 7] * 0.9999 + rng.standard_normal(511) * 2
    nodes, name = [], "x"
    for number in range(1, 5):
        nodes.append(helper.make_node("Gemm", [name, f"w{number}", f"b{number}"], [f"g{number}"],
                                      name=f"/fc{number}/Gemm", transB=1))  # fmt: skip
        name = f"r{number}" if number < 4 else "y"
        kind = "Relu" if number < 4 else "Sigmoid"
        nodes.append(helper.make_node(kind, [f"g{number}"], [name], name=f"/act{number}"))
    ends = [[helper.make_tensor_value_info("x", 1, [511, 384])], [helper.make_tensor_value_info("y", 1, [511, 1])]]
    held = [numpy_helper.from_array(value, key) for key, value in weights.items()]
    graph = helper.make_graph(nodes, "tower", *ends, held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), {"x": x}, []


def needs_constraints() -> Made:
    import importlib.util

    import numpy as np

    spec = importlib.util.spec_from_file_location("build", ROOT / "examples" / "needs_constraints" / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    asked = ["--layer_precisions", "Add:float16", "Sub:float32"]
    return module.build(), {"x": np.random.default_rng(0).uniform(1, 2, (1, 256, 256)).astype("f4")}, asked


def _transformer(layers: int, width: int, scales: dict[str, float], **more: Any) -> Made:
    import numpy as np
    import onnx
    import tensorrt_models
    from onnx import helper, numpy_helper

    model = tensorrt_models.encoder(layers=layers, length=64, width=width, heads=6, pre_norm=True, **more)
    for tensor in model.graph.initializer:
        if tensor.name in scales:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) * np.float32(scales[tensor.name]),
                                                    tensor.name))  # fmt: skip
    constants = {"last_gain": np.ones(width, "f4"), "last_shift": np.zeros(width, "f4")}
    if more.get("decomposed", True):  # opset 13: the last norm in its operators
        constants = {"last_two": np.array(2, "f4"), "last_tiny": np.array(1e-5, "f4")}
        model.graph.node.extend([
            helper.make_node("ReduceMean", ["encoded"], ["last_mean"], name="last_mean", axes=[-1], keepdims=1),
            helper.make_node("Sub", ["encoded", "last_mean"], ["last_sub"], name="last_sub"),
            helper.make_node("Pow", ["last_sub", "last_two"], ["last_pow"], name="last_pow"),
            helper.make_node("ReduceMean", ["last_pow"], ["last_var"], name="last_var", axes=[-1], keepdims=1),
            helper.make_node("Add", ["last_var", "last_tiny"], ["last_eps"], name="last_eps"),
            helper.make_node("Sqrt", ["last_eps"], ["last_root"], name="last_root"),
            helper.make_node("Div", ["last_sub", "last_root"], ["y"], name="last_div"),
        ])  # fmt: skip
    else:
        reads = ["encoded", "last_gain", "last_shift"]
        model.graph.node.append(helper.make_node("LayerNormalization", reads, ["y"], name="last", axis=-1))
    model.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in constants.items())
    del model.graph.output[:]
    model.graph.output.append(helper.make_tensor_value_info("y", 1, [1, 64, width]))
    onnx.checker.check_model(model)
    feeds = {"embeddings": np.random.default_rng(11).uniform(-1, 1, (1, 64, width)).astype("f4")}
    return model, feeds, []


def encoder() -> Made:
    """Twelve layers before whose norms a residual stream passes 65504 from the seventh on."""
    return _transformer(12, 384, {"layer7_down_w": 4e5}, decomposed=False)


def decomposed() -> Made:
    """The same with norms in their operators, in four layers: what their squares overflow at, FP16 still holds."""
    return _transformer(4, 384, {"layer2_down_w": 4e3})


def decoder() -> Made:
    return _transformer(6, 384, {"layer3_down_w": 4e5}, decomposed=False, mask="causal")


def _convolution(
    rng: Any, weights: list[Any], nodes: list[Any], x: str, name: str, *sizes: int, relu: bool = True
) -> str:  # fmt: skip
    """Of inputs, outputs, kernel and stride; the batch norm is folded."""
    import numpy as np
    from onnx import helper, numpy_helper

    inside, outside, kernel, stride = sizes
    values = rng.standard_normal((outside, inside, kernel, kernel)) * np.sqrt(2 / (inside * kernel * kernel))
    weights += [numpy_helper.from_array(values.astype("f4"), f"{name}_w"),
                numpy_helper.from_array((rng.standard_normal(outside) * 0.1).astype("f4"), f"{name}_b")]  # fmt: skip
    pad = kernel // 2
    nodes.append(helper.make_node("Conv", [x, f"{name}_w", f"{name}_b"], [name], name=f"/{name}/Conv",
                                  kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4))  # fmt: skip
    if relu:
        nodes.append(helper.make_node("Relu", [name], [f"{name}_r"], name=f"/{name}/Relu"))
    return f"{name}_r" if relu else name


def points() -> Made:
    """A heat map whose maxima are kept by Equal, as SuperPoint suppresses the others."""
    import numpy as np
    from onnx import helper, numpy_helper

    rng, weights, nodes = np.random.default_rng(3), list[Any](), list[Any]()
    x = _convolution(rng, weights, nodes, "image", "c1", 1, 32, 3, 1)
    x = _convolution(rng, weights, nodes, x, "c2", 32, 32, 3, 1)
    x = _convolution(rng, weights, nodes, x, "c3", 32, 1, 3, 1, relu=False)
    nodes += [
        helper.make_node("Sigmoid", [x], ["heat"], name="/heat/Sigmoid"),
        helper.make_node("MaxPool", ["heat"], ["highest"], name="/nms/MaxPool", kernel_shape=[9, 9], pads=[4] * 4),
        helper.make_node("Equal", ["heat", "highest"], ["is_maximum"], name="/nms/Equal"),
        helper.make_node("Where", ["is_maximum", "heat", "zero"], ["y"], name="/nms/Where"),
    ]
    weights.append(numpy_helper.from_array(np.array(0, "f4"), "zero"))
    shape = [1, 1, 240, 320]
    ends = [[helper.make_tensor_value_info(name, 1, shape)] for name in ("image", "y")]
    model = helper.make_model(helper.make_graph(nodes, "points", *ends, weights),
                              opset_imports=[helper.make_opsetid("", 13)], ir_version=8)  # fmt: skip
    return model, {"image": rng.uniform(0, 1, shape).astype("f4")}, []


def _resnet(blocks: tuple[int, ...], bottleneck: bool) -> Made:
    import numpy as np
    from onnx import helper, numpy_helper

    rng, weights, nodes, count = np.random.default_rng(5), list[Any](), list[Any](), 0
    x = _convolution(rng, weights, nodes, "image", "stem", 3, 64, 7, 2)
    nodes.append(helper.make_node("MaxPool", [x], ["pooled"], name="/MaxPool", kernel_shape=[3, 3], strides=[2, 2],
                                  pads=[1] * 4))  # fmt: skip
    x, inside = "pooled", 64
    for stage, number in enumerate(blocks):
        width, stride = 64 << stage, 1 if stage == 0 else 2
        outside = 4 * width if bottleneck else width
        for _ in range(number):
            name, count = f"b{count}", count + 1
            if bottleneck:
                y = _convolution(rng, weights, nodes, x, f"{name}a", inside, width, 1, 1)
                y = _convolution(rng, weights, nodes, y, f"{name}b", width, width, 3, stride)
                y = _convolution(rng, weights, nodes, y, f"{name}c", width, outside, 1, 1, relu=False)
            else:
                y = _convolution(rng, weights, nodes, x, f"{name}a", inside, width, 3, stride)
                y = _convolution(rng, weights, nodes, y, f"{name}b", width, width, 3, 1, relu=False)
            if stride != 1 or inside != outside:
                x = _convolution(rng, weights, nodes, x, f"{name}s", inside, outside, 1, stride, relu=False)
            half = f"{name}_half"
            nodes += [helper.make_node("Add", [x, y], [f"{name}_sum"], name=f"/{name}/Add"),
                      helper.make_node("Mul", [f"{name}_sum", "half"], [half], name=f"/{name}/Mul"),
                      helper.make_node("Relu", [half], [f"{name}_out"], name=f"/{name}/Relu")]  # fmt: skip
            x, inside, stride = f"{name}_out", outside, 1
    last = (rng.standard_normal((inside, 1000)) / np.sqrt(inside)).astype("f4")
    weights += [numpy_helper.from_array(np.array(0.7, "f4"), "half"), numpy_helper.from_array(last, "fc_w")]
    nodes += [helper.make_node("GlobalAveragePool", [x], ["mean"], name="/GlobalAveragePool"),
              helper.make_node("Flatten", ["mean"], ["flat"], name="/Flatten"),
              helper.make_node("MatMul", ["flat", "fc_w"], ["y"], name="/fc/MatMul")]  # fmt: skip
    shape = [1, 3, 224, 224]
    ends = [[helper.make_tensor_value_info("image", 1, shape)], [helper.make_tensor_value_info("y", 1, [1, 1000])]]
    model = helper.make_model(helper.make_graph(nodes, "resnet", *ends, weights),
                              opset_imports=[helper.make_opsetid("", 13)], ir_version=8)  # fmt: skip
    return model, {"image": rng.standard_normal(shape).astype("f4")}, []


MODELS: dict[str, Callable[[], Made]] = {
    "tower": tower, "needs_constraints": needs_constraints, "encoder": encoder, "decomposed": decomposed,
    "decoder": decoder, "points": points, "resnet18": lambda: _resnet((2, 2, 2, 2), False),
    "resnet50": lambda: _resnet((3, 4, 6, 3), True),
}  # fmt: skip


def told(**what: Any) -> None:
    line = json.dumps(what, default=str)
    print(line[:1500], flush=True)
    with (OUT / "fixes.jsonl").open("a") as file:
        file.write(f"{line}\n")


def by_truth(name: str, what: str, *words: str) -> None:
    """The error and the seconds of an engine that the tool has no hand in."""
    script = os.environ.get("TRUTH", str(Path(__file__).with_name("tensorrt_truth.py")))
    begun = time.monotonic()
    done = subprocess.run([sys.executable, script, f"{name}.onnx", f"{name}.npz", *words], cwd=OUT,
                          capture_output=True, text=True, check=False)  # fmt: skip
    told(model=name, step=what, said=(done.stdout or done.stderr)[-400:].strip(), seconds=time.monotonic() - begun)


def _fix_shapes(model: Any, feeds: dict[str, Any]) -> list[str]:
    """Words that tell the shapes of inputs that the file leaves open."""
    open_ones = [
        value.name for value in model.graph.input
        if value.name in feeds and not all(dim.dim_value for dim in value.type.tensor_type.shape.dim)
    ]  # fmt: skip
    sizes = ["x".join(map(str, feeds[name].shape)) for name in open_ones]
    found = [f"{name}:{size},{size},{size}" for name, size in zip(open_ones, sizes, strict=True)]
    return ["--shapes", *found] if found else []


def settings_of(report: Any) -> dict[str, Any]:
    found = report.fix.settings if report.fix is not None else report.to_keep.settings if report.to_keep else {}
    return dict(found)


def ask(name: str, verb: str, words: list[str]) -> None:
    """The command as a user types it, and its fix as another program builds it."""
    from precision_debug import Report

    output = OUT / f"{name}_{verb or 'compare'}.json"
    times = OUT / f"{name}_{verb or 'compare'}_times.json"
    command = [sys.executable, __file__, "--stamped", str(times), *([verb] if verb else []), "--model_file",
               f"{name}.onnx", "--inputs", f"{name}.npz", "--run_mode", "trt_fp16", "--tactic_sources", SOURCES, *words,
               "--output", str(output)]  # fmt: skip
    begun = time.monotonic()
    done = subprocess.run(command, cwd=OUT, capture_output=True, text=True, check=False)
    seconds = time.monotonic() - begun
    (OUT / f"{name}_{verb or 'compare'}.txt").write_text(done.stdout + done.stderr)
    if not output.exists():
        told(model=name, step=verb or "compare", status=done.returncode, said=done.stderr[-1500:], seconds=seconds)
        return
    report = Report.load(output)
    settings, explanation = settings_of(report), report.explanation
    kept = list(settings.get("keep_layers", ()))
    fix, tried = report.fix, report.to_keep if report.to_keep and report.to_keep.state else None
    told(
        model=name, step=verb or "compare", status=done.returncode, seconds=round(seconds, 1),
        verdict=str(report.verdict), before=report.outputs[0].relative_l2 if report.outputs else None,
        culprits=[f"{one.name}:{one.cause}" for one in explanation.culprits[:4]] if explanation else None,
        fix=(fix.state, fix.before, fix.after, len(fix.kept), fix.evaluations, fix.on_engine, fix.builds)
        if fix is not None else tried and (tried.state, tried.before, tried.after, tried.runs, str(tried.why)[:300]),
        kept=len(kept), settings={**settings, "keep_layers": kept[:6]},
        accused=len(explanation.culprits) if explanation else 0,
        times=json.loads(times.read_text()) if times.exists() else None,
        builds=[str(note) for note in report.target.notes if re.search("uilt in|refused", str(note))],
        obeyed=list(fix.obeyed[:4]) if fix is not None else None,
        lines=[line for line in done.stdout.splitlines() if re.search("Tried|fix|paste|layers by real", line)][:8],
    )  # fmt: skip
    if settings:
        _confirm(name, kept, settings)


def _confirm(name: str, kept: list[str], settings: dict[str, Any]) -> None:
    import numpy as np
    import onnx

    model, feeds = onnx.load(OUT / f"{name}.onnx"), dict(np.load(OUT / f"{name}.npz"))
    words = [*_fix_shapes(model, feeds), *(["--no_tf32"] if settings.get("tf32") is False else [])]
    if kept:
        nodes = {node.name: node for node in model.graph.node}
        outputs = [output for node in kept if node in nodes for output in nodes[node].output]
        words += ["--keep", f"^({'|'.join(map(re.escape, dict.fromkeys((*kept, *outputs))))})$"]
        norms = [node for node in kept if node in nodes and nodes[node].op_type == "LayerNormalization"]
        words += ["--unnamed_after", kept[0]] if norms else []
    elif settings.get("precision_constraints") == "obey":
        words.append("--obey")
    by_truth(name, "fix by truth", *words)


def main() -> int:
    import numpy as np
    import onnx

    if sys.argv[1:2] == ["--stamped"]:
        status, times = stamped(sys.argv[3:], Path(sys.argv[2]).with_suffix(".txt"))
        Path(sys.argv[2]).write_text(json.dumps([f"{second} {text}"[:120] for second, text in times]))
        return status
    OUT.mkdir(parents=True, exist_ok=True)
    for asked in sys.argv[1:] or MODELS:
        name, _, verb = asked.partition(":")
        if name.endswith(".onnx"):  # a file of one's own, its inputs beside it
            model, feeds, words = onnx.load(name), dict(np.load(Path(name).with_suffix(".npz"))), []
            name = Path(name).stem
        else:
            model, feeds, words = MODELS[name]()
        if not (OUT / f"{name}.onnx").exists():
            onnx.save(model, OUT / f"{name}.onnx")
            np.savez(OUT / f"{name}.npz", **feeds)
            by_truth(name, "shipping by truth", *_fix_shapes(model, feeds))
        ask(name, verb, words)
    for file in (*OUT.glob("*.onnx"), *OUT.glob("*.npz"), *OUT.glob("*.engine")):
        file.unlink()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
