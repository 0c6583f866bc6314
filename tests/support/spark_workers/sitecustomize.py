"""Prepares the daemons that fork Spark's Python workers: no archives on their path, the reader imported.

Spark puts the archives of its Python sources and the jar of its core first on the path. Before each task a
worker clears the caches of imports, which reads the directories of all archives again. After each task it
runs the garbage collector over all modules. In tasks of a few rows the two take nine tenths of a worker's
time. No setting replaces the daemons of workers that plan a read, so Python itself loads this as it starts.
"""

import gc
import sys

if sys.orig_argv[1:3] == ["-m", "pyspark.daemon"]:
    sys.path[:] = [entry for entry in sys.path if not entry.endswith((".zip", ".jar"))]
    sys.path_importer_cache.clear()

    import gateway.spark.source  # noqa: F401 - once for all workers

    gc.collect()
    gc.freeze()
