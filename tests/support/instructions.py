"""The instructions of one module that a call runs, to compare the work of two refusals."""

import sys
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any

import pytest


def instructions(
    module: ModuleType, call: Callable[[], Any], *, raises: type[Exception]
) -> list[tuple[str, int]]:
    """Every instruction of the module that the call runs, which ends in an error."""
    seen: list[tuple[str, int]] = []

    def tracing(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename != module.__file__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            seen.append((frame.f_code.co_qualname, frame.f_lasti))
        return tracing

    before = sys.gettrace()
    sys.settrace(tracing)
    try:
        with pytest.raises(raises):
            call()
    finally:
        sys.settrace(before)
    return seen
