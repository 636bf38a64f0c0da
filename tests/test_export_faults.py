"""Planted faults in exports: the place is found, the cause is named, and correct exports are accused of nothing.

Pairs are confirmed by something that took no part in finding them: where the module's own value of each paired tensor
is put into the file in place of the tensors that an operator reads, the operator must give the module's value of its
partner; and in a correct export paired tensors are equal as they are.
"""

# ruff: noqa: E402

from __future__ import annotations

import copy
import functools
import inspect
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from approval import holds_approved
from warm import command

torch = pytest.importorskip("torch", reason="needs torch")
onnx = pytest.importorskip("onnx", reason="needs onnx")
pytest.importorskip("onnxruntime", reason="needs onnxruntime")

import export_faults
import export_models

from precision_debug import Report, Status, registry
from precision_debug.products.dumps.across_frameworks import match_values
from precision_debug.protocols import Matches
from precision_debug.reasons.reason import as_reason
from precision_debug.records import ModelFiles, SessionSpec
from precision_debug.report.lead import lead_sentences
from precision_debug.run.plan import Opening

MODELS = Path(export_models.__file__)
QUICK = ("siamese", "mlp", "detr")
EXPORTERS = ("dynamo", "script")
EVERY = [
    pytest.param(name, exporter, marks=[] if name in QUICK else [pytest.mark.slow])
    for name in export_models.ARCHITECTURES for exporter in EXPORTERS
]  # fmt: skip


@functools.cache
def exported(name: str, exporter: str) -> bytes:
    """The file as torch writes it. dynamo needs onnxscript."""
    if exporter == "dynamo":
        pytest.importorskip("onnxscript", reason="torch's dynamo exporter needs onnxscript")
    module, inputs = getattr(export_models, name)()
    kwargs = inputs if isinstance(inputs, dict) else {next(iter(inspect.signature(module.forward).parameters)): inputs}
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")
        path = str(Path(folder, "model.onnx"))
        if exporter == "dynamo":
            torch.onnx.export(module, (), kwargs=kwargs, dynamo=True, verbose=False).save(path)
        else:
            torch.onnx.export(
                module, tuple(kwargs.values()), path, dynamo=False, opset_version=17, input_names=list(kwargs)
            )
        return Path(path).read_bytes()


def sides(name: str, path: Path) -> tuple[Opening, Opening]:
    files = ModelFiles(model_file=f"{MODELS}:{name}"), ModelFiles(model_file=str(path))
    found = [registry.find(file, mode) for file, mode in zip(files, ("torch_fp32", "ort_fp32"), strict=True)]
    one, two = (
        Opening(spec=SessionSpec(model=file, mode=mode.name), mode=mode, backend=backend)
        for file, (backend, mode) in zip(files, found, strict=True)
    )
    return one, two


def matched(name: str, model: Any, folder: Path) -> tuple[Matches, list[str]]:
    path = folder / "model.onnx"
    onnx.save(model, path)
    one, two = sides(name, path)
    exporter = one.capabilities.exporter
    assert exporter is not None
    matches, notes = match_values(one, two, exporter.examples(one.spec))
    return matches, list(notes)


def values_of(side: Opening, feeds: Any) -> dict[str, np.ndarray]:
    found: dict[str, np.ndarray] = {}
    session = side.open([feeds])
    session.run(feeds, lambda kind, name, tensor: found.__setitem__(name, np.array(tensor)))
    session.close()
    return found


def accusations(notes: list[str]) -> list[str]:
    codes = ("wrong_at", "exchanged")
    return [
        note for note in notes
        if as_reason(note).code.startswith(codes) or "differ" in note or "old export" in note
    ]  # fmt: skip


@pytest.mark.parametrize(("name", "exporter"), EVERY)
def test_a_correct_export_is_accused_of_nothing_and_its_pairs_hold_the_same_values(
    name: str, exporter: str, tmp_path: Path
) -> None:
    matches, notes = matched(name, onnx.load_from_string(exported(name, exporter)), tmp_path)
    assert accusations(notes) == []
    one, two = sides(name, tmp_path / "model.onnx")
    assert one.capabilities.exporter is not None
    feeds = one.capabilities.exporter.examples(one.spec)
    ours, theirs = values_of(one, feeds), values_of(two, feeds)
    assert len(matches.found) >= 5
    for target, (base, _) in matches.found.items():
        np.testing.assert_allclose(theirs[target], ours[base], rtol=1e-3, atol=1e-4)
    outputs = {item.name for item in onnx.load(tmp_path / "model.onnx").graph.output}
    assert outputs <= set(matches.found)


@pytest.mark.parametrize("exporter", EXPORTERS)
@pytest.mark.parametrize("name", ["unet", pytest.param("vit", marks=pytest.mark.slow)])
def test_an_epsilon_that_moves_no_value_is_found_by_reading_the_attributes(
    name: str, exporter: str, tmp_path: Path
) -> None:
    model = onnx.load_from_string(exported(name, exporter))
    assert not [note for note in matched(name, model, tmp_path)[1] if "differ" in note]
    wrong, named = export_faults.slight_epsilon(model)
    assert named
    _, notes = matched(name, wrong, tmp_path)
    assert not [note for note in notes if as_reason(note).code.startswith(("wrong_at", "exchanged"))], "no value tells"
    differ = [note for note in notes if "the attributes differ" in note]
    assert all(any(f"{one} in model.onnx" in note for note in differ) for one in named), (named, notes)
    assert len(differ) == len(named)
    assert all(note.startswith("epsilon of ") for note in differ)


CHANGES = {"Clip": 50.0, "Add": 1e-5, "LeakyRelu": 0.3, "LayerNormalization": 1e-5, "Conv": [1]}


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_numbers_of_calls_that_move_no_value_are_found_too(exporter: str, tmp_path: Path) -> None:
    model = onnx.load_from_string(exported("functional", exporter))
    assert not [note for note in matched("functional", model, tmp_path)[1] if "differ" in note]
    held = {name: tensor for name, (tensor, _) in export_faults.parameters(model).items()}
    changed = []
    for node in model.graph.node:
        new: Any = CHANGES.get(node.op_type)
        scalar = next((held[name] for name in reversed(node.input) if name in held and not held[name].dims), None)
        if new is None or (node.op_type == "Add" and scalar is None):
            continue
        changed.append(f"{node.op_type} {node.name}")
        if node.op_type in ("Clip", "Add"):
            scalar.CopyFrom(onnx.numpy_helper.from_array(np.float32(new), scalar.name))
            continue
        for item in [item for item in node.attribute if item.name in ("alpha", "epsilon", "dilations")]:
            node.attribute.remove(item)
            node.attribute.append(onnx.helper.make_attribute(item.name, new))
    assert len(changed) == len(CHANGES)
    _, notes = matched("functional", model, tmp_path)
    differ = [note for note in notes if "the attributes differ" in note]
    assert not [note for note in notes if as_reason(note).code.startswith(("wrong_at", "exchanged"))], "no value tells"
    assert all(any(one in note for note in differ) for one in changed), (changed, differ)
    assert len(differ) == len(changed)


@pytest.mark.parametrize(("name", "exporter"), EVERY)
def test_a_planted_fault_is_found_where_it_is_and_its_cause_is_named(name: str, exporter: str, tmp_path: Path) -> None:
    model = onnx.load_from_string(exported(name, exporter))
    one, _ = sides(name, tmp_path / "model.onnx")
    own = one.backend.weights(one.spec)  # type: ignore[union-attr]
    right, _ = matched(name, model, tmp_path)
    planted = 0
    for kind, plant in export_faults.FAULTS.items():
        fault = plant(copy.deepcopy(model), own)
        if fault is None:
            continue
        planted += 1
        found, notes = matched(name, fault.model, tmp_path)
        wrong = [note for note in notes if as_reason(note).code.startswith(("wrong_at", "exchanged"))]
        assert wrong, (kind, notes)
        if kind not in ("old checkpoint", "swapped"):
            assert len(wrong) == 1, (kind, wrong)
        named = [note for note in wrong if not fault.weights or _names(note, fault.weights)]
        assert any(fault.cause in note for note in named), (kind, fault.weights, wrong)
        pairs = {target: base for target, (base, _) in found.found.items()}
        moved = {t: (b, pairs[t]) for t, (b, _) in right.found.items() if t in pairs and pairs[t] != b}
        assert not moved, "what is paired in the correct file is paired alike in the wrong one"
        lost = [target for target in right.found if target not in pairs]
        assert len(lost) <= (0.5 if kind == "old checkpoint" else 0.15) * len(right.found), (kind, lost)
        assert {item.name for item in fault.model.graph.output} <= set(pairs)
        assert not [note for note in notes if "the attributes differ" in note], (kind, notes)
    assert planted >= 3


def _names(note: str, weights: tuple[str, ...]) -> bool:
    return any(weight in note or f"at {weight.rpartition('.')[0]}/" in note for weight in weights)


def confirmed(base: Mapping[str, np.ndarray], path: Path, pairs: Mapping[str, str], feeds: Any) -> tuple[set[str], int]:
    """Targets whose operator, given the module's values of all it reads, does not give the module's value of it; and
    how many could be tried. Runs each operator in a model of its own, by onnx's own extractor and ONNX Runtime."""
    import onnxruntime as ort

    model = onnx.load(path)
    constants = {item.name for item in model.graph.initializer}
    constants |= {out for node in model.graph.node if node.op_type == "Constant" for out in node.output}
    wrong, tried = set(), 0
    for node in model.graph.node:
        reads = [name for name in node.input if name and name not in constants]
        out = node.output[0]
        if out not in pairs or not reads or any(name not in pairs for name in reads):
            continue
        given = {name: base[pairs[name]] for name in reads}
        one = copy.deepcopy(model)
        del one.graph.input[:], one.graph.output[:], one.graph.value_info[:]
        one.graph.input.extend(
            onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
            for name, value in given.items()
        )
        one.graph.output.append(onnx.ValueInfoProto(name=out))
        keep = [other for other in one.graph.node if other.op_type == "Constant" or out in other.output]
        del one.graph.node[:]
        one.graph.node.extend(keep)
        session = ort.InferenceSession(one.SerializeToString(), providers=["CPUExecutionProvider"])
        result = session.run([out], given)[0]
        tried += 1
        known = base[pairs[out]]
        if result.shape != known.shape or not np.allclose(result, known, 1e-3, 1e-3 * max(np.abs(known).mean(), 1e-3)):
            wrong.add(out)
    return wrong, tried


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_pairs_behind_a_fault_are_confirmed_by_recomputing_each_operator_alone(exporter: str, tmp_path: Path) -> None:
    model = onnx.load_from_string(exported("vit", exporter))
    one, _ = sides("vit", tmp_path / "model.onnx")
    own = one.backend.weights(one.spec)  # type: ignore[union-attr]
    assert one.capabilities.exporter is not None
    feeds = one.capabilities.exporter.examples(one.spec)
    base = values_of(one, feeds)
    for kind in ("missing bias", "transposed", "one element"):
        fault = export_faults.FAULTS[kind](copy.deepcopy(model), own)
        assert fault is not None
        found, notes = matched("vit", fault.model, tmp_path)
        pairs = {target: base_name for target, (base_name, _) in found.found.items()}
        wrong, tried = confirmed(base, tmp_path / "model.onnx", pairs, feeds)
        assert tried >= 12
        accused = {target for target in wrong if any(f"the output {target} does not" in note for note in notes)}
        assert wrong == accused, kind


def test_the_command_names_the_wrong_operator_first(root: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    one, _ = sides("siamese", tmp_path / "model.onnx")
    own = one.backend.weights(one.spec)  # type: ignore[union-attr]
    fault = export_faults.missing_bias(onnx.load_from_string(exported("siamese", "script")), own)
    assert fault is not None
    onnx.save(fault.model, "wrong.onnx")
    done = command(
        "--baseline", "torch_fp32", "--baseline_model", f"{MODELS}:siamese", "--model_file", "wrong.onnx",
        "--run_mode", "ort_fp32", "--output", "o.json",
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    report = Report.load("o.json")
    first = next(row for row in report.rows if row.status is Status.FAIL)
    assert first.name.startswith(fault.weights[0].rpartition(".")[0])
    assert holds_approved(first.paired_by)
    assert any(f"{fault.weights[0]} is missing" in note for note in report.notes)
    assert f"{fault.weights[0]} is missing" in lead_sentences(report)[0].en
    assert [row.status for row in report.outputs] == [Status.FAIL]
    assert report.verdict.name == "FAIL"


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_small_outputs_are_paired_and_say_how(exporter: str, tmp_path: Path) -> None:
    matches, _ = matched("binary", onnx.load_from_string(exported("binary", exporter)), tmp_path)
    outputs = [item.name for item in onnx.load(tmp_path / "model.onnx").graph.output]
    assert [matches.found[name][0] for name in outputs] == ["output[0]", "output[1]"]
    matches, _ = matched("detr", onnx.load_from_string(exported("detr", exporter)), tmp_path)
    assert {"output.pred_logits", "output.pred_boxes"} <= {base for base, _ in matches.found.values()}


def test_inputs_with_other_names_are_matched_and_it_is_said(root: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    model = onnx.load_from_string(exported("siamese", "script"))
    renamed = {"query": "input.1", "document": "input.2"}
    for item in model.graph.input:
        item.name = renamed[item.name]
    for node in model.graph.node:
        for place, name in enumerate(node.input):
            node.input[place] = renamed.get(name, name)
    onnx.save(model, "renamed.onnx")

    def run(*more: str) -> tuple[int, Report]:
        done = command(
            "--baseline", "torch_fp32", "--baseline_model", f"{MODELS}:siamese", "--model_file", "renamed.onnx",
            "--run_mode", "ort_fp32", "--output", "o.json", *more,
        )  # fmt: skip
        assert Path("o.json").exists(), done.stderr
        return done.returncode, Report.load("o.json")

    code, report = run()
    assert code == 0
    assert holds_approved(list(report.notes))
    pairs = {row.target_name: row.name for row in report.compared}
    assert pairs["input.1"] == "query"
    code, report = run("--rename", "input.1=document")
    assert code == 1, "the user says that they are the other way round"
    assert {row.target_name: row.name for row in report.compared}["input.1"] == "document"
