"""Keeps a Python worker of Spark, which runs one task after another, cheap between its tasks.

Before each task Spark invalidates the caches of imports. For each package that was imported from an archive
this reads the directory of the archive again; Spark's own archives have thousands of entries. After each
task it collects garbage over all modules. Both cost more than most tasks here.
"""

import gc
import os
import sys
from functools import cache
from zipimport import zipimporter


def prepare_next_task() -> None:
    """Forget the finders of Spark's archives, and keep all modules out of garbage collections.

    An import that needs such a finder makes it again, from the directory that `zipimport` keeps. Archives
    that users add to a running Spark are left alone, since their content may change. No effect in a process
    that runs a single task.
    """
    if "SPARK_REUSE_WORKER" not in os.environ:
        return
    archives = set(os.environ.get("PYTHONPATH", "").split(os.pathsep))
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter) and finder.archive in archives:
            del sys.path_importer_cache[path]
    _freeze_modules()


@cache
def _freeze_modules() -> None:
    gc.collect()
    gc.freeze()
