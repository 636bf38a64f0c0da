"""No code of a model file runs: archives of torch that are crafted to."""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from warm import command

torch: Any = pytest.importorskip("torch", reason="needs torch")

from precision_debug_torch.engine.archive import load_data_only  # noqa: E402
from precision_debug_torch.model import example_feeds, read_model  # noqa: E402

import precision_debug  # noqa: E402
from precision_debug.errors import ModelError, UsageError  # noqa: E402
from precision_debug.records import ModelFiles, Status  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


class Canary:
    """Unpickling it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return exec, (f"open({str(self.path)!r}, 'w').close()",)


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.parts = torch.nn.ModuleDict({"a-b c": torch.nn.Linear(4, 4)})
        self.register_buffer("shift", torch.ones(4))

    def forward(self, x: Any, y: Any = None) -> Any:
        return {"o": self.parts["a-b c"](x) + self.shift, "n": x.shape[0] * y}


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pt2") / "good.pt2"
    sizes = {"x": {0: torch.export.Dim("batch", min=2, max=99)}, "y": None}
    program = torch.export.export(Net(), (torch.randn(3, 4),), {"y": torch.ones(1)}, dynamic_shapes=sizes)
    torch.export.save(program, path)
    return path


def rewritten(good: Path, to: Path, change: Callable[[dict[str, bytes]], None]) -> Path:
    """A copy of an archive with other records. change: gets name (without the archive's own) to bytes."""
    with zipfile.ZipFile(good) as archive:
        top = archive.namelist()[0].partition("/")[0]
        records = {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}
    change(records)
    with zipfile.ZipFile(to, "w", zipfile.ZIP_STORED) as archive:
        for name, data in records.items():
            archive.writestr(f"{top}/{name}", data)
    return to


def pickled(value: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def edited(records: dict[str, bytes], name: str, old: str, new: str) -> None:
    text = records[name].decode()
    assert old in text
    records[name] = text.replace(old, new).encode()


def example_inputs(records: dict[str, bytes], canary: Path) -> None:
    records["data/sample_inputs/model.pt"] = pickled(((Canary(canary),), {}))


def pickled_weight(records: dict[str, bytes], canary: Path) -> None:
    records["data/weights/weight_2"] = pickled(Canary(canary))
    config = json.loads(records["data/weights/model_weights_config.json"])
    config["config"]["shift"]["use_pickle"] = True
    records["data/weights/model_weights_config.json"] = json.dumps(config).encode()


def opaque_constant(records: dict[str, bytes], canary: Path) -> None:
    records["data/constants/opaque_obj_0"] = pickle.dumps(Canary(canary))
    entry = {"path_name": "opaque_obj_0", "is_param": False, "use_pickle": True, "tensor_meta": None}
    records["data/constants/model_constants_config.json"] = json.dumps({"config": {"c": entry}}).encode()


def operator_of_the_system(records: dict[str, bytes], canary: Path) -> None:
    program = json.loads(records["models/model.json"])
    node = program["graph_module"]["graph"]["nodes"][-1]
    node["target"] = "torch.os.system"
    node["inputs"] = [{"name": "", "arg": {"as_string": f"touch {canary}"}, "kind": 1}]
    records["models/model.json"] = json.dumps(program).encode()


def evaluated_size(records: dict[str, bytes], canary: Path) -> None:
    expression = f"__import__('os').system('touch {canary}')"
    edited(records, "models/model.json", "Symbol('", f"{expression} + Symbol('")


def program_of_another_ending(records: dict[str, bytes], canary: Path) -> None:
    evaluated_size(records, canary)
    records["models/model.jsox"] = records.pop("models/model.json")


def name_in_generated_code(records: dict[str, bytes], canary: Path) -> None:
    bad = f"x=open('{canary}','w')"
    edited(records, "models/model.json", '{"name": "x"}', json.dumps({"name": bad}))


def keyword_in_generated_code(records: dict[str, bytes], canary: Path) -> None:
    edited(records, "models/model.json", r"[\\\"y\\\"]", rf"[\\\"y=open('{canary}','w')\\\"]")
    edited(records, "models/model.json", '"forward_arg_names": ["x", "y"]', '"forward_arg_names": null')


def guard(records: dict[str, bytes], canary: Path) -> None:
    edited(records, "models/model.json", '"guards_code": []', f"\"guards_code\": [\"open('{canary}','w')\"]")


def imported_enumeration(records: dict[str, bytes], canary: Path) -> None:
    enumeration = json.dumps(json.dumps(json.dumps({"__enum__": True, "fqn": "this:x", "name": "y"})))[1:-1]
    edited(records, "models/model.json", r"\"context\": \"null\"", rf"\"context\": {enumeration}")


def compiled_library(records: dict[str, bytes], canary: Path) -> None:
    records["data/aotinductor/model/code.wrapper.so"] = b"\x7fELF"


ATTACKS = [
    example_inputs, pickled_weight, opaque_constant, operator_of_the_system, evaluated_size, program_of_another_ending,
    name_in_generated_code, keyword_in_generated_code, guard, imported_enumeration, compiled_library,
]  # fmt: skip


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_a_crafted_program_is_refused_and_nothing_runs(attack: Any, good: Path, tmp_path: Path) -> None:
    canary = tmp_path / "ran"
    path = rewritten(good, tmp_path / "bad.pt2", lambda records: attack(records, canary))
    with pytest.raises(ModelError) as refused:
        read_model(ModelFiles(model_file=str(path))).module(torch.ones(2, 4), y=torch.ones(1))
    assert not canary.exists()
    assert "bad.pt2" in str(refused.value)


def test_a_good_program_is_read_whole(good: Path, tmp_path: Path) -> None:
    model = read_model(ModelFiles(model_file=str(rewritten(good, tmp_path / "same.pt2", lambda records: None))))
    assert set(example_feeds(model)) == {"x", "y"}
    assert model.dynamic["x"][1] == 4
    assert not isinstance(model.dynamic["x"][0], int)
    assert set(model.module(torch.ones(2, 4), y=torch.ones(1))) == {"o", "n"}


def test_marks_of_a_crafted_program_runs_nothing(good: Path, tmp_path: Path) -> None:
    canary = tmp_path / "ran"
    rewritten(good, tmp_path / "bad.pt2", lambda records: example_inputs(records, canary))
    done = command("marks", "--model_file", "bad.pt2")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "bad.pt2" in done.stderr
    assert not canary.exists()


class Writes(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        torch.save(x, "ran")
        return x


def test_torchscript_that_writes_files_is_refused(tmp_path: Path) -> None:
    torch.jit.script(Writes()).save(str(tmp_path / "bad.pt"))
    with pytest.raises(ModelError, match="reads or writes files"):
        read_model(ModelFiles(model_file=str(tmp_path / "bad.pt")))
    assert not (tmp_path / "ran").exists()


def test_the_switch_is_put_back(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    data = pickled(Canary(tmp_path / "ran"))
    with load_data_only(), pytest.raises(pickle.UnpicklingError):
        torch.load(io.BytesIO(data), weights_only=False)
    assert not (tmp_path / "ran").exists()
    torch.load(io.BytesIO(data), weights_only=False)
    assert (tmp_path / "ran").exists()


@pytest.mark.parametrize("ending", [".jit", ".torchscript", ".pth", ".model", ""])
def test_torchscript_is_known_by_its_content(ending: str, tmp_path: Path) -> None:
    """Files go by many endings; those of weights alone stay what they are."""
    module = torch.jit.trace(torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh()), torch.ones(2, 4))
    module.save(str(tmp_path / f"traced{ending}"))
    feeds = {"input": np.ones((2, 4), np.float32)}
    report = precision_debug.compare(tmp_path / f"traced{ending}", run_mode="torch_fp32", inputs=feeds, explain="off")
    compared = [row for row in report.rows if row.comparison is not None]
    assert len(compared) > 1
    assert {row.status for row in compared} == {Status.PASS}
    torch.save(module.state_dict(), tmp_path / f"weights{ending}")
    with pytest.raises((UsageError, ModelError), match=r"no backend reads|holds weights"):
        precision_debug.compare(tmp_path / f"weights{ending}", run_mode="torch_fp32", inputs=feeds)


class Scaled(torch.nn.Module):
    def forward(self, x: torch.Tensor, rate: int, gain: float = 2.0) -> torch.Tensor:
        return x * (gain if rate == 16000 else 0.0)


def test_torchscript_is_fed_plain_numbers_too(tmp_path: Path) -> None:
    """A voice detector takes its sampling rate as an int: no input could be given for it."""
    torch.jit.script(Scaled()).save(str(tmp_path / "scaled.jit"))
    feeds = {"x": np.ones((2, 3), np.float32), "rate": np.array(16000)}
    report = precision_debug.compare(tmp_path / "scaled.jit", run_mode="torch_fp32", inputs=feeds, explain="off")
    output = next(row for row in report.rows if row.is_output)
    assert output.comparison is not None
    assert (output.status, output.comparison.base.max) == (Status.PASS, 2.0)


class Remembers(torch.nn.Module):
    """Keeps a state from one call for the next, as an attribute and in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.state = torch.zeros(3)
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.state = 0.5 * self.state + x
        self.count.add_(1.0)
        return self.state * self.count


def test_torchscript_begins_each_run_as_it_was_loaded(tmp_path: Path) -> None:
    """The second side went on from the first one's state: two equal runs of a voice detector were 62 % apart."""
    torch.jit.script(Remembers()).save(str(tmp_path / "state.jit"))
    feeds = {"x": np.ones(3, np.float32)}
    report = precision_debug.compare(tmp_path / "state.jit", run_mode="torch_fp32", inputs=feeds, explain="off")
    output = next(row for row in report.rows if row.is_output)
    assert output.comparison is not None
    assert output.comparison.identical
    assert output.comparison.base.max == 1.0
