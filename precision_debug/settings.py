"""Settings: what a backend can be told beyond a model and a run mode, declared in one table a backend.

A command gives them as a flag or as --option KEY=VALUE, a call of ``compare`` as keywords. ``share`` hands each to the
sides that read it, before anything is opened; one that no side reads is an error. A session reads them with ``value``.
"""

from __future__ import annotations

import ast
import fnmatch
import json
import operator
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from .errors import UsageError
from .reasons import Reason, say
from .safety.nearest import nearest
from .safety.visible import visible

__all__ = ["CORE", "MEMORY_BUDGET", "SIDES", "Kind", "Setting", "Taker", "passed", "read_by", "share", "value"]

SIDES = ("baseline", "target")

Kind = Literal["flag", "whole", "size", "choice", "text", "names", "layers", "shapes"]
"""flag: bool. whole: int. size: bytes, an int ("4G" is read). choice: one of some words. text: str. names: tuple of str
("a,b" and "['a', 'b']" are read). layers: name to type. shapes: input name to tuple of int."""

_FORMS = {
    "flag": "write true or false", "whole": "write a whole number", "size": "write 512M or 4G", "text": "write text",
    "names": "write a,b or ['a','b']", "layers": "write NAME:TYPE", "shapes": "write {'x':[1,3,8,8]}",
}  # fmt: skip
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One setting of one backend.

    help, zh: what it does, in English and in Chinese; they also say what holds without it where ``default`` is None.
    sides: who reads it. modes: patterns of the run modes that read it; empty: all of the backend's.
    low, high: the smallest and the largest number. flag: the command line has ``--name`` for it; by_side: and
    ``--baseline_name`` for the baseline alone, which then does not take what ``--name`` says.
    nargs: of that flag, in argparse's words. reader: reads a value in place of what ``kind`` would do; raises
    UsageError or ValueError. A setting's values are plain: they travel as JSON.
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
    reader: Callable[[Any], Any] | None = None

    @property
    def option(self) -> str:
        """How the command line spells it."""
        return f"--{self.name}" if self.flag else f"--option {self.name}"

    @property
    def form(self) -> str:
        """What to write, for a message."""
        if self.choices:
            return f"write one of {', '.join(self.choices)}"
        if self.kind == "whole" and (self.low is not None or self.high is not None):
            return f"write a whole number {self.span}"
        return _FORMS.get(self.kind, "")

    @property
    def span(self) -> str:
        """The allowed numbers in words, or ""."""
        if self.low is not None and self.high is not None:
            return f"from {self.low} to {self.high}"
        return f"from {self.low} up" if self.low is not None else f"up to {self.high}" if self.high is not None else ""

    def typed(self, given: Any) -> str:
        """How a command line gives this value, to be pasted into a shell; ``read`` makes the value of it again."""
        many = not isinstance(given, (str, Mapping)) and isinstance(given, Sequence)
        words = [str(one) for one in given] if many else [str(given)]
        if self.flag and (self.nargs or not many) and not any(word.startswith("-") for word in words):
            return f"--{self.name} {shlex.join(words)}"
        text = f"[{','.join(map(_literal, words))}]" if many else words[0]
        return f"--option {shlex.quote(f'{self.name}={text}')}"

    def matters(self, side: str, mode: str) -> bool:
        """Whether that side reads it in that run mode."""
        return side in self.sides and (not self.modes or any(fnmatch.fnmatchcase(mode, one) for one in self.modes))

    def read(self, given: Any, where: str = "") -> Any:
        """A value of the declared type, from text or from a value of that type. Raises UsageError."""
        where = where or self.option
        try:
            return self.reader(given) if self.reader is not None else _READERS[self.kind](self, given)
        except UsageError as error:
            raise UsageError(error.what, where=where, hint=error.hint or self.form) from error
        except (ValueError, TypeError, OverflowError, SyntaxError, MemoryError, RecursionError) as error:
            raise UsageError(str(error) or f"{given!r} is not {self.kind}", where=where, hint=self.form) from error


MEMORY_BUDGET = Setting(
    name="memory_budget", kind="size", flag=True, metavar="SIZE", low=0,
    help="e.g. 4G: baseline tensors beyond it wait on disk; 0: all do (default: all wait in memory)",
    zh="例如 4G：超出部分的基线张量存放在磁盘上；0：全部放在磁盘上（默认全部放在内存中）",
)  # fmt: skip

SAMPLES_AXIS = Setting(
    name="samples_axis", kind="whole", help="the arrays of --inputs hold many samples along this axis",
    zh="--inputs 的数组沿此轴存放多个样本",
)  # fmt: skip
SAMPLE = Setting(
    name="sample", kind="text", help="only this sample of --inputs, from 0, or a range FROM:TO",
    zh="只运行 --inputs 中的这一个样本（从 0 起）或一段 FROM:TO",
)  # fmt: skip
METRIC = Setting(
    name="metric", kind="text", help="FILE.py:function of a sample's outputs and labels, for both sides",
    zh="FILE.py:函数，由样本的输出与标签计算指标，两侧各算一次",
)  # fmt: skip
TOP_K = Setting(
    name="top_k", kind="whole", low=1, flag=True, metavar="N",
    help="in how many samples both runs have the same first N classes; with labels, in how many the label is in them",
    zh="两侧前 N 个类别相同的样本比例；若有标签，则为标签位于其中的比例",
)  # fmt: skip
COMPARE = Setting(
    name="compare", kind="text", flag=True, metavar="FILE.py:f",
    help="a function of both runs' outputs that decides in place of tolerances: true, or by output name true or false",
    zh="由两侧输出计算的函数，代替容差作出判定：返回真假，或按输出名返回真假",
)  # fmt: skip
REPEAT = Setting(
    name="repeat", kind="whole", low=2, flag=True, metavar="N",
    help="build and run the target N times: how far its builds are apart, tensor by tensor, beside its error",
    zh="将目标构建并运行 N 次：逐张量给出各次之间的差异，与误差并列",
)  # fmt: skip

SAVE_INPUTS = Setting(
    name="save_inputs", kind="text", flag=True, metavar="FILE.json",
    help="keeps what both runs were fed, as Polygraphy's JSON",
    zh="将两侧的输入保存为 Polygraphy 的 JSON",
)  # fmt: skip
SAVE_OUTPUTS = Setting(
    name="save_outputs", kind="text", flag=True, metavar="FILE.json",
    help="keeps both runs' outputs, as Polygraphy's JSON",
    zh="将两侧的输出保存为 Polygraphy 的 JSON",
)  # fmt: skip
SAVE_TENSORS = Setting(
    name="save_tensors", kind="whole", low=1, flag=True, metavar="N",
    help="keeps the N worst tensors of both sides as .npz beside the report; of many samples, those of the worst one",
    zh="将误差最大的 N 个张量（两侧）以 .npz 保存在报告旁；多个样本时取最差样本",
)  # fmt: skip
FAIL_FAST = Setting(
    name="fail_fast", kind="flag", flag=True,
    help="stop at the first tensor that fails, or after the sample that has it",
    zh="遇到首个未通过的张量即停止；多个样本时，在含有它的样本之后停止",
)  # fmt: skip

FIND_PASS = Setting(
    name="find_pass", kind="flag",
    help="which pass of the engine brings the error, by bisection; false: never (default: where it is cheap, and the"
    " target computes something else than the baseline)",
    zh="二分找出引入误差的引擎 pass；false：从不（默认：代价低且目标的计算与基线不同时）",
)  # fmt: skip

CORE = (
    MEMORY_BUDGET, SAMPLES_AXIS, SAMPLE, METRIC, TOP_K, COMPARE, SAVE_INPUTS, SAVE_OUTPUTS, SAVE_TENSORS, REPEAT,
    FAIL_FAST, FIND_PASS,
)  # fmt: skip
"""Settings that no engine sees: any command may have them."""

_PASSED: Mapping[str, Any] = {"side": "target", "seed": 0, "anew": False}


def passed(options: Mapping[str, Any], name: str) -> Any:
    """What the core itself tells a session among its options, plain values too: "side", "seed", and "anew": it is one
    of several builds that are to differ as builds do, so that nothing that was measured before may steer it."""
    default = _PASSED[name]
    return options.get(name, default) if options.get(name) is not None else default


def value(table: Sequence[Setting], options: Mapping[str, Any], name: str) -> Any:
    """A session's setting, of its declared type; the default where it was not given (None and "" are not).

    Raises KeyError for a setting that the table does not declare, and UsageError for a wrong value.
    """
    setting = next((one for one in table if one.name == name), None)
    if setting is None:
        raise KeyError(f"no setting '{name}' is declared")
    given = options.get(name)
    return setting.default if given is None or given == "" else setting.read(given)


@dataclass(frozen=True, kw_only=True)
class Taker:
    """One side of a run, as far as settings go. backend: its name, "" for a recording, which takes none."""

    side: str
    mode: str
    backend: str
    table: Sequence[Setting] = ()

    def find(self, name: str) -> Setting | None:
        """The setting of that name, where this side reads it in this mode."""
        return next((one for one in self.table if one.name == name and one.matters(self.side, self.mode)), None)


def share(
    options: Mapping[str, Any], takers: Sequence[Taker], tables: Mapping[str, Sequence[Setting]]
) -> tuple[dict[str, Any], ...]:
    """The settings of each taker, in their declared types.

    options: KEY for every side that reads it, "baseline.KEY" and "target.KEY" for one side, before KEY.
    tables: of all backends, by name, for what is said of a setting that is another's.
    Raises UsageError for a setting that nobody takes, with the nearest name, and for a wrong value.
    """
    found: tuple[dict[str, Any], ...] = tuple({} for _ in takers)
    core = {setting.name: setting for setting in CORE}
    for key in sorted(options, key=lambda key: bool(_side_of(key))):  # those of one side last: they win
        side = _side_of(key)
        name = key[len(side) + 1 :] if side else key
        if name in core and not side:
            core[name].read(options[key])
        elif name in _PASSED:
            hint = "give it with --seed N" if name == "seed" else "leave it out"
            raise UsageError("is no setting of a backend", where=f"--option {key}", hint=hint)
        asked = [(place, taker) for place, taker in enumerate(takers) if side in ("", taker.side)]
        taken = [(place, setting) for place, taker in asked if (setting := taker.find(name)) is not None]
        if not taken and (name not in core or side):
            raise _not_taken(key, name, [taker for _, taker in asked], tables)
        for place, setting in taken:
            if options[key] is not None:
                found[place][name] = setting.read(options[key], f"--option {key}" if side else "")
    return found


def read_by(options: Mapping[str, Any], takers: Sequence[Taker]) -> dict[str, Any]:
    """Those of ``options``, as they are, that one of the takers reads, or the core."""
    core = {setting.name for setting in CORE}

    def is_read(key: str) -> bool:
        side = _side_of(key)
        name = key[len(side) + 1 :] if side else key
        return key in core or any(side in ("", taker.side) and taker.find(name) is not None for taker in takers)

    return {key: given for key, given in options.items() if is_read(key)}


def _side_of(key: str) -> str:
    """ "baseline" or "target" of "baseline.KEY" and "target.KEY", else ""."""
    return next((side for side in SIDES if key.startswith(f"{side}.")), "")


def _not_taken(
    key: str, name: str, asked: Sequence[Taker], tables: Mapping[str, Sequence[Setting]]
) -> UsageError:  # fmt: skip
    everywhere = [(backend, setting) for backend, table in tables.items() for setting in table]
    flagged = key == name and any(setting.flag for _, setting in everywhere if setting.name == name)
    where = f"--{name}" if flagged else f"--option {key}"
    labels = [say("the_side", side=_side(taker.side), mode=taker.mode) for taker in asked]
    what = (
        say("nobody_takes_it", first=labels[0], second=labels[1]) if len(labels) > 1
        else say("does_not_take_it", side=labels[0]) if labels else f"there is no {key.partition('.')[0]} here"
    )  # fmt: skip
    hint = ""
    own = [(taker, setting) for taker in asked for setting in taker.table if setting.name == name]
    if own:
        hint = _where_it_matters(*own[0])
    elif others := sorted({backend for backend, setting in everywhere if setting.name == name}):
        hint = f"it is a setting of the backend{'s' * (len(others) > 1)} {' and '.join(others)}"
    else:
        near = [s.name for taker in asked for s in taker.table if s.matters(taker.side, taker.mode)]
        hint = _near(name, near) or _near(name, [setting.name for _, setting in everywhere])
    tableless = [taker.backend for taker in asked if taker.backend and not taker.table]
    if tableless and (not hint or len(tableless) == len(asked)):
        hint = f"the backend {tableless[0]} declares no settings"
    return UsageError(what, where=where, hint=hint or say("settings_lists"))


def _near(name: str, names: Sequence[str]) -> str:
    found = nearest(name, names)
    return say("did_you_mean", names=" or ".join(map(repr, found))) if found else ""


def _side(name: str) -> Reason:
    return say("baseline") if name == "baseline" else say("target")


def _where_it_matters(taker: Taker, setting: Setting) -> str:
    if taker.side not in setting.sides:
        return f"it is for the {setting.sides[0]} only"
    return say("it_matters_in", modes=" ".join(setting.modes))


def _literal(name: str) -> str:
    """A name between double quotes, as ``_names`` reads it; in escapes where somebody could not see what is copied."""
    plain = json.dumps(name, ensure_ascii=False)
    if visible(plain) == plain:
        return plain
    return '"' + name.encode("unicode_escape").decode("ascii").replace('"', '\\"') + '"'


def _flag(_: Setting, given: Any) -> bool:
    text = str(given).strip().lower()
    if text not in {"true", "1", "yes", "on", "false", "0", "no", "off"}:
        raise ValueError(f"{given!r} is neither true nor false")
    return text in {"true", "1", "yes", "on"}


def _whole(setting: Setting, given: Any) -> int:
    try:
        if isinstance(given, bool):
            raise ValueError
        number = int(given.strip()) if isinstance(given, str) else operator.index(given)
    except (ValueError, TypeError):
        raise ValueError(f"{given!r} is no whole number") from None
    if (setting.low is not None and number < setting.low) or (setting.high is not None and number > setting.high):
        raise ValueError(f"{number} is not {setting.span}")
    return number


def _size(setting: Setting, given: Any) -> int:
    text = str(given).strip().upper().removesuffix("B").removesuffix("I")
    unit = text[-1:] if text[-1:] in _UNITS and not text[-1:].isdigit() else ""
    try:
        if isinstance(given, bool):
            raise ValueError
        size = int(float(text.removesuffix(unit)) * _UNITS[unit])
    except (ValueError, OverflowError):
        raise ValueError(say("no_size", value=given)) from None
    if not (1 if setting.low is None else setting.low) <= size < 2**63:
        raise ValueError(f"'{given}' is not a size {'above 0' if setting.low is None else 'from 0 up'}")
    return size


def _choice(setting: Setting, given: Any) -> str:
    word = str(given).strip().lower()
    if word not in setting.choices:
        raise ValueError(f"'{given}' is none of {', '.join(setting.choices)}")
    return word


def _text(_: Setting, given: Any) -> str:
    if isinstance(given, (str, os.PathLike)):
        text = os.fspath(given)
        if isinstance(text, str) and text:
            quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "'\""
            return str(ast.literal_eval(text)) if quoted else text
    raise ValueError(f"{given!r} is no text")


def _names(_: Setting, given: Any) -> tuple[str, ...]:
    items = given
    if isinstance(given, str):
        text = given.strip()
        items = ast.literal_eval(text) if text[:1] in ("[", "(", "'", '"', "{") else text
        items = items.split(",") if isinstance(items, str) else items
    if isinstance(items, os.PathLike):
        items = [items]
    if not isinstance(items, (list, tuple, set, frozenset)):
        raise ValueError(f"{given!r} is no list of names")
    names = [os.fspath(item) if isinstance(item, os.PathLike) else item for item in items]
    if not all(isinstance(name, str) for name in names):
        raise ValueError(f"{given!r} is no list of names")
    return tuple(name.strip() for name in names if name.strip())


def _layers(_: Setting, given: Any) -> dict[str, str]:
    if isinstance(given, Mapping):
        return {str(name): str(kind) for name, kind in given.items()}
    found = {}
    for word in given.split() if isinstance(given, str) else given:
        name, _colon, kind = str(word).rpartition(":")
        if not name or not kind:
            raise ValueError(f"'{word}' is no layer with a type")
        found[name] = kind
    return found


def _shapes(_: Setting, given: Any) -> dict[str, tuple[int, ...]]:
    read = ast.literal_eval(given) if isinstance(given, str) else given
    if not isinstance(read, Mapping):
        raise ValueError(f"{given!r} is no map of input names to shapes")
    found = {}
    for name, shape in read.items():
        dims = tuple(operator.index(dim) for dim in shape)
        if any(dim < 0 for dim in dims):
            raise ValueError(f"{list(dims)} of '{name}' has a negative dimension")
        found[str(name)] = dims
    return found


_READERS: Mapping[str, Callable[[Setting, Any], Any]] = {
    "flag": _flag, "whole": _whole, "size": _size, "choice": _choice, "text": _text, "names": _names,
    "layers": _layers, "shapes": _shapes,
}  # fmt: skip
