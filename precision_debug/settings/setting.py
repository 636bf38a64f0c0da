"""Declare one thing that a comparison or a backend can be told: its name, type, default, range and help."""

from __future__ import annotations

import ast
import fnmatch
import json
import math
import operator
import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal

from ..errors import UsageError
from ..reasons import Reason, say
from ..safety.untrusted import make_visible

__all__ = [
    "BACKWARD", "FORWARD", "OPTIMISER", "PHASES", "SAVED", "SCALE", "SIDES", "Kind", "Setting", "mode_setting",
    "parse_shapes", "parse_val_range", "step_settings", "value", "without_saving",
]  # fmt: skip


# Shapes, ranges and renames in the words of the command line.

_SHAPE_FORM = say("shape_form")
_RANGE_FORM = say("range_form")


def parse_shapes(texts: Sequence[str], *, option: str = "--input_shapes") -> dict[str, tuple[int, ...]]:
    """["x:[1,3,224,224]", "y:1x3"] to input name and shape.

    The last colon ends the name, so a name may hold colons itself. "x:[]" is a scalar. Raises UsageError.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for text in texts:
        name, colon, dims = text.strip().rpartition(":")
        name = name.strip()
        if not colon or not name:
            raise UsageError(say("no_input_named", value=text), where=option, hint=_SHAPE_FORM)
        shape = _parse_dims(dims.strip())
        if shape is None:
            raise UsageError(say("no_shape", value=text), where=option, hint=_SHAPE_FORM)
        if shapes.setdefault(name, shape) != shape:
            what = f"two shapes for '{name}': {list(shapes[name])} and {list(shape)}"
            raise UsageError(what, where=option, hint="keep one")
    return shapes


def parse_val_range(texts: Sequence[str], *, option: str = "--val_range") -> dict[str, tuple[float, float]]:
    """["0,1", "x:-1,1", "y:[-1,1]"] to input name ("" for all) and (low, high). Raises UsageError."""
    ranges: dict[str, tuple[float, float]] = {}
    for text in texts:
        name, _, numbers = text.strip().rpartition(":")
        name = name.strip()
        bounds = _parse_bounds(numbers.strip())
        if bounds is None:
            raise UsageError(say("no_range", value=text), where=option, hint=_RANGE_FORM)
        low, high = bounds
        if low > high:
            raise UsageError(say("low_above_high", value=text), where=option, hint=_RANGE_FORM)
        if ranges.setdefault(name, bounds) != bounds:
            raise UsageError(f"two ranges for {repr(name) if name else 'all inputs'}", where=option, hint="keep one")
    return ranges


def parse_renames(texts: Sequence[str]) -> dict[str, str]:
    """["new=old"] to {"new": "old"}; the last = ends the target's name. Raises UsageError."""
    renames: dict[str, str] = {}
    for text in texts:
        target, equals, baseline = text.rpartition("=")
        if not equals or not target or not baseline:
            raise UsageError(say("no_rename", value=text), where="--rename", hint=say("rename_form"))
        if renames.setdefault(target, baseline) != baseline:
            raise UsageError(say("renamed_twice", name=target), where="--rename", hint=say("keep_one"))
    return renames


def _parse_dims(text: str) -> tuple[int, ...] | None:
    inner = _unbracket(text)
    if inner == "" and text:
        return ()
    parts = re.split(r"[,x]", inner)
    if not all(re.fullmatch(r"[0-9]{1,18}", part.strip(), re.ASCII) for part in parts):
        return None
    return tuple(int(part) for part in parts)


def _parse_bounds(text: str) -> tuple[float, float] | None:
    parts = _unbracket(text).split(",")
    if len(parts) != 2:
        return None
    try:
        low, high = float(parts[0]), float(parts[1])
    except ValueError:
        return None
    return (low, high) if math.isfinite(low) and math.isfinite(high) else None


def _unbracket(text: str) -> str:
    paired = text[:1] + text[-1:] in ("[]", "()")
    return text[1:-1].strip() if paired else text


# One thing that a comparison or a backend can be told: its name, type, default, range, and help in both languages.

SIDES = ("baseline", "target")

Kind = Literal[
    "flag", "whole", "number", "size", "choice", "text", "word", "names", "words", "pairs", "layers", "shapes",
    "ranges", "renames",
]  # fmt: skip
"""flag: bool. whole: int. number: float. size: bytes, an int ("4G" is read). choice: one of some words. text: str,
which may be quoted. word: str as it is, a path among them. names: tuple of str ("a,b" and "['a', 'b']" are read).
words: tuple of str, each as it is. pairs: text to text ("KEY=VALUE,KEY=VALUE" is read). layers: name to
type. shapes: input name to tuple of int. ranges: input name, "" for all, to (low, high). renames: target's name to the
baseline's."""

_FORMS: Mapping[str, str] = {
    "flag": say("write_flag"), "whole": say("write_whole"), "number": say("write_number"), "size": say("write_size"),
    "text": say("write_text"), "word": say("write_text"), "names": say("write_names"), "words": say("write_text"),
    "pairs": say("write_pairs"), "layers": say("write_layers"), "shapes": say("write_shapes"),
    "ranges": say("range_form"), "renames": say("rename_form"),
}  # fmt: skip
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One setting of a backend, or one option of a comparison.

    help, zh: what it does, in English and in Chinese; they also say what holds without it where ``default`` is None.
    sides: who reads it. modes: patterns of the run modes that read it; empty: all of the backend's.
    low, high: the smallest and the largest number. flag: the command line has ``--name`` for it; by_side: and
    ``--baseline_name`` for the baseline alone, which then does not take what ``--name`` says.
    nargs: of that flag, in argparse's words. const: its value where the flag stands alone, with nargs "?".
    reader: reads a value in place of what ``kind`` would do; raises UsageError or ValueError. A setting's values are
    plain: they travel as JSON.
    target_unless_said: without a side's name in front it is the target's alone. native: of pairs, a regular expression
    of the engine's own names: each may be given as a setting of its own, and joins these pairs. code: it names code
    that runs, or a library that is loaded.

    Of options alone: spelled: the command line's name for it, where that is another one. field: where RunSpec keeps it,
    "tolerance.atol". group: the heading of --help that it stands under. repeated: may be given several times, and adds
    up. file: "read" or "written", of one that names a file. not_with: what it cannot stand beside, "workers" (several
    processes), "recording" (a run that is only recorded) or "script" (--gen_script).
    """

    name: str
    kind: Kind
    help: str
    zh: str
    default: Any = None
    sides: tuple[str, ...] = SIDES
    modes: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    low: int | None = None
    high: int | None = None
    flag: bool = False
    by_side: bool = False
    metavar: str = ""
    nargs: str = ""
    const: Any = None
    reader: Callable[[Any], Any] | None = None
    target_unless_said: bool = False
    native: str = ""
    code: bool = False
    spelled: str = ""
    field: str = ""
    group: str = ""
    repeated: bool = False
    file: Literal["", "read", "written"] = ""
    not_with: tuple[str, ...] = ()

    @property
    def option(self) -> str:
        """The option as the command line spells it."""
        return f"--{self.spelled or self.name}" if self.flag else f"--option {self.name}"

    @property
    def form(self) -> str:
        """What values can be written for it, for a message."""
        if self.choices:
            return say("write_one_of", known=", ".join(self.choices))
        if self.span and self.kind in ("whole", "number"):
            return say("write_in_span", what=_FORMS[self.kind], span=self.span)
        return _FORMS.get(self.kind, "")

    @property
    def span(self) -> str:
        """The allowed numbers in words, or ""."""
        if self.low is not None and self.high is not None:
            return say("from_to", low=self.low, high=self.high)
        if self.low is not None:
            return say("from_up", low=self.low)
        return say("up_to", high=self.high) if self.high is not None else ""

    def typed(self, raw: Any) -> str:
        """Return how a command line gives this value, to be pasted into a shell; ``read`` makes the value of it
        again."""
        if self.kind == "pairs" and isinstance(raw, Mapping):
            raw = ",".join(f"{key}={value}" for key, value in raw.items())
        many = not isinstance(raw, (str, Mapping)) and isinstance(raw, Sequence)
        words = [str(one) for one in raw] if many else [str(raw)]
        if self.kind == "flag" and self.flag and isinstance(raw, bool):
            words = [str(int(raw))]  # as its help has it
        if self.kind == "layers" and isinstance(raw, Mapping):
            words, many = [f"{name}:{kind}" for name, kind in raw.items()], True
        if self.flag and (self.nargs or not many) and not any(word.startswith("-") for word in words):
            return f"--{self.name} {shlex.join(words)}"
        text = f"[{','.join(map(_quote_name, words))}]" if many else words[0]
        return f"--option {shlex.quote(f'{self.name}={text}')}"

    def matters(self, side: str, mode: str) -> bool:
        """Return whether that side reads it in that run mode."""
        return side in self.sides and (not self.modes or any(fnmatch.fnmatchcase(mode, one) for one in self.modes))

    def read(self, raw: Any, where: str = "") -> Any:
        """Return a value of the declared type, from text or from a value of that type. Raises UsageError."""
        where = where or self.option
        try:
            return self.reader(raw) if self.reader is not None else _READERS[self.kind](self, raw)
        except UsageError as error:
            raise UsageError(error.what, where=where, hint=error.hint or self.form) from error
        except (ValueError, TypeError, OverflowError, SyntaxError, MemoryError, RecursionError) as error:
            said = error.args[0] if error.args and isinstance(error.args[0], Reason) else str(error)
            raise UsageError(said or f"{raw!r} is not {self.kind}", where=where, hint=self.form) from error


def value(table: Sequence[Setting], options: Mapping[str, Any], name: str) -> Any:
    """Return a session's setting, of its declared type; the default where it was not given (None and "" are not).

    Raises KeyError for a setting that the table does not declare, and UsageError for a wrong value.
    """
    setting = next((one for one in table if one.name == name), None)
    if setting is None:
        raise KeyError(f"no setting '{name}' is declared")
    raw = options.get(name)
    return setting.default if raw is None or raw == "" else setting.read(raw)


def _quote_name(name: str) -> str:
    """Return a name between double quotes, as ``_parse_names`` reads it; in escapes where somebody could not see
    what is
    copied."""
    plain = json.dumps(name, ensure_ascii=False)
    if make_visible(plain) == plain:
        return plain
    return '"' + name.encode("unicode_escape").decode("ascii").replace('"', '\\"') + '"'


def _parse_flag(_: Setting, raw: Any) -> bool:
    text = str(raw).strip().lower()
    if text not in {"true", "1", "yes", "on", "false", "0", "no", "off"}:
        raise ValueError(f"{raw!r} is neither true nor false")
    return text in {"true", "1", "yes", "on"}


def _parse_integer(setting: Setting, raw: Any) -> int:
    try:
        if isinstance(raw, bool):
            raise ValueError
        number = int(raw.strip()) if isinstance(raw, str) else operator.index(raw)
    except (ValueError, TypeError):
        raise ValueError(say("no_whole", value=repr(raw))) from None
    if (setting.low is not None and number < setting.low) or (setting.high is not None and number > setting.high):
        raise ValueError(say("not_in_span", value=number, span=setting.span))
    return number


def _parse_number(setting: Setting, raw: Any) -> float:
    try:
        if isinstance(raw, bool):
            raise ValueError
        number = float(raw)
    except (ValueError, TypeError):
        raise ValueError(say("no_real", value=repr(raw))) from None
    low = -math.inf if setting.low is None else setting.low
    if not math.isfinite(number) or not low <= number <= (math.inf if setting.high is None else setting.high):
        raise ValueError(say("not_in_span", value=f"{number:g}", span=setting.span or "finite"))
    return number


def _parse_size(setting: Setting, raw: Any) -> int:
    text = str(raw).strip().upper().removesuffix("B").removesuffix("I")
    unit = text[-1:] if text[-1:] in _UNITS and not text[-1:].isdigit() else ""
    try:
        if isinstance(raw, bool):
            raise ValueError
        size = int(float(text.removesuffix(unit)) * _UNITS[unit])
    except (ValueError, OverflowError):
        raise ValueError(say("no_size", value=raw)) from None
    if not (1 if setting.low is None else setting.low) <= size < 2**63:
        raise ValueError(f"'{raw}' is not a size {'above 0' if setting.low is None else 'from 0 up'}")
    return size


def _parse_choice(setting: Setting, raw: Any) -> str:
    word = str(raw).strip().lower()
    if word not in setting.choices:
        raise ValueError(f"'{raw}' is not one of {', '.join(setting.choices)}")
    return word


def _parse_text(_: Setting, raw: Any) -> str:
    if isinstance(raw, (str, os.PathLike)):
        text = os.fspath(raw)
        if isinstance(text, str) and text:
            quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "'\""
            return str(ast.literal_eval(text)) if quoted else text
    raise ValueError(f"{raw!r} is not text")


def _parse_word(_: Setting, raw: Any) -> str:
    if isinstance(raw, (str, os.PathLike)):
        word = os.fspath(raw)
        if isinstance(word, str):
            return word
    raise ValueError(f"{raw!r} is not text")


def _parse_words(setting: Setting, raw: Any) -> tuple[str, ...]:
    alone = isinstance(raw, (str, os.PathLike))
    return tuple(_parse_word(setting, one) for one in ([raw] if alone else raw))


def _parse_names(_: Setting, raw: Any) -> tuple[str, ...]:
    items = raw
    if isinstance(raw, str):
        text = raw.strip()
        items = ast.literal_eval(text) if text[:1] in ("[", "(", "'", '"', "{") else text
        items = items.split(",") if isinstance(items, str) else items
    if isinstance(items, os.PathLike):
        items = [items]
    if not isinstance(items, (list, tuple, set, frozenset)):
        raise ValueError(f"{raw!r} is not a list of names")
    names = [os.fspath(item) if isinstance(item, os.PathLike) else item for item in items]
    if not all(isinstance(name, str) for name in names):
        raise ValueError(f"{raw!r} is not a list of names")
    return tuple(name.strip() for name in names if name.strip())


def _parse_pairs(_: Setting, raw: Any) -> dict[str, str]:
    if isinstance(raw, Mapping):
        words: Sequence[tuple[str, str, str]] = [(str(key), "=", str(value)) for key, value in raw.items()]
    else:
        typed = raw.split(",") if isinstance(raw, str) else raw
        words = [str(word).partition("=") for word in typed if str(word).strip()]
    for key, equals, text in words:
        if not key.strip() or not equals:
            raise ValueError(f"'{key}{equals}{text}' is not KEY=VALUE")
    return {key.strip(): text.strip() for key, _equals, text in words}


def _parse_layers(_: Setting, raw: Any) -> dict[str, str]:
    if isinstance(raw, Mapping):
        return {str(name): str(kind) for name, kind in raw.items()}
    found = {}
    for word in raw.split() if isinstance(raw, str) else raw:
        name, _colon, kind = str(word).rpartition(":")
        if not name or not kind:
            raise ValueError(f"'{word}' is not a layer with a type")
        found[name] = kind
    return found


def _parse_shapes(_: Setting, raw: Any) -> dict[str, tuple[int, ...]]:
    if _are_words(raw) and not raw[0].startswith("{"):
        return parse_shapes(raw)
    raw = raw[0] if _are_words(raw) else raw
    read = ast.literal_eval(raw) if isinstance(raw, str) else raw
    if not isinstance(read, Mapping):
        raise ValueError(f"{raw!r} is not a map of input names to shapes")
    found = {}
    for name, shape in read.items():
        dims = tuple(operator.index(dim) for dim in shape)
        if any(dim < 0 for dim in dims):
            raise ValueError(f"{list(dims)} of '{name}' has a negative dimension")
        found[str(name)] = dims
    return found


def _parse_ranges(_: Setting, raw: Any) -> dict[str, tuple[float, float]]:
    if isinstance(raw, str) or _are_words(raw):
        return parse_val_range([raw] if isinstance(raw, str) else raw)
    found = {}
    for name, (low, high) in (raw if isinstance(raw, Mapping) else {"": raw}).items():
        if not all(isinstance(end, Real) and math.isfinite(end) for end in (low, high)):
            raise ValueError(say("no_range", value=f"{low}, {high}"))
        if low > high:
            of = f" of '{name}'" if name else ""
            raise UsageError(f"{low:g}, {high:g}{of} has its low end above its high end", hint="swap the two")
        found[str(name)] = (low, high)
    return found


def _parse_renames(_: Setting, raw: Any) -> dict[str, str]:
    if isinstance(raw, Mapping):
        return {str(new): str(old) for new, old in raw.items()}
    return parse_renames([raw] if isinstance(raw, str) else raw)


def _are_words(raw: Any) -> bool:
    """Return whether these are words of the command line."""
    return isinstance(raw, (list, tuple)) and bool(raw) and all(isinstance(one, str) for one in raw)


_READERS: Mapping[str, Callable[[Setting, Any], Any]] = {
    "flag": _parse_flag, "whole": _parse_integer, "number": _parse_number, "size": _parse_size,
    "choice": _parse_choice, "text": _parse_text, "word": _parse_word,
    "names": _parse_names, "words": _parse_words, "pairs": _parse_pairs, "layers": _parse_layers,
    "shapes": _parse_shapes, "ranges": _parse_ranges, "renames": _parse_renames,
}  # fmt: skip


# Settings that name a file which a run writes: for the run that the user asked for, and for no trial beside it.

SAVED = frozenset(["save_engine", "save_inspector", "save_ir", "save_model", "save_tactics"])


def without_saving(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a run that is tried with other settings: it writes none of the user's files.

    Their names may begin with a side ("target.save_model").
    """
    return {name: value for name, value in options.items() if name.rpartition(".")[2] not in SAVED}


# A training step as a command asks for it: its phases, and the settings of every backend that runs one.

FORWARD, BACKWARD, OPTIMISER = PHASES = ("forward", "backward", "optimiser")

SCALE = 65536.0
"""What GradScaler begins with, torch's as Paddle's (init_scale, init_loss_scaling)."""


def mode_setting(modes: tuple[str, ...] = ()) -> Setting:
    """Return the setting by which a module that its factory returns in training mode runs so. modes: see Setting."""
    return Setting(
        name="training", kind="flag", default=False, modes=modes,
        help="leave the module in training mode as the factory made it", zh="模块保持工厂函数给出的训练模式",
    )  # fmt: skip


def step_settings(*, scaled: str, module: str, modes: tuple[str, ...] = ()) -> tuple[Setting, ...]:
    """Return the settings of a training step, for a framework's backend.

    scaled: the run modes whose loss is scaled where nobody says. module: what the framework calls a model. modes: see
    Setting."""
    returned = f"({module}, inputs, loss, optimiser)"
    return (
        Setting(
            name="step", kind="choice", default=FORWARD, choices=PHASES, flag=True, modes=modes,
            help="how much of a training step is run and compared: the forward pass, also the gradients, or also the"
                 f" optimiser's update; the factory returns {returned}, or a {module} whose forward returns the loss",
            zh=f"运行并对比训练步的多少：仅前向、再加梯度、或再加优化器更新；工厂函数返回 {returned}，或 forward "
               f"直接给出损失的 {module}",
        ),
        Setting(
            name="loss_scale", kind="number", low=1, modes=modes,
            help="what GradScaler multiplies the loss of a training step with, on both sides (default: 65536, as it"
                 f" begins, where the target is {scaled}, otherwise 1)",
            zh=f"训练步中 GradScaler 对损失的放大倍数，两侧相同（默认：目标为 {scaled} 时取其初值 65536，否则为 1）",
        ),
        Setting(
            name="clip_norm", kind="number", modes=modes,
            help="the norm that clip_grad_norm_ clips a training step's gradients to (default: it is not called)",
            zh="训练步中 clip_grad_norm_ 裁剪梯度的范数上限（默认不裁剪）",
        ),
    )  # fmt: skip
