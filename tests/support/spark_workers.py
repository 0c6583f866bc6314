"""The daemon that forks Spark's Python workers, without archives on their path and with the reader imported.

Spark puts the archives of its Python sources and the jar of its core first on the path. Before each task a
worker clears the caches of imports, which reads the directories of all archives again. After each task it
runs the garbage collector over all modules. In tasks of a few rows the two take nine tenths of a worker's
time. Workers that plan a read have Spark's own daemon, which no setting replaces.
"""

import gc
import sys


def main() -> None:
    """Runs Spark's own daemon."""
    sys.path[:] = [entry for entry in sys.path if not entry.endswith((".zip", ".jar"))]
    sys.path_importer_cache.clear()
    from pyspark.daemon import manager  # noqa: PLC0415 - not from an archive

    import gateway.spark.source  # noqa: F401, PLC0415 - once for all workers

    gc.collect()
    gc.freeze()
    manager()


if __name__ == "__main__":
    main()
