"""A report that has everything that a report can have, each text and each number from where the caller says."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable

from report_factory import make_report, make_row

from precision_debug.inspector import EngineLayer
from precision_debug.numbers.told import Bins, Density, Element, ErrorMap, Portrait, Repeats
from precision_debug.reasons.causes import CAUSES
from precision_debug.reasons.reason import Reason
from precision_debug.records import Culprit, Doubt, Explanation, ModelFiles, Repeated
from precision_debug.report import Report
from precision_debug.search.fix import Artefact, Fix, KeptUnit, TradePoint

__all__ = ["whole_report"]

_STATES = ("not needed", "found", "diffuse", "not possible", "unfinished")
_KINDS = ("model", "setting", "config", "command", "wrapper")


def whole_report(random_: random.Random, text: Callable[[], str]) -> Report:
    """text: gives a name, a note, a word of any kind."""
    base = make_report(3, seed=random_.randrange(9), failure=random_.choice(("", text())))
    rows = tuple(
        dataclasses.replace(
            make_row(
                n, random_.choice((0.5, 1e-6)), name=text(), op_type=text(), node=text(), reason=text(),
                target_name=text(), target_op_type=text(), extra={text(): text()}, is_output=bool(n % 2),
            ),
            repeated=Repeated(name=text(), rel_l2=0.5, times=1, first=True) if n == 1 else None,
        )
        for n in range(3)
    )  # fmt: skip
    side = dataclasses.replace(
        base.target, mode=text(), backend=text(), model=text(), notes=(Reason(text()),), versions={text(): text()},
        doubts=(Doubt(code=random_.choice(("precision_not_run", text())), values={text(): text(), "detail": text()}),),
    )  # fmt: skip
    spec = dataclasses.replace(
        base.spec, model=ModelFiles(model_file=text()), command=text(), options={text(): text()}, run_mode=text()
    )
    return dataclasses.replace(
        base, rows=rows, spec=spec, target=side, baseline=side, notes=(Reason(text()),), machine={text(): text()},
        inputs_source=text(), layers=(EngineLayer(name=text(), layer_type=text(), tactic_name=text(), origin=text()),),
        inputs=tuple(dataclasses.replace(one, name=text(), dtype=text()) for one in base.inputs), inputs_file=text(),
        scores={text(): 0.5}, scored=2, checks={text(): 0.5}, checked=2, checked_by=text(),
        explanation=_explanation(random_, text, rows[0].name), fix=_fix(random_, text),
        portraits=(_portrait(random_, rows[0].name), _portrait(random_, text())), tensors_file=text(),
        saved_tensors=(rows[0].name,), started=random_.choice((base.started, text())),
        repeats=Repeats(count=2, seconds=(1.0,), errors={text(): (0.5, 0.25)}, first=(text(),), tactics=(text(),)),
    )  # fmt: skip


def _explanation(random_: random.Random, text: Callable[[], str], name: str) -> Explanation:
    culprit = Culprit(
        name=random_.choice((name, text())), node=text(), op_types=(text(), text()),
        cause=random_.choice((*sorted(CAUSES), text())), keep=(text(),), amplifier=text(), at=text(),
        evidence={"largest": 7e4, "limit": 65504.0, "count": 3, "from": text(), "channel": 1, "axis": 1, "ratio": 9.0,
                  "layer": text(), "asked": text(), "real": text(), "units": 2.0, "what": text(), "name": text(),
                  "base": text(), "target": text(), "amplifier": text(), "factor": 8.0, text(): text()},
        fails_first=text(), confidence=random_.choice(("isolated", "ranked", text())), introduced=0.5, units=3.0,
        share=0.9,
    )  # fmt: skip
    return Explanation(
        state=random_.choice(("culprits", "diffuse", "healthy", "unknown")), method=text(), reason=Reason(text()),
        culprits=(culprit,), at=text(), budget={text(): 0.5}, expected=1e-3, actual=0.5, unit=1e-3, allowed=1e-2,
        first_non_finite=text(),
    )  # fmt: skip


def _fix(random_: random.Random, text: Callable[[], str]) -> Fix:
    unit = KeptUnit(key=text(), op_types=(text(),), nodes=(text(),), tensors=(text(),), share=0.5)
    artefact = Artefact(
        kind=random_.choice((*_KINDS, text())), title=text(), path=random_.choice(("", text())), text=text(),
        verified=random_.choice((None, True, False)), error=1e-3, milliseconds=1.0, bytes=9, note=text(),
    )  # fmt: skip
    return Fix(
        state=random_.choice(_STATES), kept=(unit,), units=9, unit=random_.choice(("operator", text())),
        evaluations=3, on_engine=2, again=1, builds=2, simulation=text(), before=0.5, after=1e-3, limit=Reason(text()),
        samples=2, held_out=1, held=1, trade=(TradePoint(what=text(), kept=1, error=0.1, passes=True),),
        artefacts=(artefact,), obeyed=(text(),), settings={text(): [text()]}, notes=(Reason(text()),),
    )  # fmt: skip


def _portrait(random_: random.Random, name: str) -> Portrait:
    bins = Bins(edges=(0.0, 0.5, 1.0), counts=(3, 1))
    return Portrait(
        name=name, introduced=random_.random() < 0.5, base=bins, target=bins, sampled=4,
        errors=Bins(edges=(-3.0, -2.0), counts=(4,)),
        against=Density(magnitudes=(-1.0, 0.0), errors=(-3.0, -2.0), counts=((4,),)),
        map=ErrorMap(size=(2, 2), cells=((0.0, None), (0.5, 0.5))),
        channels=ErrorMap(size=(1, 3), cells=((0.1, 0.2, 0.3),)),
        worst=(Element(index=(0, 1), base=1.0, target=float("nan")),),
    )  # fmt: skip
