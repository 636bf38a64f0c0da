"""Many samples: one row a tensor, exactly what merging single runs gives; sources, labels, metrics, one sample."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from approval import holds_approved
from onnx import helper, numpy_helper

import precision_debug
from precision_debug.cli import main
from precision_debug.errors import InputError
from precision_debug.numbers.merged import from_plain, to_plain
from precision_debug.observe.shard import Shard
from precision_debug.records import Comparison, Tolerance

MODE = "ort_fp16_sim"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two dense layers: [N, 8] to [N, 4]."""
    random = np.random.default_rng(0)
    weights = [random.standard_normal((8, 6)).astype(np.float32), random.standard_normal((6, 4)).astype(np.float32)]
    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["hidden"], name="first"),
        helper.make_node("Relu", ["hidden"], ["active"], name="relu"),
        helper.make_node("MatMul", ["active", "w1"], ["y"], name="second"),
    ]
    graph = helper.make_graph(
        nodes, "dense", [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["N", 8])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["N", 4])],
        [numpy_helper.from_array(weight, f"w{place}") for place, weight in enumerate(weights)],
    )  # fmt: skip
    path = tmp_path_factory.mktemp("model") / "dense.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.fixture(scope="module")
def data() -> np.ndarray:
    random = np.random.default_rng(1)
    return (random.standard_normal((9, 8)) * np.linspace(1, 30, 9)[:, None]).astype(np.float32)


def compare(model: Path, **given: Any) -> precision_debug.Report:
    return precision_debug.compare(model, run_mode=MODE, **{"explain": "off", **given})


def table(report: precision_debug.Report) -> list[tuple[str, Any, dict[str, str]]]:
    return [(row.name, row.comparison, dict(row.extra)) for row in report.rows]


def test_one_row_a_tensor_over_all_samples(model: Path, data: np.ndarray, tmp_path: Path) -> None:
    np.savez(tmp_path / "many.npz", x=data)
    many = compare(model, inputs=tmp_path / "many.npz", samples_axis=0)
    alone = [compare(model, inputs=tmp_path / "many.npz", samples_axis=0, sample=str(number)) for number in range(9)]
    assert len(many.compared) >= 3
    for place, row in enumerate(many.rows):
        if row.comparison is None:
            continue
        singles = [report.rows[place].comparison for report in alone]
        assert all(single is not None for single in singles)
        found: list[Comparison] = [single for single in singles if single is not None]
        assert row.comparison.base.elements == sum(one.base.elements for one in found)
        assert row.comparison.max_abs == max(one.max_abs or 0 for one in found)
        assert row.comparison.mismatched == sum(one.mismatched or 0 for one in found)
        worst = max(range(9), key=lambda number: (found[number].relative_l2, -number))
        if found[worst].relative_l2:
            assert row.extra["Worst Samples"].startswith(f"{worst} (")
        assert row.extra["Samples"] == "9"
    together = compare(model, inputs={"x": data})
    for row, other in zip(many.compared, together.compared, strict=True):
        assert row.comparison.rmse == pytest.approx(other.comparison.rmse, rel=1e-9)  # type: ignore[union-attr]
    assert any("9 samples were compared" in note for note in many.notes)


def test_any_split_gives_the_same_table(model: Path, data: np.ndarray, tmp_path: Path) -> None:
    np.savez(tmp_path / "many.npz", x=data)
    given = {"inputs": tmp_path / "many.npz", "samples_axis": 0}
    whole = compare(model, **given)

    def shard(text: str) -> Shard:
        from precision_debug.records import ModelFiles, RunSpec
        from precision_debug.run import pipeline
        from precision_debug.run.journal import Journal

        folder = tmp_path / text.replace(":", "_")
        folder.mkdir()
        spec = RunSpec(
            model=ModelFiles(model_file=str(model)), run_mode=MODE, inputs=str(tmp_path / "many.npz"), explain="off",
            samples_axis=0, sample=text,
        )  # fmt: skip
        with Journal(folder / "journal.jsonl") as journal:
            pipeline.execute(spec, journal, folder=folder)
        lines = (folder / "journal.jsonl").read_text().splitlines()
        shards = [event for event in map(json.loads, lines) if event["event"] == "shard"]
        return Shard.from_text(shards[0]["text"])

    merged = shard("5:9")
    for text in ("0:1", "3:5", "1:3"):
        merged.merge(shard(text))
    expected = {row.name: row.comparison for row in whole.rows}
    rows = merged.rows(Tolerance())
    assert {row.name: row.comparison for row in rows} == expected
    assert merged.samples == set(range(9))


def test_totals_survive_json(model: Path, data: np.ndarray, tmp_path: Path) -> None:
    from precision_debug import numbers
    from precision_debug.numbers.merged import Merged

    bad = data.copy()
    bad[0, 0], bad[1, 1] = np.nan, np.inf
    for one, other in ((data, data * 1.001), (data, bad), (data, data), (data, data[:2]), (data * 1e30, data * 1e-30)):
        merged = Merged.of(numbers.measure(one, other), 3)
        assert from_plain(json.loads(json.dumps(to_plain(merged)))) == merged


def sources(folder: Path, data: np.ndarray) -> dict[str, dict[str, Any]]:
    """The same three samples, each [1, 8], in every way."""
    (folder / "npz").mkdir()
    (folder / "npy").mkdir()
    for number in range(3):
        np.savez(folder / "npz" / f"s{number}.npz", x=data[number : number + 1])
        np.save(folder / "npy" / f"s{number}.npy", data[number : number + 1])
    np.savez(folder / "axis.npz", x=data[:3])
    np.savez_compressed(folder / "packed.npz", x=data[:3])
    np.save(folder / "axis.npy", data[:3].T)
    (folder / "feeds.py").write_text(
        f"import numpy as np\ndef load_data():\n    for row in np.load({str(folder / 'axis.npz')!r})['x']:\n"
        "        yield {'x': row[None]}\n"
    )
    return {
        "folder of npz": {"inputs": folder / "npz"},
        "folder of npy": {"inputs": folder / "npy"},
        "axis": {"inputs": folder / "axis.npz", "samples_axis": 0},
        "packed": {"inputs": folder / "packed.npz", "samples_axis": 0},
        "generator": {"inputs": folder / "feeds.py"},
        "arrays": {"inputs": [{"x": data[number : number + 1]} for number in range(3)]},
    }


def test_every_source_gives_the_same(model: Path, data: np.ndarray, tmp_path: Path) -> None:
    found = {name: table(compare(model, **given)) for name, given in sources(tmp_path, data).items()}
    for name, rows in found.items():
        assert rows == found["axis"], name
    assert found["axis"][-1][2]["Samples"] == "3"


def test_polygraphys_iterations(model: Path, data: np.ndarray, tmp_path: Path) -> None:
    json_util = pytest.importorskip("polygraphy.json", reason="polygraphy is not installed")
    json_util.save_json([{"x": data[number : number + 1]} for number in range(3)], str(tmp_path / "inputs.json"))
    found = table(compare(model, inputs=tmp_path / "inputs.json"))
    np.savez(tmp_path / "axis.npz", x=data[:3])
    assert found == table(compare(model, inputs=tmp_path / "axis.npz", samples_axis=0))


def test_a_dataset_folder(model: Path, data: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "set"
    try:
        import datasets
    except ImportError:
        folder.mkdir()
        (folder / "state.json").write_text("{}")
        (folder / "dataset_info.json").write_text("{}")
        monkeypatch.setitem(sys.modules, "datasets", None)
        with pytest.raises(InputError, match="pip install datasets"):
            compare(model, inputs=folder)
        return
    datasets.Dataset.from_dict({"x": data[:3].tolist(), "label": [0, 1, 2]}).save_to_disk(str(folder))
    np.savez(tmp_path / "axis.npz", x=data[:3])
    got = table(compare(model, inputs=folder))
    assert got == table(compare(model, inputs=tmp_path / "axis.npz", samples_axis=0))


def test_labels_and_metrics_of_all_samples(model: Path, data: np.ndarray, tmp_path: Path) -> None:
    np.savez(tmp_path / "many.npz", x=data)
    np.save(tmp_path / "labels.npy", np.arange(9) % 4)
    given = {"inputs": tmp_path / "many.npz", "samples_axis": 0, "labels": tmp_path / "labels.npy"}
    plain = compare(model, inputs={"x": data}, labels=tmp_path / "labels.npy")
    assert compare(model, **given).scores == pytest.approx(plain.scores)
    (tmp_path / "own.py").write_text(
        "def mean(outputs, label):\n    return float(outputs['y'].max() + label)\n"
        "def rate(outputs, label):\n    return int(outputs['y'].argmax() == label), 2\n"
        "def ranks(outputs, label):\n    return [float(outputs['y'].max()), int(label)]\n"
        "def ranks_of_all(parts):\n    return sorted(parts)[4][1]\n"
    )
    outputs = [np.maximum(row @ w0, 0) @ w1 for w0, w1 in [weights_of(model)] for row in data]
    mean = float(np.mean([out.max() + number % 4 for number, out in enumerate(outputs)]))
    for name, want in (("mean", mean), ("rate", plain.scores["top-1 accuracy, baseline"] / 2), ("ranks", None)):
        scores = compare(model, metric=f"{tmp_path / 'own.py'}:{name}", **given).scores
        assert set(scores) == {f"{name}, baseline", f"{name}, target"}
        assert want is None or scores[f"{name}, baseline"] == pytest.approx(want, rel=1e-5)


def weights_of(model: Path) -> list[np.ndarray]:
    return [numpy_helper.to_array(one) for one in onnx.load(model).graph.initializer]


def test_what_does_not_fit_is_said_in_one_line(model: Path, data: np.ndarray, tmp_path: Path) -> None:
    np.savez(tmp_path / "many.npz", x=data)
    np.save(tmp_path / "labels.npy", np.arange(5))
    given: dict[str, Any] = {"inputs": tmp_path / "many.npz", "samples_axis": 0}
    for more, words in (
        ({"sample": "9"}, "there is no sample 9"),
        ({"sample": "4:2"}, "there is no sample 4:2"),
        ({"samples_axis": 5}, "has 2 axes, and no axis 5"),
        ({"labels": tmp_path / "labels.npy"}, "5 labels for 9 samples"),
        ({"metric": "nothing.py:f"}, "cannot be read"),
    ):
        with pytest.raises(InputError, match=words):
            compare(model, **{**given, **more})


def test_one_sample_is_replayed_by_the_command(model: Path, data: np.ndarray, tmp_path: Path) -> None:
    np.savez(tmp_path / "many.npz", x=data)
    command = ["--model_file", str(model), "--run_mode", MODE, "--inputs", str(tmp_path / "many.npz"), "--quiet"]
    command += ["--samples_axis", "0", "--explain", "off", "--output", str(tmp_path / "out.json")]
    assert main([*command, "--sample", "3"]) == 0
    one = precision_debug.Report.load(tmp_path / "out.json")
    assert [row.comparison for row in one.rows] == [
        row.comparison for row in compare(model, inputs={"x": data[3:4]}).rows
    ]
    assert main(command) == 0
    many = precision_debug.Report.load(tmp_path / "out.json")
    assert table(many) == table(compare(model, inputs=tmp_path / "many.npz", samples_axis=0))
    assert many.rows[-1].is_output


def test_a_recording_says_that_it_has_one_sample(model: Path, data: np.ndarray, tmp_path: Path) -> None:
    np.savez(tmp_path / "many.npz", x=data)
    command = ["--model_file", str(model), "--run_mode", MODE, "--inputs", str(tmp_path / "many.npz"), "--quiet"]
    command += ["--samples_axis", "0", "--explain", "off", "--record", str(tmp_path / "kept"), "--baseline", "ort_fp32"]
    assert main([*command, "--output", str(tmp_path / "out.json")]) == 1  # eight samples were given and not judged
    report = precision_debug.Report.load(tmp_path / "out.json")
    assert holds_approved(list(report.notes))
    assert all("Samples" not in row.extra for row in report.rows)
