"""For verbs that only read a model: which one it is, and whichever backend can read it."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from .. import registry
from ..errors import BackendUnavailable, ModelError, UsageError
from ..reasons import say
from ..records import ModelFiles, RunSpec
from ..run.plan import Opening, make_plan
from .streams import without_chatter

__all__ = ["make_opening", "read_model_options", "with_a_mode"]

T = TypeVar("T")


def read_model_options(args: argparse.Namespace) -> ModelFiles:
    """Return what ``parser.MODEL_FLAGS`` name; ``path`` is "" where they name nothing. Raises UsageError."""
    if args.model and (args.model_file or args.model_dir):
        raise UsageError("two models given", hint="name only one")
    file = args.model or args.model_file
    return ModelFiles(model_file=file, params_file=args.params_file, model_dir=args.model_dir)


def make_opening(model: ModelFiles, mode: str, folder: Path) -> Opening:
    """Return the model in a run mode, before it is opened. folder: where a place for it is made."""
    place = folder / mode
    place.mkdir(exist_ok=True)
    return make_plan(RunSpec(model=model, run_mode=mode, record="-"), work_dir=str(place)).target


def with_a_mode(model: ModelFiles, asked: str, use: Callable[[str], T], *, verbose: bool = False) -> T:
    """``use`` of the mode that was asked for; without one of each backend's baseline mode, until one reads the model.

    verbose: what the frameworks print is shown. Raises UsageError where no backend reads such a file, and what the
    first one that is installed raised where none reads this file.
    """
    if asked:
        with without_chatter(verbose):
            return use(asked)
    offered = registry.modes_for(model)
    known = {mode.name for _, mode in offered}
    names: dict[str, str] = {}
    for backend, mode in offered:  # a backend's baseline may be another's mode, which does not read every file of it
        names.setdefault(backend.name, mode.baseline if mode.baseline in known else mode.name)
    if not names:
        kind = registry.suffix(model) or say("model_folder")
        raise UsageError(say("no_backend_reads", kind=kind), where=model.path or "--model_file")
    problems: list[ModelError | BackendUnavailable] = []
    for name in names.values():
        try:
            with without_chatter(verbose):
                return use(name)
        except (ModelError, BackendUnavailable) as error:
            problems.append(error)
    raise next((one for one in problems if isinstance(one, ModelError)), problems[0])  # one that is installed read it
