"""The suite that every backend passes, third-party ones included.

In a test module of your own::

    from precision_debug.testing.backend_contract import *  # the tests
    from precision_debug.testing.backend_contract import Subject

    @pytest.fixture
    def subject(tmp_path):
        return Subject(backend=..., mode=..., model=..., feeds=..., work_dir=str(tmp_path), import_name="my_plugin")

Parametrise the fixture over modes and models. A mode that cannot run on the machine is skipped with what it needs.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from ..errors import BackendError, BackendUnavailable, InputError, ModelError
from ..inspector import EngineLayer
from ..numbers.number_types import PRECISIONS
from ..protocols import Backend, Capabilities, Session
from ..records import Doubt, ModelFiles, SessionSpec
from ..settings import SIDES, Setting

__all__ = [
    "CopyingHook",
    "Subject",
    "are_nearly_same",
    "have_same_bits",
    "test_a_mode_that_cannot_run_says_what_it_needs",
    "test_a_model_that_cannot_be_read_is_refused",
    "test_a_second_run_shows_the_same",
    "test_a_session_has_what_the_protocol_asks_for",
    "test_an_input_that_is_listed_is_an_input",
    "test_an_output_is_shown_as_it_is_returned",
    "test_availability_never_raises",
    "test_closing_twice_is_harmless_and_a_closed_session_says_so",
    "test_constructing_it_imports_no_framework",
    "test_each_baseline_tensor_is_claimed_once_at_most",
    "test_feeds_that_do_not_fit_are_refused",
    "test_inputs_are_those_that_are_fed",
    "test_its_settings_are_declared",
    "test_notes_and_versions_are_text",
    "test_only_the_named_tensors_are_shown",
    "test_outputs_of_baseline_and_target_are_called_the_same",
    "test_tensors_are_listed_before_the_run",
    "test_the_backend_is_one_and_its_modes_are_told_apart",
    "test_the_hook_does_not_change_the_outputs",
    "test_the_hook_sees_every_tensor_once_in_order_and_the_rest_say_why_not",
    "test_two_sessions_in_two_threads_that_wait_for_each_other",
    "test_what_a_hook_raises_reaches_the_caller_as_itself",
]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A backend in one mode with a model and inputs that fit. import_name: the package that a subprocess imports.

    agree: two sessions compute the same bits; where each builds an engine of its own, nearly the same numbers.
    light: packages, beside numpy and the standard library, that importing the plugin may load; never its framework.
    """

    backend: Backend
    mode: str
    model: ModelFiles
    feeds: Sequence[Mapping[str, Any]]
    work_dir: str
    import_name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    agree: bool = True
    light: Sequence[str] = ()

    def spec(self, mode: str = "", model: ModelFiles | None = None) -> SessionSpec:
        return SessionSpec(
            model=model or self.model, mode=mode or self.mode, options=self.options, work_dir=self.work_dir
        )

    def open(self, mode: str = "") -> Session:
        found = self.backend.availability(mode or self.mode)
        if not found.ok:
            pytest.skip(f"{mode or self.mode}: {found.needs}")
        return self.backend.open(self.spec(mode), self.feeds)

    @property
    def run_mode(self) -> Any:
        return next(mode for mode in self.backend.run_modes if mode.name == self.mode)


def list_members(protocol: type) -> list[str]:
    """Return what a protocol asks for, by name."""
    return [name for name in vars(protocol) if not name.startswith("_")]


class CopyingHook:
    """A hook that keeps a copy of everything."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self.arrays: dict[str, Array] = {}

    def __call__(self, op_type: str, name: str, tensor: Any, /) -> None:
        assert name not in self.arrays, f"{name} was shown twice"
        self.calls.append((op_type, name))
        self.arrays[name] = np.array(tensor)

    @property
    def names(self) -> list[str]:
        return [name for _, name in self.calls]


def are_nearly_same(first: Any, second: Any) -> bool:
    """Return whether the difference of two arrays is within 5 % of the first, as L2 norms; enough for two INT8
    engines."""
    if first.shape != second.shape or first.dtype != second.dtype:
        return False
    one, other = np.asarray(first, np.float64), np.asarray(second, np.float64)
    return bool(np.linalg.norm(other - one) <= 0.05 * np.linalg.norm(one))


def have_same_bits(first: Any, second: Any) -> bool:
    """Return whether two values have equal type, shape and bits; lists element by element, strings by value."""
    if first is None or second is None:
        return first is second
    if isinstance(first, list):
        return isinstance(second, list) and len(first) == len(second) and all(map(have_same_bits, first, second))
    if isinstance(first, dict):
        return bool(first == second)
    one, two = np.asarray(first), np.asarray(second)
    if one.dtype != two.dtype or one.shape != two.shape:
        return False
    return one.tolist() == two.tolist() if one.dtype.kind in "OUS" else one.tobytes() == two.tobytes()


def test_its_settings_are_declared(subject: Subject) -> None:
    """The table is what --help, doctor and the check of a command are made from."""
    table = subject.backend.settings
    names = [one.name for one in table]
    modes = [mode.name for mode in subject.backend.run_modes]
    assert len(set(names)) == len(names)
    for one in table:
        assert isinstance(one, Setting)
        assert one.name.isidentifier()
        assert one.help
        assert any(one.matters(side, mode) for side in SIDES for mode in modes), f"{one.name} matters nowhere"
        if one.default is not None and one.default not in ("", (), {}):
            assert one.read(one.default) == one.default
    assert set(subject.options) <= set(names)


def test_the_backend_is_one_and_its_modes_are_told_apart(subject: Subject) -> None:
    """The backend has every member of its protocol, and its modes have names of their own and known precisions."""
    backend = subject.backend
    missing = [name for name in list_members(Backend) if not hasattr(backend, name)]
    assert missing == [], "protocols.Backend asks for these"
    assert isinstance(backend.capabilities, Capabilities)
    names = [mode.name for mode in backend.run_modes]
    assert backend.name
    assert len(set(names)) == len(names)
    assert subject.mode in names
    for mode in backend.run_modes:
        assert mode.baseline in names
        assert mode.summary
        assert mode.precision in PRECISIONS, f"{mode.name} says no precision: one of {', '.join(PRECISIONS)}"
        assert all(suffix == "" or (suffix.startswith(".") and suffix == suffix.lower()) for suffix in mode.suffixes)


def test_constructing_it_imports_no_framework(subject: Subject) -> None:
    """Whatever the framework is called: of other packages, none is loaded but those that the subject says are light."""
    code = (
        "import sys, numpy, ml_dtypes, precision_debug.protocols, precision_debug.inspector, precision_debug.settings\n"
        "before = set(sys.modules)\n"
        f"import {subject.import_name} as m\n"
        f"b = getattr(m, {type(subject.backend).__name__!r})()\n"
        "[(mode.name, mode.suffixes) for mode in b.run_modes], b.name, b.settings, b.capabilities\n"
        "loaded = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        f"own = {{'precision_debug', 'numpy', 'ml_dtypes', {subject.import_name.partition('.')[0]!r}}}\n"
        f"print(*sorted(loaded - own - set({list(subject.light)!r}) - set(sys.stdlib_module_names)))"
    )
    assert _run_and_read(code).split() == [], "importing and constructing it loads these"


@functools.cache
def _run_and_read(code: str) -> str:
    """Return what a fresh interpreter prints; the same for all modes and models of a backend, so it is started once."""
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
    )  # fmt: skip
    return done.stdout


def test_availability_never_raises(subject: Subject) -> None:
    """A mode is available or says what it needs; one that does not exist is not available."""
    for name in [mode.name for mode in subject.backend.run_modes] + ["no_such_mode"]:
        found = subject.backend.availability(name)
        assert found.ok == (found.needs == "")
    assert not subject.backend.availability("no_such_mode").ok


def test_a_mode_that_cannot_run_says_what_it_needs(subject: Subject) -> None:
    """To open a mode that cannot run here raises BackendUnavailable, which tells what is missing."""
    for mode in subject.backend.run_modes:
        found = subject.backend.availability(mode.name)
        if not found.ok:
            with pytest.raises(BackendUnavailable) as caught:
                subject.backend.open(subject.spec(mode.name), subject.feeds)
            assert found.needs in str(caught.value)


def test_inputs_are_those_that_are_fed(subject: Subject) -> None:
    """The inputs that are listed have the names, types and shapes of what is fed."""
    metas = {meta.name: meta for meta in subject.backend.inputs(subject.spec())}
    for name, array in subject.feeds[0].items():
        meta = metas[name]
        kind = np.asarray(array).dtype
        assert meta.dtype == ("str" if kind.kind in "OUS" else kind.name)
        if meta.shape is not None:
            assert len(meta.shape) == np.ndim(array)
            fixed = zip(meta.shape, np.shape(array), strict=True)
            assert all(mine == fed for mine, fed in fixed if isinstance(mine, int))
    assert all(meta.optional or meta.name in subject.feeds[0] for meta in metas.values())


def test_a_session_has_what_the_protocol_asks_for(subject: Subject) -> None:
    """A session that ran has every member of its protocol; its doubts, layers and columns are of the right type."""
    session = subject.open()
    session.run(subject.feeds[0])
    missing = [name for name in list_members(Session) if not hasattr(session, name)]
    assert missing == [], "protocols.Session asks for these"
    assert all(isinstance(doubt, Doubt) for doubt in session.doubts)
    assert all(isinstance(layer, EngineLayer) for layer in session.layers)
    assert isinstance(session.alone, str)
    for meta in session.tensors:
        assert all(isinstance(text, str) for pair in meta.extra.items() for text in pair), "columns hold text"
    session.close()


def test_an_input_that_is_listed_is_an_input(subject: Subject) -> None:
    """Inputs are tensors too: as "Input", what rounding does to them is seen, and no operator is blamed for it."""
    session = subject.open()
    for meta in session.tensors:
        if meta.name in subject.feeds[0]:
            assert meta.op_type == "Input"
            assert meta.inputs == ()
    session.close()


def test_tensors_are_listed_before_the_run(subject: Subject) -> None:
    """Tensors are listed before a run, under names of their own, with operator types and inputs that are listed too."""
    session = subject.open()
    names = [meta.name for meta in session.tensors]
    assert names
    assert len(set(names)) == len(names)
    for meta in session.tensors:
        assert meta.op_type
        assert all(name in names for name in meta.inputs), f"{meta.name} reads {meta.inputs}"
    session.close()


def test_the_hook_sees_every_tensor_once_in_order_and_the_rest_say_why_not(subject: Subject) -> None:
    """The hook is shown each listed tensor once, in order; the others say why they are not seen."""
    session, hook = subject.open(), CopyingHook()
    outputs = session.run(subject.feeds[0], hook)
    seen = [meta.name for meta in session.tensors if not meta.unseen]
    assert sorted(hook.names) == sorted(seen)
    at_end = [name for name in hook.names if np.asarray(hook.arrays[name]).dtype.kind in "OUS"]
    at_end += [meta.name for meta in session.tensors if meta.dtype in {"sequence", "map"}]
    assert [name for name in hook.names if name not in at_end] == [name for name in seen if name not in at_end]
    by_name = {meta.name: meta for meta in session.tensors}
    for op_type, name in hook.calls:
        assert by_name[name].op_type == op_type
        shape = by_name[name].shape
        if shape is not None and by_name[name].view == "":
            assert len(shape) == hook.arrays[name].ndim
            pairs = zip(shape, hook.arrays[name].shape, strict=True)
            assert all(listed == real for listed, real in pairs if isinstance(listed, int)), name
    assert {meta.name for meta in session.tensors if meta.is_output} >= set(outputs)
    session.close()


def test_an_output_is_shown_as_it_is_returned(subject: Subject) -> None:
    """An output that the hook is shown has the bits of the one that the run returns."""
    session, hook = subject.open(), CopyingHook()
    outputs = session.run(subject.feeds[0], hook)
    for meta in session.tensors:
        if meta.is_output and not meta.unseen and meta.view == "":
            assert have_same_bits(hook.arrays[meta.name], outputs[meta.name]), meta.name
    session.close()


def test_the_hook_does_not_change_the_outputs(subject: Subject) -> None:
    """A run with a hook returns the same bits as one without."""
    session = subject.open()
    bare = session.run(subject.feeds[0])
    hooked = session.run(subject.feeds[0], CopyingHook())
    assert list(bare) == list(hooked)
    assert all(have_same_bits(bare[name], hooked[name]) for name in bare)
    session.close()


def test_a_second_run_shows_the_same(subject: Subject) -> None:
    """Two runs of one session show the hook the same tensors with the same bits."""
    session, first, second = subject.open(), CopyingHook(), CopyingHook()
    session.run(subject.feeds[0], first)
    listed = [meta.name for meta in session.tensors]
    session.run(subject.feeds[0], second)
    assert first.calls == second.calls
    assert all(have_same_bits(first.arrays[name], second.arrays[name]) for name in first.arrays)
    assert [meta.name for meta in session.tensors] == listed
    session.close()


def test_only_the_named_tensors_are_shown(subject: Subject) -> None:
    """A run that names tensors shows the hook these alone, with the same bits; naming none shows none."""
    session, everything = subject.open(), CopyingHook()
    session.run(subject.feeds[0], everything)
    chosen = set(everything.names[::2])
    some = CopyingHook()
    outputs = session.run(subject.feeds[0], some, chosen)
    assert some.names == [name for name in everything.names if name in chosen]
    assert all(have_same_bits(some.arrays[name], everything.arrays[name]) for name in chosen)
    none = CopyingHook()
    assert list(session.run(subject.feeds[0], none, ())) == list(outputs)
    assert none.calls == []
    session.close()


class _Stop(Exception):
    pass


def test_what_a_hook_raises_reaches_the_caller_as_itself(subject: Subject) -> None:
    """An exception that a hook raises reaches the caller as the same object."""
    session, everything = subject.open(), CopyingHook()
    session.run(subject.feeds[0], everything)
    last = min(2, len(everything.calls))
    assert last, "the hook was never called"
    calls: list[str] = []
    error = _Stop("enough")

    def hook(_op_type: str, name: str, _tensor: Any, /) -> None:
        calls.append(name)
        if len(calls) == last:
            raise error

    with pytest.raises(_Stop) as caught:
        session.run(subject.feeds[0], hook)
    assert caught.value is error
    assert len(calls) == last, "the hook was called after it had raised"
    again = CopyingHook()
    session.run(subject.feeds[0], again)
    assert again.calls == everything.calls
    session.close()


def test_closing_twice_is_harmless_and_a_closed_session_says_so(subject: Subject) -> None:
    """A session can be closed twice; to run it then raises BackendError."""
    session = subject.open()
    session.close()
    session.close()
    with pytest.raises(BackendError):
        session.run(subject.feeds[0])


def test_feeds_that_do_not_fit_are_refused(subject: Subject) -> None:
    """An unknown input, or a missing one, raises InputError with its name."""
    session = subject.open()
    with pytest.raises(InputError) as caught:
        session.run({**subject.feeds[0], "no such input": np.zeros(1, np.float32)})
    assert "no such input" in str(caught.value)
    required = [meta.name for meta in subject.backend.inputs(subject.spec()) if not meta.optional]
    if required:
        with pytest.raises(InputError) as caught:
            session.run({name: array for name, array in subject.feeds[0].items() if name != required[0]})
        assert required[0] in str(caught.value)
    session.close()


def test_a_model_that_cannot_be_read_is_refused(subject: Subject, tmp_path: Any) -> None:
    """A missing or garbled file raises a ModelError of one line with the file's path, or BackendUnavailable."""
    suffix = subject.run_mode.suffixes[0] or ".bin"
    missing = ModelFiles(model_file=str(tmp_path / f"missing{suffix}"))
    garbage = ModelFiles(model_file=str(tmp_path / f"garbage{suffix}"))
    (tmp_path / f"garbage{suffix}").write_bytes(b"\x00\xffthis is not a model" * 10)
    for model in (missing, garbage):
        spec = subject.spec(model=model)
        for ask in (lambda spec=spec: subject.backend.inputs(spec), lambda spec=spec: subject.backend.open(spec, [])):
            with pytest.raises((ModelError, BackendUnavailable)) as caught:
                ask()
            assert "\n" not in str(caught.value)
            if isinstance(caught.value, ModelError):
                assert model.path in str(caught.value)


def test_each_baseline_tensor_is_claimed_once_at_most(subject: Subject) -> None:
    """Each origin that a target tensor claims is a baseline tensor, and no other tensor claims it."""
    baseline, target = subject.open(subject.run_mode.baseline), subject.open()
    known = {name for meta in baseline.tensors for name in (meta.name, meta.origin)}
    origins = [meta.origin for meta in target.tensors if meta.origin and not meta.unseen]
    assert all(origin in known for origin in origins), [origin for origin in origins if origin not in known]
    assert len(set(origins)) == len(origins)
    baseline.close()
    target.close()


def test_outputs_of_baseline_and_target_are_called_the_same(subject: Subject) -> None:
    """Baseline and target return outputs of the same names in the same order."""
    baseline, target = subject.open(subject.run_mode.baseline), subject.open()
    assert list(baseline.run(subject.feeds[0])) == list(target.run(subject.feeds[0]))
    baseline.close()
    target.close()


def test_notes_and_versions_are_text(subject: Subject) -> None:
    """Versions and notes of a session are lines of text; a simulation says in a note that it is one."""
    session = subject.open()
    session.run(subject.feeds[0])
    assert session.versions
    assert all(isinstance(text, str) and text for pair in session.versions.items() for text in pair)
    assert all(isinstance(note, str) and note and "\n" not in note for note in session.notes)
    if subject.run_mode.simulation:
        assert any("simulat" in note for note in session.notes)
    session.close()


def test_two_sessions_in_two_threads_that_wait_for_each_other(subject: Subject) -> None:
    """Lockstep: each hook blocks until the other side has come as far."""
    sessions = [subject.open(), subject.open()]
    barrier = threading.Barrier(2, timeout=200)
    recorders = [CopyingHook(), CopyingHook()]
    errors: list[BaseException] = []

    def work(side: int) -> None:
        def hook(op_type: str, name: str, tensor: Any, /) -> None:
            barrier.wait()
            recorders[side](op_type, name, tensor)

        try:
            sessions[side].run(subject.feeds[0], hook)
        except BaseException as error:
            errors.append(error)
            barrier.abort()

    threads = [threading.Thread(target=work, args=(side,)) for side in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert recorders[0].calls == recorders[1].calls
    for name, array in recorders[0].arrays.items():
        other = recorders[1].arrays[name]
        assert have_same_bits(array, other) if subject.agree else are_nearly_same(array, other), name
    for session in sessions:
        session.close()
