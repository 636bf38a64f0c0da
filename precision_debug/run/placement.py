"""Where numbers are computed: on the tensors' own device where a backend can, otherwise in the host's memory."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

from ..numbers.host import HostComparer
from ..protocols import BaselineStore, Comparer
from .plan import Opening

__all__ = ["Placement", "choose_placement", "place_on_host", "settled"]


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Both sides, which know of the comparer that they show to.

    store: where the baseline's tensors wait on their own device; None: in the host's memory.
    """

    comparer: Comparer
    baseline: Opening
    target: Opening
    store: BaselineStore | None = None


def choose_placement(baseline: Opening, target: Opening, *, together: bool) -> Placement:
    """Choose the comparer. together: both runs advance side by side."""
    able = target.capabilities
    if together and baseline.backend is target.backend and able.on_device is not None:
        tools = able.on_device.on_device(baseline.spec, target.spec)
        if tools is not None:
            comparer, store = tools
            return Placement(
                comparer=comparer, baseline=_showing_to(comparer, baseline), target=_showing_to(comparer, target),
                store=store,
            )  # fmt: skip
    if not together and able.on_device_alone is not None:
        alone = able.on_device_alone.on_device_alone(baseline.spec, target.spec)
        if alone is not None:
            return Placement(comparer=alone, baseline=baseline, target=_showing_to(alone, target))
    return place_on_host(baseline, target)


def place_on_host(baseline: Opening, target: Opening) -> Placement:
    """Compare in the host's memory, whatever the backends can."""
    return Placement(comparer=HostComparer(), baseline=baseline, target=target)


@contextlib.contextmanager
def settled(comparer: Comparer) -> Iterator[None]:
    """What was under way at the end is finished and told, also where a run failed."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(Exception):
            comparer.settle()
        raise
    comparer.settle()


def _showing_to(comparer: Comparer, side: Opening) -> Opening:
    return dataclasses.replace(side, comparer=comparer)
