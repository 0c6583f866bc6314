"""A gateway that shares Delta tables of millions of files over the Delta Sharing protocol.

Raises ImportError when the native module is not there: in a source folder that is not built.
"""

import importlib.util
from pathlib import Path

# `find_spec` does not load the module: a command that needs no native code starts without it.
if importlib.util.find_spec("gateway._native") is None:
    _folder = Path(__file__).resolve().parent.parent
    # The name makes `python -m gateway` report one line instead of a traceback.
    raise ImportError(
        f"the native module is not built in {_folder}: run `pip install -e .` there, "
        "or start Python with -P or in another directory to use an installed package",
        name=__name__,
    )
