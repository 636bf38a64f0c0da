"""Errors of ours keep their kind, and so their exit status, from one process to another."""

from __future__ import annotations

import pytest
from approval import is_approved

from precision_debug import errors
from precision_debug.run.child import make_error, make_failure_event


class NothingLeft(errors.ModelError):
    """As a backend has them to itself."""


@pytest.mark.parametrize("kind", [errors.UsageError, errors.ModelError, errors.BackendError, NothingLeft])
def test_an_error_ends_with_the_status_of_its_kind(kind: type[errors.PrecisionDebugError]) -> None:
    """Before, a model of which the quantiser leaves everything in float (silero VAD in an If) ended with 3, as if an
    engine had failed: a subclass that only its backend knows."""
    sent = make_error(make_failure_event(kind("nothing is quantised", where="vad.onnx", hint="choose another mode")))
    assert isinstance(sent, errors.ModelError if kind is NothingLeft else kind)
    assert sent.exit_status == kind.exit_status
    assert is_approved(str(sent))
