"""Follow a program of the user's own: its predictor, or its training loop."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from .. import registry
from ..errors import OutputError, UsageError
from ..numbers.arrays import as_array
from ..protocols import Feeds, Hook, Session, Watching
from ..reasons import Reason, as_reason
from ..records import Side, TensorMeta

__all__ = ["Shown", "Watched", "training", "watch"]


# A predictor's inputs and outputs by handles, as Paddle's own predictor gives them out.

Array = np.ndarray[Any, Any]


class InputHandle:
    """Holds an input until ``run()``."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._shape: tuple[int, ...] | None = None
        self._array: Array | None = None

    def name(self) -> str:
        return self._name

    def reshape(self, shape: Sequence[int]) -> None:
        """Set the shape of what is copied next."""
        self._shape = tuple(int(size) for size in shape)

    def copy_from_cpu(self, data: Any) -> None:
        """Take a copy of an array, or of a tensor. Raises UsageError where it has not the shape that was set."""
        array = np.array(as_array(data, name=self._name), order="C")
        if self._shape is not None and array.size != int(np.prod(self._shape)):
            raise UsageError(
                f"input {self._name} has the shape {list(array.shape)}, and {list(self._shape)} was set", where="watch",
                hint="reshape() to the array's own shape",
            )  # fmt: skip
        self._array = array if self._shape is None else array.reshape(self._shape)

    share_external_data = copy_from_cpu

    def shape(self) -> list[int]:
        return list(self._array.shape if self._array is not None else self._shape or ())

    def type(self) -> np.dtype[Any] | None:
        return None if self._array is None else self._array.dtype

    @property
    def value(self) -> Array:
        """Raises UsageError where nothing was given."""
        if self._array is None:
            what = f"input {self._name} has no value"
            raise UsageError(what, where="watch", hint="copy_from_cpu() it, or run(feeds)")
        return self._array


class OutputHandle:
    """What the last run gave; source: its outputs by name, {} before one."""

    def __init__(self, name: str, source: dict[str, Any]) -> None:
        self._name, self._source = name, source

    def name(self) -> str:
        return self._name

    def copy_to_cpu(self) -> Array:
        """Return a copy. Raises UsageError before the first run."""
        if self._name not in self._source:
            raise UsageError(f"output {self._name} has no value yet", where="watch", hint="run() first")
        return np.array(self._source[self._name])

    def shape(self) -> list[int]:
        return list(self.copy_to_cpu().shape)

    def type(self) -> np.dtype[Any]:
        found: np.dtype[Any] = self.copy_to_cpu().dtype
        return found


class Shown(np.ndarray[Any, Any]):
    """A tensor as a hook of Paddle's gets one: an array that has ``numpy()`` too."""

    def numpy(self) -> Array:
        return np.asarray(self)


# ``watch``: somebody's own predictor, shown to the hooks as the command line shows a run mode.
#
# A framework's raw hook shows what the engine holds: blocked layouts, a convolution under its old name after a batch
# norm was folded into it. A watched predictor runs as its configuration says, and shows its tensors under the model's
# names in the model's layout.

class Watched:
    """A session that runs as somebody's configuration says. Close it, or use it in a ``with`` statement.

    It has what a ``paddle.inference.Predictor`` has, so that a script goes on as it is: input and output handles,
    ``register_output_hook``, ``run()``, ``clone()``. ``run(feeds, hook)`` does all of it in one call.
    """

    def __init__(
        self, watching: Watching, backend: str, folder: tempfile.TemporaryDirectory[str], again: Callable[[], Watched]
    ) -> None:
        self._session, self._backend, self._folder, self._again = watching.session, backend, folder, again
        self._inputs = {name: InputHandle(name) for name in watching.inputs}
        self._keys = dict(watching.outputs)
        self._outputs: dict[str, Any] = {}
        self._hooks: list[Hook] = []

    @property
    def session(self) -> Session:
        """What runs it."""
        return self._session

    @property
    def tensors(self) -> Sequence[TensorMeta]:
        """Every tensor that the program has; complete after the first run."""
        return self._session.tensors

    @property
    def notes(self) -> Sequence[Reason]:
        """What a reader of the results must know."""
        return self._session.notes

    def get_input_names(self) -> list[str]:
        """Return the inputs in the predictor's order."""
        return list(self._inputs)

    def get_output_names(self) -> list[str]:
        """Return the outputs in the predictor's order."""
        return list(self._keys)

    def get_input_handle(self, name: str) -> InputHandle:
        """Return the handle that takes an input's value for ``run()``. Raises UsageError."""
        _check_known(self._inputs, name, "input")
        return self._inputs[name]

    def get_output_handle(self, name: str) -> OutputHandle:
        """Return the handle that has an output of the last run. Raises UsageError."""
        _check_known(self._keys, name, "output")
        return OutputHandle(name, self._outputs)

    def register_output_hook(self, hook: Hook) -> None:
        """Register a hook for every run from now on, beside the one that ``run`` is given."""
        self._hooks.append(hook)

    def clone(self, stream: Any = None) -> Watched:  # noqa: ARG002
        """Another one of the same configuration, without this one's inputs, outputs and hooks."""
        return self._again()

    def clear_intermediate_tensor(self) -> None:
        """Do nothing, for scripts that call it: nothing is kept between two runs."""

    def try_shrink_memory(self) -> int:
        """Do nothing, for scripts that call it."""
        return 0

    def run(
        self, feeds: Feeds | Sequence[Any] | None = None, hook: Hook | None = None,
        names: Collection[str] | None = None,
    ) -> Any:  # fmt: skip
        """Run once, and show the tensors (``names``: only these) to the hooks.

        feeds: arrays by input name; then the outputs are returned by the session's names. A list, in the order of
        ``get_input_names``: they are returned as a list. None: the inputs' handles have them, and the outputs' do.

        The first run finds out what can be shown without changing the program, so it takes longer. SaveBaseline and
        AssertClose also learn which tensors there are, so that their report has the reasons of those not shown.
        Raises PrecisionDebugError.
        """
        if feeds is None:
            values: Feeds = {name: handle.value for name, handle in self._inputs.items()}
        elif isinstance(feeds, Mapping):
            values = feeds
        else:
            if len(feeds) != len(self._inputs):
                raise UsageError(f"{len(feeds)} inputs for {len(self._inputs)}", where="watch",
                                 hint=f"in this order: {' '.join(self._inputs)}")  # fmt: skip
            values = {name: as_array(value, name=name) for name, value in zip(self._inputs, feeds, strict=True)}
        hooks = [*self._hooks, *([hook] if hook is not None else [])]

        def show(op_type: str, name: str, array: Any, /) -> None:
            for one in hooks:
                own = one in self._hooks and not hasattr(one, "announce")
                one(op_type, name, array.view(Shown) if own else array)

        single = hook if len(hooks) == 1 and hook is not None else None
        outputs = self._session.run(values, single or (show if hooks else None), names)
        self._outputs.clear()
        self._outputs.update((name, outputs[key]) for name, key in self._keys.items() if key in outputs)
        for one in hooks:
            announce = getattr(one, "announce", None)
            if announce is not None:
                announce(self._session.tensors, self._side())
        if feeds is None:
            return True
        return outputs if isinstance(feeds, Mapping) else [self._outputs[name] for name in self._keys]

    def _side(self) -> Side:
        return Side(
            mode="watched", backend=self._backend, model="", versions=dict(self._session.versions),
            notes=tuple(map(as_reason, self._session.notes)), tensors=len(self._session.tensors),
        )  # fmt: skip

    def close(self) -> None:
        """Free the predictor. Calling it twice is harmless."""
        self._session.close()
        self._folder.cleanup()

    def __enter__(self) -> Watched:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def watch(config: Any) -> Watched:
    """Make the predictor of ``create_predictor(config)``, with tensors that hooks can compare.

    config: a ``paddle.inference.Config``, of which a copy is used: every setting is the caller's own. Raises UsageError
    where no backend knows it, or where it cannot be watched.
    """
    folder = tempfile.TemporaryDirectory(prefix="precision_debug-")
    try:
        for backend in registry.backends():
            watcher = backend.capabilities.watcher
            watching = watcher.watch(config, folder.name) if watcher is not None else None
            if watching is not None:
                return Watched(watching, backend.name, folder, partial(watch, watching.config))
    except BaseException:
        folder.cleanup()
        raise
    folder.cleanup()
    raise UsageError(
        f"a {type(config).__name__} cannot be watched", where="watch", hint="give the paddle.inference.Config"
    )


def _check_known(found: Collection[str], name: str, kind: str) -> None:
    if name not in found:
        raise UsageError(f"no {kind} '{name}'", where="watch", hint=f"it has {' '.join(found)}")


# ``training``: follows a training loop that is the user's own, and keeps numbers of its gradients, and whole steps.

def training(
    model: Any, optimizer: Any, *, record: str | os.PathLike[str], every: int = 100, steps: Collection[int] = (),
    scaler: Any = None,
) -> AbstractContextManager[Any]:  # fmt: skip
    """Follow a training loop inside a ``with`` statement.

    model, optimizer, scaler: those of the loop (torch's, or Paddle's dynamic graph's, of which the statistics are kept
    and neither steps nor ranks); nothing of them is changed, and hooks are taken away in the end. record: a folder,
    which gets ``statistics.jsonl``: norm, zeros, and update of each parameter at every ``every``th optimiser step, from
    0. steps: of these steps all that starts one is kept too (parameters, buffers, the optimiser's state, the batch,
    random states), as ``step_<number>.pt``, so that ``--option from_step=FILE`` runs it again.
    Where torch.distributed runs, call it on every rank with the same folder (DDP, FSDP2, or a reduction of your own): a
    rank writes ``statistics_rank<rank>.jsonl``, with each gradient before and after the reduction, and
    ``step_<number>_rank<rank>.pt``; ``--option from_step=FOLDER/step_<number>`` runs it again on every rank.
    Raises UsageError where the objects are of no framework that can, and OutputError.
    """
    if isinstance(every, bool) or not isinstance(every, int) or every < 1:
        what = f"every={every!r} is not a number of steps"
        raise UsageError(what, where="training()", hint="give a whole number from 1 up")
    folder = Path(record)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot be made: {error.strerror}", where=str(folder)) from error
    for backend in registry.backends():
        follower = backend.capabilities.follower
        found = follower.follow(model, optimizer, scaler, str(folder), every, steps) if follower is not None else None
        if found is not None:
            return found
    kinds = f"{type(model).__name__} and {type(optimizer).__name__}"
    hint = "give a module of torch or paddle and its optimiser"
    raise UsageError(f"no backend follows {kinds}", where="training()", hint=hint)
