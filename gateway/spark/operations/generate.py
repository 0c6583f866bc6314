"""Generates Delta tables of each feature that a reader must support, for tests, demos and load tests.

In: a root directory (or object store prefix), a seed, a size. Out: one table per recipe, written by Spark
in several commits. The same seed and size give the same rows and history; Delta chooses the names of files.
"""

import itertools
import re
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from pyspark.sql import SparkSession

from gateway.spark.operations.recipes import RECIPES, Recipe
from gateway.spark.session import session_like
from gateway.spark.verify.digest import quoted

_RANDOM = re.compile(r"\br\((\d+)\)")


@dataclass(frozen=True)
class GeneratedTable:
    """A table that exists."""

    name: str
    location: str
    about: str


def generate(
    spark: SparkSession,
    root: str,
    *,
    rows: int = 1000,
    seed: int = 1,
    only: Iterable[str] | None = None,
    parallel: int = 4,
    progress: Callable[[str], None] = lambda _: None,
) -> list[GeneratedTable]:
    """Write the tables below `root`, several at a time. The statements for a table that exists fail."""
    names = list(RECIPES if only is None else only)
    unknown = [name for name in names if name not in RECIPES]
    if unknown:
        raise ValueError(f"no such table: {', '.join(unknown)}; there are {', '.join(RECIPES)}")

    def make(name: str) -> GeneratedTable:
        table = GeneratedTable(name, f"{root.rstrip('/')}/{name}", RECIPES[name].about)
        settings = RECIPES[name].settings
        session = session_like(spark, settings) if settings else spark
        for statement in statements_of(RECIPES[name], table.location, rows, seed):
            session.sql(statement)
        progress(f"{name}: {table.about}")
        return table

    with ThreadPoolExecutor(parallel) as pool:
        return list(pool.map(make, names))


def statements_of(recipe: Recipe, location: str, rows: int, seed: int) -> list[str]:
    """Return a recipe's statements for one table."""
    words = {"t": f"delta.{quoted(location)}", "rows": f"range({rows})"}
    return [
        _with_random_numbers(statement.format(**words), seed + index)
        for index, statement in enumerate(recipe.statements)
    ]


def _with_random_numbers(statement: str, seed: int) -> str:
    """Replace every `r(k)`. Each one draws other numbers, from the row's id and its position."""
    places = itertools.count(seed * 1000)
    return _RANDOM.sub(
        lambda match: f"cast(pmod(xxhash64(id, {next(places)}), {match[1]}) AS INT)", statement
    )
