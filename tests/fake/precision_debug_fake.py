"""A backend for tests of the core: a chain of layers in numpy, with every way to go wrong.

A model is a JSON file: {"layers": N, "width": W}. Layer i adds 1 to its input and is named t0, t1, ….
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from precision_debug.protocols import Capabilities, Feeds, Hook, Rung, Survey
from precision_debug.reasons import Catalogue
from precision_debug.records import Availability, InputMeta, RunMode, SessionSpec, TensorMeta
from precision_debug.settings import Setting, value

MODES = {
    "fake_fp32": "the baseline",
    "fake_off": "adds 0.5 from layer 3 on",
    "fake_fused": "shows only every second tensor, under another name",
    "fake_abort": "aborts its process in layer 5",
    "fake_kill": "is killed in layer 5",
    "fake_exit": "leaves with status 7 in layer 5",
    "fake_raise": "raises in layer 5",
    "fake_hang": "sleeps in layer 5",
    "fake_abort_open": "aborts while it is opened",
    "fake_kill_open": "is killed while it is opened, some times",
    "fake_hang_open": "sleeps while it is opened",
    "fake_absent": "cannot run here",
}


class FakeBackend:
    name = "fake"
    run_modes = tuple(
        RunMode(name=name, summary=summary, suffixes=(".fake",), baseline="fake_fp32", precision="float32")
        for name, summary in MODES.items()
    )

    settings = (
        Setting(name="pause", kind="whole", default=0, low=0, high=9, help="seconds between layers", zh="层间停顿秒数"),
        Setting(name="keep", kind="text", default="", sides=("target",), flag=True, help="a file", zh="文件"),
        Setting(name="offset", kind="names", default=(), modes=("fake_off",), help="names", zh="名字"),
    )

    reasons = Catalogue("fake", {})

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(ladder=self, surveyor=self)

    def availability(self, mode: str) -> Availability:
        return Availability(ok=False, needs="needs a unicorn") if mode == "fake_absent" else Availability(ok=True)

    def inputs(self, spec: SessionSpec) -> Sequence[InputMeta]:
        model = json.loads(Path(spec.model.model_file).read_text(encoding="utf-8"))
        shape = ("batch", "?", model["width"]) if model.get("free") else (model["width"],)
        return (InputMeta(name="x", dtype="float32", shape=shape),)

    def rungs(self, spec: SessionSpec) -> Sequence[Rung]:
        needs = self.availability(spec.mode).needs
        return (Rung(name="off", mode="fake_fp32"), Rung(name="on", mode=spec.mode, needs=needs))

    def switches(self, spec: SessionSpec, rung: Rung, op_types: Collection[str]) -> Sequence[Any]:
        return ()

    def survey(self, spec: SessionSpec, feeds: Feeds) -> Survey:
        self.open(spec, [feeds])
        return Survey(engine="fake 1", taken={"Fake": 1})

    def open(self, spec: SessionSpec, feeds: Sequence[Feeds]) -> FakeSession:
        if spec.mode == "fake_abort_open":
            print("terminate called: cannot open", file=sys.stderr, flush=True)
            os.abort()
        if spec.mode == "fake_kill_open":  # as often as the model says, counted in a file
            model = json.loads(Path(spec.model.model_file).read_text(encoding="utf-8"))
            with Path(model["counter"]).open("a", encoding="utf-8") as counter:
                counter.write(".")
            if Path(model["counter"]).stat().st_size <= model["deaths"]:
                os.kill(os.getpid(), signal.SIGKILL)
        if spec.mode == "fake_hang_open":
            (Path(spec.work_dir) / "begun").touch()
            time.sleep(60)
        return FakeSession(spec, json.loads(Path(spec.model.model_file).read_text()))


class FakeSession:
    versions: Mapping[str, str] = {"fake": "1"}
    doubts = layers = ()
    alone = arithmetic = ""
    replacer = None

    def __init__(self, spec: SessionSpec, model: dict[str, int]) -> None:
        self.mode, self.depth, self.pause = spec.mode, model["layers"], model.get("pause", 0)
        told = {key: self.setting(spec, key) for key in ("pause", "keep", "offset")}
        self.notes = ("a fake", *(f"{key}={told[key]!r}" for key in told if told[key]))
        self.extra = sorted(set(spec.options) - {"side", "seed"} - set(told))
        fused = spec.mode == "fake_fused"
        self.tensors = [
            TensorMeta(
                name=f"f{i}" if fused else f"t{i}",
                op_type="Add",
                node=f"layer{i}",
                inputs=(f"t{i - 1}",) if i and not fused else (),
                origin=f"t{i}" if fused else "",
                is_output=i == self.depth - 1,
            )
            for i in range(self.depth)
            if not fused or i % 2 == 1
        ]

    @staticmethod
    def setting(spec: SessionSpec, name: str) -> Any:
        return value(FakeBackend.settings, spec.options, name)

    def run(self, feeds: Feeds, hook: Hook | None = None, names: Collection[str] | None = None) -> Mapping[str, Any]:
        value = np.asarray(feeds["x"]).copy()
        by_layer = {meta.node: meta for meta in self.tensors}
        for layer in range(self.depth):
            value += np.float32(1)
            time.sleep(self.pause)
            if self.mode == "fake_off" and layer == 3:
                value += np.float32(0.5)
            if layer == 5:
                self._go_wrong()
            meta = by_layer.get(f"layer{layer}")
            if hook is not None and meta is not None and (names is None or meta.name in names):
                hook(meta.op_type, meta.name, value)
        return {f"t{self.depth - 1}": value}

    def _go_wrong(self) -> None:
        if self.mode == "fake_abort":
            print("terminate called: out of unicorns", file=sys.stderr, flush=True)
            os.abort()
        if self.mode == "fake_kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.mode == "fake_exit":
            os._exit(7)
        if self.mode == "fake_raise":
            raise ValueError("layer 5 has\nno unicorn")
        if self.mode == "fake_hang":
            time.sleep(60)

    def close(self) -> None:
        pass
