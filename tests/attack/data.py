"""Files that are read: reports, journals, inspector files, marks, inputs, recordings, models, special files."""

from __future__ import annotations

import base64
import functools
import importlib.util
import io
import json
import os
import pickle
import random
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx_models import mlp
from report_factory import make_report

from precision_debug.feeds import make_feeds
from precision_debug.numbers.scores import load_labels
from precision_debug.recording import RecordingWriter, open_recording
from precision_debug.records import InputMeta, ModelFiles, RunSpec
from precision_debug.run import pipeline
from precision_debug.run.journal import Journal
from precision_debug.run.plan import make_plan

from .case import CANARY, ROOT, Lost, command, own_error, spoiled, spoiled_text
from .whole import whole_report

__all__ = ["inputs", "json_files", "models", "programs", "recordings", "special_files"]

_X = InputMeta(name="x", dtype="float32", shape=(2, 8))


class _Runs:
    """Unpickling it makes the canary."""

    def __reduce__(self) -> Any:
        return exec, (f"open({CANARY!r}, 'w').close()",)


_OUTPUTS = tuple(["--output", name] for name in ("o.html", "o.xlsx", "o.md", "o.csv", "o.json", "explorer:o.json",
                                                  "tensorboard:o.tfevents", "netron:o.onnx"))  # fmt: skip


@functools.cache
def _journal() -> str:
    """The journal of a real run."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        onnx.save(mlp(), folder / "m.onnx")
        spec = RunSpec(model=ModelFiles(model_file=str(folder / "m.onnx")), run_mode="ort_opt")
        with Journal(folder / "journal.jsonl") as journal:
            pipeline.execute(spec, journal, folder=folder)
        return (folder / "journal.jsonl").read_text(encoding="utf-8")


def json_files(random_: random.Random, folder: Path) -> None:
    """Reports, journals, inspector files, marks and rewritten reports: an error names the file, and is status 2."""
    kind = random_.choice(("report", "report", "journal", "journal", "inspector", "inspector", "marks"))
    if kind == "report":
        path, words = folder / "r.json", ["report", "r.json", *random_.choice(([], [], ["--plots"], *_OUTPUTS))]
        report = make_report(3) if random_.random() < 0.4 else whole_report(random_, lambda: f"n{random_.randrange(9)}")
        text = spoiled_text(random_, report.to_dict())
    elif kind == "journal":
        path, words = folder / "journal.jsonl", ["report", "journal.jsonl"]
        lines = _journal().splitlines()
        place = random_.randrange(len(lines))
        lines[place] = spoiled_text(random_, json.loads(lines[place]))
        text = "\n".join(lines) + "\n"
    elif kind == "inspector":
        path, words = folder / "i.json", ["inspect", "i.json", *random_.choice(([], ["--fused_outputs"]))]
        source = random_.choice(sorted((ROOT / "tests" / "data" / "inspector").glob("*.json")))
        text = spoiled_text(random_, json.loads(source.read_text(encoding="utf-8"), strict=False))
    else:
        path = folder / "marks.json"
        words = ["--model_file", "no.onnx", "--run_mode", "ort_opt", "--marks", "marks.json"]
        text = spoiled_text(random_, ["a", "b*", "re:c"])
    if random_.random() < 0.15:
        path.write_bytes(spoiled(random_, text.encode("utf-8", "surrogatepass")))
    else:
        path.write_text(text, encoding="utf-8", errors="surrogatepass")
    said = command(*words)
    if said.status == 3 and said.err:
        raise Lost(f"status 3 for a file: {said.err}")
    viewed = "netron:o.onnx" in words  # whose error may be the model's
    if said.status == 2 and kind != "marks" and not viewed and path.name not in said.err:
        raise Lost(f"the error does not name {path.name}: {said.err}")


def inputs(random_: random.Random, folder: Path) -> None:
    """.npz, .npy, Polygraphy's JSON and labels that are damaged or hold objects."""
    good = np.ones((2, 8), np.float32)
    kind = random_.choice(("npz", "npy", "json", "labels"))
    buffer = io.BytesIO()
    objects = random_.random() < 0.25
    if kind == "json":
        np.save(buffer, np.array([_Runs()]) if objects else good, allow_pickle=True)
        data = {"x": {"array": base64.b64encode(buffer.getvalue()).decode(), "type": "ndarray"}}
        (folder / "a.json").write_text(
            spoiled_text(random_, [data]) if not objects else json.dumps([data]), encoding="utf-8"
        )
    elif kind == "npz":
        names = random_.choice((["x"], ["x", "y"], ["arr_0"], ["../x"], ["__feeds__"], ["x", "__feeds__"]))
        values = {name: np.array([_Runs()]) if objects else good for name in names}
        if "__feeds__" in names and not objects:
            index = {"version": 1, "sets": [[["x", {"key": "x", "dtype": "float32"}]]]}
            values["__feeds__"] = np.array(spoiled_text(random_, index))
        random_.choice((np.savez, np.savez_compressed))(buffer, **values)
    else:
        np.save(buffer, np.array([_Runs()]) if objects else good, allow_pickle=True)
    if kind != "json":
        data_ = buffer.getvalue() if objects else spoiled(random_, buffer.getvalue())
        (folder / f"a.{'npz' if kind == 'npz' else 'npy'}").write_bytes(data_)
    if kind == "labels":
        own_error(lambda: load_labels("a.npy"))
    else:
        own_error(lambda: make_feeds([_X], source=f"a.{kind}"))


@functools.cache
def _recording() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="attack-")) / "run"
    feeds = {"x": np.ones((2, 8), np.float32)}
    with RecordingWriter(folder) as writer:
        for name in ("a", "b", "a"):
            writer("Add", name, np.full((2, 3), 0.5, np.float32))
        outputs = {"a": np.full((2, 3), 0.5, np.float32), "z": np.ones(2, np.float16)}
        writer.finish(mode="m", backend="b", feeds=feeds, outputs=outputs)
    return folder


def recordings(random_: random.Random, folder: Path) -> None:
    """A recorded run with something spoiled: refused, or replayed with the recorded values."""
    run = folder / "run"
    shutil.copytree(_recording(), run)
    files = [path for path in sorted(run.rglob("*")) if path.is_file()]
    way = random_.randrange(5)
    path = random_.choice(files)
    if way == 0:
        path.unlink()
    elif way == 1:
        path.write_bytes(spoiled(random_, path.read_bytes()))
    elif way == 2:
        path.write_bytes(pickle.dumps(_Runs()))
    else:
        manifest = run / "manifest.json"
        text = spoiled_text(random_, json.loads(manifest.read_text(encoding="utf-8")))
        manifest.write_text(text, encoding="utf-8", errors="surrogatepass")

    def replay() -> None:
        session = open_recording(run)
        seen: list[Any] = []
        answer = session.run(session.feeds, lambda _op, _name, tensor: seen.append(np.asarray(tensor)))
        if way < 3:
            values = [*seen, answer["a"]]
            if any(not np.array_equal(value, np.full((2, 3), 0.5)) for value in values):
                raise Lost("damaged values were replayed")

    own_error(replay)


@functools.cache
def _model() -> bytes:
    return mlp().SerializeToString()


def models(random_: random.Random, folder: Path) -> None:
    """.onnx files with spoiled bytes, and such that name weights elsewhere, read as every backend reads them."""
    from precision_debug.onnx.model import read_inputs, read_model

    if random_.random() < 0.2:
        proto = mlp()
        tensor = proto.graph.initializer[0]
        size = len(tensor.raw_data)
        tensor.ClearField("raw_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
        place = random_.choice(("/etc/passwd", "../secret", "/dev/zero", "pipe", "", ".", "\x1b[2J", "a\x00b"))
        os.mkfifo("pipe")
        for key, value in (("location", place), ("offset", random_.choice(("0", "-1", "x", "9" * 30))),
                           ("length", random_.choice((str(size), "-1", "x")))):  # fmt: skip
            tensor.external_data.add(key=key, value=value)
        data = proto.SerializeToString()
    else:
        data = spoiled(random_, _model())
    Path("m.onnx").write_bytes(data)
    own_error(lambda: read_inputs(read_model("m.onnx")))


def programs(random_: random.Random, folder: Path) -> None:
    """.pt2 archives that are crafted to run code, or damaged."""
    if importlib.util.find_spec("torch") is None:
        return
    import test_torch_archive as crafted
    import torch
    from precision_debug_torch.model import read_model

    good = _program()
    canary = folder / CANARY
    attack = random_.choice([*crafted.ATTACKS, None])
    if attack is None:
        Path("bad.pt2").write_bytes(spoiled(random_, good.read_bytes()))
    else:
        crafted.rewritten(good, Path("bad.pt2"), lambda records: attack(records, canary))

    def load() -> None:
        model = read_model(ModelFiles(model_file="bad.pt2"))
        if attack is not None:
            model.module(torch.ones(2, 4), y=torch.ones(1))
            raise Lost("it was read")

    own_error(load)


@functools.cache
def _program() -> Path:
    import test_torch_archive as crafted
    import torch

    path = Path(tempfile.mkdtemp(prefix="attack-")) / "good.pt2"
    sizes = {"x": {0: torch.export.Dim("batch", min=2, max=99)}, "y": None}
    made = torch.export.export(crafted.Net(), (torch.randn(3, 4),), {"y": torch.ones(1)}, dynamic_shapes=sizes)
    torch.export.save(made, path)
    return path


def special_files(random_: random.Random, folder: Path) -> None:
    """A pipe, a device, a folder or a link to itself where a file is asked for: no waiting."""
    suffix = random_.choice(
        (".onnx", ".npz", ".npy", ".json", ".py", ".pt2", ".pt", ".pdmodel", ".engine", ".pdiparams")
    )
    path = folder / f"p{suffix}"
    way = random_.randrange(5)
    if way == 0:
        os.mkfifo(path)
    elif way == 1:
        path.symlink_to(random_.choice(("/dev/zero", "/dev/full", "/dev/null")))
    elif way == 2:
        path.mkdir()
    elif way == 3:
        path.symlink_to(path.name)
    else:
        path.touch()
    if suffix in (".npz", ".npy", ".json", ".py") and random_.random() < 0.6:
        own_error(lambda: make_feeds([_X], source=str(path)))
        return
    name = f"{path}:make" if suffix == ".py" else str(path)
    files = ModelFiles(model_file="m.pdmodel", params_file=name) if suffix == ".pdiparams" else ModelFiles(
        model_file=name
    )  # fmt: skip
    mode = {".onnx": "ort_fp32", ".pdmodel": "cpu_fp32", ".json": "cpu_fp32", ".engine": "trt_fp16"}

    def plan() -> None:
        opening = make_plan(RunSpec(model=files, run_mode=mode.get(suffix, "torch_fp32")), check_machine=False).target
        if suffix in (".onnx", ".json"):
            opening.inputs()

    own_error(plan)
