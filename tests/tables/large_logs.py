"""Large logs without data files: `bench/make_log.py`, which is a script and no package."""

import importlib.util
import sys
from types import ModuleType

from tools import ROOT

SCRIPT = ROOT / "bench" / "make_log.py"


def make_log(*, rows_per_group: int | None = None) -> ModuleType:
    """Imports a copy of the script as a module, optionally with another size of row groups."""
    spec = importlib.util.spec_from_file_location("make_log", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["make_log"] = module
    spec.loader.exec_module(module)
    if rows_per_group is not None:
        module.ROWS_PER_GROUP = rows_per_group
    return module
