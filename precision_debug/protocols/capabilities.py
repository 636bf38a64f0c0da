"""Protocols of a plugin: its sessions, and each capability by its name."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from ..errors import BackendUnavailable
from ..reasons import Catalogue, Reason, say
from ..reasons.ways import Way
from ..records import Availability, InputMeta, RunMode, SessionSpec
from ..settings import Setting
from .session import Session
from .tensors import Feeds

if TYPE_CHECKING:
    from ..records import TensorMeta
    from .configuring import Configurer
    from .description import Describer, Surveyor
    from .keeping import Agreeing, Keeper, Remedies
    from .session import PrecisionReader, ProgressReader
    from .tensors import BaselineStore, Comparer, Hook

__all__ = [
    "AloneFiles", "AloneScripter", "Backend", "BareRunner", "BaselineChooser", "Capabilities", "Describer",
    "Exporter", "Follower", "HoldsNarrower", "Ladder", "Layer", "LayerKeeper", "Matches", "Namesake", "OnDevice",
    "OnDeviceAlone", "Operator", "OperatorRunner", "Operators", "Pairer", "PrecisionReader", "Roads", "Rung",
    "Switch", "Watcher", "WeightKeeper", "demand",
]  # fmt: skip


# What a backend can do beyond opening sessions: each capability by its name, declared in one place.

@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """Who does each thing; None: the backend does not. A backend usually names itself.

    A new capability is a protocol and a field here, and what asks for it by that name.
    """

    exporter: Exporter | None = None
    weight_keeper: WeightKeeper | None = None
    layer_keeper: LayerKeeper | None = None
    operator_runner: OperatorRunner | None = None
    pairer: Pairer | None = None
    on_device: OnDevice | None = None
    on_device_alone: OnDeviceAlone | None = None
    watcher: Watcher | None = None
    follower: Follower | None = None
    keeper: Keeper | None = None
    ladder: Ladder | None = None
    roads: Roads | None = None
    describer: Describer | None = None
    surveyor: Surveyor | None = None
    teller: ProgressReader | None = None
    alone_scripter: AloneScripter | None = None
    precision_reader: PrecisionReader | None = None
    bare_runner: BareRunner | None = None
    cautious: Cautious | None = None
    agreeing: Agreeing | None = None
    remedies: Remedies | None = None
    namesake: Namesake | None = None
    baseline_chooser: BaselineChooser | None = None
    configurer: Configurer | None = None
    holds_narrower: HoldsNarrower | None = None


@dataclass(frozen=True, kw_only=True)
class AloneFiles:
    """Names of files beside one another. model: .onnx; feeds: its inputs, expected: ``output``, each an .npz.

    passes: those that the engine must leave out for the fault to go, where that is known.
    """

    model: str
    feeds: str
    expected: str
    output: str
    passes: tuple[str, ...] = ()


class Roads(Protocol):
    """A backend that runs a language model over the same tokens by several roads."""

    @property
    def roads(self) -> Sequence[str]:
        """Their names; "whole", the batch at once as it was given, is one of them."""

    @property
    def truth(self) -> str:
        """The run mode that all are held against."""

    def travel(self, spec: SessionSpec, road: str, feeds: Feeds, hook: Hook) -> Mapping[str, Any]:
        """Run the model by a road.

        The hook is shown what each module made of each token, [rows, tokens, …], NaN where a token is masked, as if the
        whole batch had run at once. Returns "logits". Raises PrecisionDebugError."""


class BaselineChooser(Protocol):
    """A backend some of whose files are not to be compared with the baseline of its modes."""

    def baseline_of(self, spec: SessionSpec) -> str:
        """Return the mode that this file is compared with in ``spec.mode`` where the user names none; "": the mode's.

        Raises ModelError."""


class HoldsNarrower(Protocol):
    """A backend whose engine computes some whole numbers in a narrower type, on both sides of a comparison alike."""

    def computed_narrower(self, spec: SessionSpec) -> str:
        """Return an operator of the model whose whole numbers it computes so; "" where none is known.

        Raises ModelError."""


class BareRunner(Protocol):
    """A backend that can run a model as its engine alone does, with nothing of this tool in the way."""

    def run_bare(self, spec: SessionSpec, feeds: Feeds) -> bool:
        """Load the model and run it once; what the engine then does to the process it does.

        False where the mode is more than the engine (a conversion, a simulation), or is not known how to run so."""


class Cautious(Protocol):
    """A backend whose engine can be asked to do less of what may end the process."""

    def cautiously(self, spec: SessionSpec) -> Mapping[str, Mapping[str, Any]]:
        """Return what to type for it, to the settings that it stands for, the one that gives up least first."""


class AloneScripter(Protocol):
    """A backend that can show a fault without this tool."""

    def alone_script(self, mode: str, files: AloneFiles) -> str:
        """Return a short script that needs the engine and numpy alone, and prints what is expected and what it gives.

        "" where the mode is more than the engine (a conversion, a simulation)."""


class Exporter(Protocol):
    """A backend whose models are exported into other formats; by its capability."""

    def examples(self, spec: SessionSpec) -> Feeds:
        """Return the model's own example inputs, which random ones cannot imitate; {} where it has none."""

    def modules_in(self, path: str) -> Mapping[str, str]:
        """Return names of an exported file's tensors to the modules that they come from; {} where it does not say."""

    def check_weights(self, spec: SessionSpec, path: str) -> Sequence[Reason]:
        """Return what to know of an exported file's weights before an operator is blamed, one sentence each."""


class WeightKeeper(Protocol):
    """An exporter whose weights a recording keeps, so that an exported file's can be checked elsewhere."""

    def weights(self, spec: SessionSpec) -> Mapping[str, Any]:
        """Return the model's own parameters and buffers, name to numpy array."""

    def check_arrays(self, weights: Mapping[str, Any], path: str) -> Sequence[Reason]:
        """``Exporter.check_weights`` of kept weights, where the model's framework may be absent."""


@dataclass(frozen=True, kw_only=True)
class Layer:
    """What a layer was built with.

    parameters: what they are for ("weight", "bias", of a batch norm also "mean" and "variance") to their full names.
    attributes: in ONNX's words ("epsilon", "axis", "strides").
    """

    parameters: Mapping[str, str] = field(default_factory=dict)
    attributes: Mapping[str, Any] = field(default_factory=dict)


class LayerKeeper(Protocol):
    """An exporter that knows what each layer was built with."""

    def layers(self, spec: SessionSpec) -> Mapping[str, Layer]:
        """Return the layers by the names that ``layer_of`` gives."""

    def layers_named(self, names: Iterable[str]) -> Mapping[str, Layer]:
        """Return the layers by their weights' names alone, as a recording has them."""

    def layer_of(self, meta: TensorMeta) -> str:
        """Return the layer that a tensor of its sessions was made in, as ``Exporter.modules_in`` calls it; "" not
        known."""


@dataclass(frozen=True, kw_only=True)
class Operator:
    """One operator of a graph. inputs: every one of them, constants too, "" where an optional one is left out.

    attributes: plain values (numbers, texts, tuples of numbers); others are left out.
    """

    name: str
    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)


class Operators(Protocol):
    """A model's operators in an order in which they can run, and its constants."""

    @property
    def operators(self) -> Sequence[Operator]:
        """Of the main graph."""

    @property
    def constants(self) -> Mapping[str, Any]:
        """Weights by name, numpy arrays; only those that an operator or the model's output reads."""

    def run(
        self, operator: Operator, values: Mapping[str, Any], attributes: Mapping[str, Any] | None = None
    ) -> Mapping[str, Any] | None:
        """Return the outputs of one operator on these inputs (constants too), by name, numpy arrays.

        attributes: in place of its own, None for one that it is not to have. None where it cannot run alone.
        """


class OperatorRunner(Protocol):
    """A backend that can run a model's operators one by one, in float32, whatever the mode."""

    def operators(self, spec: SessionSpec) -> Operators:
        """Raises ModelError."""


@dataclass(frozen=True, kw_only=True)
class Matches:
    """What a comparison of values, or a backend that knows both programs, said of two graphs.

    found: source name of a target tensor to (baseline name, how it was decided, with the confidence).
    refused: source name of a target tensor to why it was left alone. missing: the same of baseline names.
    notes: what a reader must know of the two graphs.
    """

    found: Mapping[str, tuple[str, Way]] = field(default_factory=dict)
    refused: Mapping[str, Reason] = field(default_factory=dict)
    missing: Mapping[str, Reason] = field(default_factory=dict)
    notes: tuple[Reason, ...] = ()


class Pairer(Protocol):
    """A backend that knows which tensors of two runs of one program belong together; an addition to Backend."""

    def pair(self, baseline: Sequence[TensorMeta], target: Sequence[TensorMeta]) -> Matches | None:
        """Decides for the names, in both directions; None where the lists do not tell enough, and names decide."""


class Namesake(Protocol):
    """A backend whose pairer knows the names of other backends' tensors, so that values need not decide."""

    @property
    def named_after(self) -> Sequence[str]:
        """Those backends, by name."""


class OnDevice(Protocol):
    """A backend that compares tensors on their own device, while two of its runs are side by side."""

    def on_device(
        self, first: SessionSpec, second: SessionSpec
    ) -> tuple[Comparer, BaselineStore | None] | Reason | None:
        """Return what compares, and what keeps the tensors that must wait (None: the host's memory); None: use the
        host's. A reason: use the host's, and tell it."""

    def open_for(self, comparer: Comparer, spec: SessionSpec, feeds: Sequence[Feeds]) -> Session:
        """As ``Backend.open``; the session shows tensors as the comparer takes them, without a copy."""


class OnDeviceAlone(Protocol):
    """A backend that compares its tensors on their own device while it runs alone."""

    def on_device_alone(self, first: SessionSpec, second: SessionSpec) -> Comparer | Reason | None:
        """For its run after a baseline of any backend, whose tensors wait in the host's memory; None: use the host's.
        A reason: use the host's, and tell it.

        The comparer takes arrays too.
        """

    def open_for(self, comparer: Comparer, spec: SessionSpec, feeds: Sequence[Feeds]) -> Session:
        """See OnDevice."""


@dataclass(frozen=True, kw_only=True)
class Watching:
    """A session on somebody's own configuration.

    config: a copy of it, of which another one can be made. inputs: names in the framework's order. outputs: the
    framework's names, in its order, to those that the session gives them.
    """

    session: Session
    config: Any
    inputs: tuple[str, ...]
    outputs: Mapping[str, str]


class Follower(Protocol):
    """A backend that can follow somebody's own training loop; by its capability."""

    def follow(
        self, model: Any, optimiser: Any, scaler: Any, folder: str, every: int, steps: Collection[int]
    ) -> AbstractContextManager[Any] | None:
        """Follow a loop, see ``precision_debug.training``; None: the objects are none of this framework."""


class Watcher(Protocol):
    """A backend that can run as somebody's own configuration object says; by its capability."""

    @property
    def name(self) -> str:
        """The backend's."""

    def watch(self, config: Any, folder: str) -> Watching | None:
        """Return a run on a copy of the configuration; None: it is none of this framework.

        folder: an existing one for what is written. Raises PrecisionDebugError.
        """


@dataclass(frozen=True, kw_only=True)
class Rung:
    """One stage: a run mode with settings that are added to the user's. needs: why it cannot run here, or ""."""

    name: str
    mode: str
    options: Mapping[str, Any] = field(default_factory=dict)
    needs: str = ""


class Switch(Protocol):
    """A kind of part that can be switched off one by one: passes, operator types."""

    @property
    def name(self) -> str:
        """What the switch turns off: "passes", "operators that TensorRT takes", …."""

    @property
    def items(self) -> Sequence[str]:
        """Everything that can be off."""

    def options(self, off: Collection[str]) -> Mapping[str, Any]:
        """Return the backend's settings with these off."""

    @property
    def needs(self) -> str:
        """What is missing here for its parts to be switched off; "" where nothing is."""

    @property
    def quick(self) -> bool:
        """Whether building a small model again costs little, so that they may be bisected unasked."""

    def snippet(self, off: Collection[str]) -> str:
        """Return what the user pastes into a script of their own."""


class Ladder(Protocol):
    """What a backend offers beyond ``Backend`` so that its modes can be climbed."""

    def rungs(self, spec: SessionSpec) -> Sequence[Rung]:
        """Return the stages up to ``spec.mode``, which is the last one."""

    def switches(self, spec: SessionSpec, rung: Rung, op_types: Collection[str]) -> Sequence[Switch]:
        """Return what can be off in a stage. op_types: those that the stage was seen to run."""


# A plugin: its run modes, its settings, its sessions, and what else it can do.

@runtime_checkable
class Backend(Protocol):
    """A plugin. Constructing it, ``name``, ``run_modes`` and ``settings`` import no framework."""

    @property
    def name(self) -> str:
        """Name of the backend: "onnxruntime", "paddle", …."""

    @property
    def run_modes(self) -> Sequence[RunMode]:
        """Every mode that it can offer, on any machine."""

    @property
    def settings(self) -> Sequence[Setting]:
        """Every setting that its sessions read; nothing else reaches them. ``()``: none."""

    @property
    def reasons(self) -> Catalogue:
        """Catalogue of what the backend says of tensors and runs, as codes with arguments, in English and Chinese.

        With an empty one, ``Catalogue(name, {})``, it says everything as bare text, which is shown as it is."""

    @property
    def capabilities(self) -> Capabilities:
        """What else it can do; a backend that only opens sessions says ``Capabilities()``."""

    def availability(self, mode: str) -> Availability:
        """Return whether a mode can run on this machine. May import the framework; never raises."""

    def inputs(self, spec: SessionSpec) -> Sequence[InputMeta]:
        """Return the model's inputs, without building an engine. Raises ModelError."""

    def open(self, spec: SessionSpec, feeds: Sequence[Feeds]) -> Session:
        """Load the model in one run mode; ``feeds`` calibrate it where the mode needs that.

        Raises BackendUnavailable, ModelError or BackendError. Expensive builds may wait until ``run``, but
        ``tensors`` lists before it what can be known.
        """


def demand(available: Availability, mode: str, *, where: str = "") -> None:
    """Raise BackendUnavailable where a mode cannot run here. where: the model's file, or the backend."""
    if not available.ok:
        what = say("cannot_run_here", mode=mode, needs=available.needs)
        raise BackendUnavailable(what, where=where, hint=say("doctor_lists"))
