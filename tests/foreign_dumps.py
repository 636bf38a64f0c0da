"""Dumps of other tools of one model, each with a list of its own that says which tensor is which: the tool's names, its
converter's report, or the modules that its program was exported from. Pairing by value alone is checked against it.

Run as a script, it prints the table of tests/benchmarks/RESULTS.md.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

ROOT = Path(__file__).parents[1]
DATA = ROOT / "tests" / "data"
ONNX = ROOT / "examples" / "digits" / "digits.onnx"
IMAGE = np.load(ROOT / "examples" / "digits" / "test_images.npz")["image"][:1]

FAULT = ("bn2_bias", 5, 1.5)
"""What is added to one value of which weight in the wrong layer."""


@dataclass(frozen=True, kw_only=True)
class Foreign:
    """told: by the name that a file has in the dump, the tensor of the ONNX model that it is, by another source than
    values. tool: what wrote the dump. culprits: what the planted layer may be called, as a tool fuses."""

    path: Path
    told: Mapping[str, str]
    tool: str
    list_: str
    culprits: tuple[str, ...] = ("bn2_out",)


def wrong_model(folder: Path) -> Path:
    name, place, more = FAULT
    model = onnx.load(ONNX)
    for one in model.graph.initializer:
        if one.name == name:
            value = numpy_helper.to_array(one).copy()
            value[place] += more
            one.CopyFrom(numpy_helper.from_array(value, one.name))
    onnx.save(model, folder / "wrong.onnx")
    return folder / "wrong.onnx"


def values_of(folder: Path, wrong: bool) -> dict[str, Any]:
    """Every tensor, by ONNX Runtime with all of them as outputs."""
    import onnxruntime

    model = onnx.load(wrong_model(folder) if wrong else ONNX)
    names = [output for node in model.graph.node for output in node.output]
    del model.graph.output[:]
    model.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in names)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return {"image": IMAGE, **dict(zip(names, session.run(names, {"image": IMAGE}), strict=True))}


def rknn(folder: Path, wrong: bool) -> Foreign:
    path = DATA / "rknn" / ("wrong" if wrong else "healthy")
    lines = (path / "map_name_to_file.txt").read_text(encoding="utf-8").splitlines()
    names = {line.split()[0] for line in lines if line.split()}
    known = {output for node in onnx.load(ONNX).graph.node for output in node.output} | {"image"}
    told = {name: name for name in names & known}
    told |= {"logits_mm": "logits", "logits_mm__float16": "logits", "probabilities-rs": "probabilities"}  # its suffixes
    return Foreign(path=path, told=told, tool="rknn-toolkit2 2.5.0, its simulator of RK3588, INT8",
                   list_="its map of names")  # fmt: skip


def litert(folder: Path, wrong: bool) -> Foreign:
    from ai_edge_litert.interpreter import Interpreter, OpResolverType
    from litert_files import changed, tensor

    def fault(flat: Any) -> None:
        name, place, more = FAULT
        if wrong:
            bias = tensor(flat, name.replace("bn2_bias", "conv2_conv_bias"))
            value = flat.array(bias).copy()
            value[place] += more
            flat.model.buffers[bias.buffer].data = value.view(np.uint8)

    file = changed(folder / "m.tflite", fault, "digits_float32.tflite")
    run = Interpreter(model_path=str(file), experimental_preserve_all_tensors=True,
                      experimental_op_resolver_type=OpResolverType.BUILTIN_REF)  # fmt: skip
    run.allocate_tensors()
    run.set_tensor(run.get_input_details()[0]["index"], np.ascontiguousarray(IMAGE.transpose(0, 2, 3, 1)))
    run.invoke()
    (folder / "dump").mkdir()
    names = {one["index"]: one["name"] for one in run.get_tensor_details()}
    for op in run._get_ops_details():
        for index in op["outputs"]:
            np.save(folder / "dump" / f"{names[index]}.npy", run.get_tensor(index))
    records = json.loads((DATA / "litert" / "correspondence.json").read_text(encoding="utf-8"))["records"]
    told = {one["resolved_tflite_tensor_name"]: one["onnx_output_name"]
            for one in records if one["exists_in_final_model"]}  # fmt: skip
    told["pool_output_nhwc"] = "pool_out"  # the one that its report leaves out; by the file's own name
    return Foreign(path=folder / "dump", told=told, tool="LiteRT 2.3.0, of a file by onnx2tf, NHWC",
                   list_="onnx2tf's report", culprits=("relu2_out",))  # fmt: skip


def executorch(folder: Path, wrong: bool) -> Foreign:
    path = DATA / "executorch" / ("xnnpack_wrong" if wrong else "xnnpack")
    made = {f"b{n}.{part}": f"{part}{n}_out" for n in (1, 2, 3) for part in ("conv", "bn", "relu")}
    made |= {"pool": "pool_out", "gap": "gap_out", "flatten": "flatten_out", "fc": "logits", "softmax": "probabilities"}
    from precision_debug.products.dumps.dump import read_dump

    told = {one.name: made[one.name.split("/")[-2]] for one in read_dump(str(path)).tensors}
    told["m/b1.conv/aten_convolution_default"] = "image"  # what the first delegate reads; its result is #2
    return Foreign(path=path, told=told, tool="executorch 1.5.1, XNNPACK, ETDump and ETRecord",
                   list_="modules of the ETRecord")  # fmt: skip


def trtexec(folder: Path, wrong: bool) -> Foreign:
    """Its published format, with ONNX Runtime's values."""
    values = values_of(folder, wrong)
    parts = [
        {"name": name, "dimensions": "x".join(map(str, value.shape)), "values": value.reshape(-1).tolist()}
        for name, value in values.items()
    ]  # fmt: skip
    (folder / "out.json").write_text(json.dumps(parts), encoding="utf-8")
    return Foreign(path=folder / "out.json", told={name: name for name in values},
                   tool="trtexec --exportOutput, its format (values of ONNX Runtime)", list_="its names")  # fmt: skip


def by_hand(folder: Path, wrong: bool) -> Foreign:
    """A number and a prefix in front, signs for signs, channels last, FP16, no batch axis."""
    (folder / "dump").mkdir()
    told = {}
    for number, (name, value) in enumerate(values_of(folder, wrong).items()):
        called = f"{number:03d}_net_{name.replace('_', '-')}:0"
        shaped = value.transpose(0, 2, 3, 1) if value.ndim == 4 else value
        np.save(folder / "dump" / f"{called}.npy", np.ascontiguousarray(shaped[0]).astype(np.float16))
        told[called] = name
    return Foreign(path=folder / "dump", told=told, tool="by hand: mangled names, NHWC, FP16, no batch axis",
                   list_="its writer's")  # fmt: skip


MAKERS: dict[str, Callable[[Path, bool], Foreign]] = {
    one.__name__: one for one in (rknn, litert, executorch, trtexec, by_hand)
}
NEEDS = {"litert": "ai_edge_litert"}


def nameless(foreign: Foreign, folder: Path) -> Foreign:
    """The same tensors under shuffled numbers: nothing but values can tell them."""
    from precision_debug.products.dumps.dump import read_dump

    tensors = list(read_dump(str(foreign.path)).tensors)
    random.Random(7).shuffle(tensors)
    folder.mkdir()
    told = {}
    for number, one in enumerate(tensors):
        np.save(folder / f"t{number:02d}.npy", np.asarray(one.value))
        if one.name in foreign.told:
            told[f"t{number:02d}"] = foreign.told[one.name]
    return Foreign(path=folder, told=told, tool=foreign.tool, list_=foreign.list_, culprits=foreign.culprits)


COPIES = {"gap_out", "flatten_out"}
"""Equal bit for bit: where shapes do not tell them, either is either."""


@dataclass(frozen=True, kw_only=True)
class Paired:
    """pairs: by the dump's name. wrong: those that the list says otherwise of. unlisted: pairs that it knows nothing
    of. culprits: of the comparison, first to last."""

    count: int
    pairs: Mapping[str, str]
    wrong: Mapping[str, str]
    unlisted: tuple[str, ...]
    copies: tuple[str, ...]
    culprits: tuple[str, ...]
    verdict: str


def paired(foreign: Foreign, folder: Path) -> Paired:
    """By what the verb prints them of; and by the comparison with the model in float32."""
    import precision_debug
    from precision_debug.products.dumps.dumped import record_dump
    from precision_debug.records import ModelFiles, RunSpec
    from precision_debug.run.plan import make_plan

    spec = RunSpec(model=ModelFiles(model_file=str(ONNX)), run_mode="ort_fp32", record="-")
    live = make_plan(spec, work_dir=str(folder)).target
    recorded = record_dump(str(foreign.path), live, {"image": IMAGE}, None)
    pairs = {name: match.base for name, match in recorded.matches.found.items()}
    count = len(recorded.dump.tensors)
    other = {name: base for name, base in pairs.items() if foreign.told.get(name, base) != base}
    copies = [name for name, base in other.items() if {base, foreign.told[name]} == COPIES]
    report = precision_debug.compare(ONNX, run_mode=str(foreign.path), inputs={"image": IMAGE})
    return Paired(
        count=count, pairs=pairs, wrong={name: base for name, base in other.items() if name not in copies},
        unlisted=tuple(name for name in pairs if name not in foreign.told), copies=tuple(copies),
        culprits=tuple(one.name for one in report.explanation.culprits), verdict=str(report.verdict),
    )  # fmt: skip


def table() -> None:
    print("| dump | its list | names | tensors | paired | wrong pairs | verdict, healthy | culprits, wrong layer |")
    print("|---|---|---|---:|---:|---:|---|---|")
    for name, make in MAKERS.items():
        for names in ("its own", "none"):
            found = []
            for fault in (False, True):
                with tempfile.TemporaryDirectory() as folder:
                    foreign = make(Path(folder), fault)
                    foreign = foreign if names == "its own" else nameless(foreign, Path(folder) / "nameless")
                    found.append(paired(foreign, Path(folder)))
            good, bad = found
            copies = sum(len(one.copies) for one in found)
            print(
                f"| {name}: {foreign.tool} | {foreign.list_} | {names} | {good.count}, {bad.count}"
                f" | {len(good.pairs)}, {len(bad.pairs)} | {len(good.wrong)}, {len(bad.wrong)}"
                f"{f' ({copies} of equal copies)' if copies else ''} | {good.verdict}"
                f" | {', '.join(bad.culprits)} (planted: {' or '.join(foreign.culprits)}) |"
            )  # fmt: skip


if __name__ == "__main__":
    sys.path[:0] = [str(ROOT), str(ROOT / "backends")]
    table()
