"""The readings of one table that verify compares, as one plan, and what their digests say.

In: the shared DataFrame and the direct one, and drawn filters with the shared rows that they hint at. Out:
the digests of all readings by one Spark job, and descriptions of those that differ.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import islice

from pyspark.sql import DataFrame

from gateway.spark.verify.digest import Digest, digests
from gateway.spark.verify.predicates import Predicate


@dataclass(frozen=True)
class Filtered:
    """The rows of a filter: shared, in the table, and as delta-spark reads them with data skipping on."""

    shared: Digest
    direct: Digest
    skipped: Digest


@dataclass(frozen=True)
class Found:
    """The digests of a table's readings. `uses`: what is shared and what is in the table, by their kind."""

    shared: Digest
    direct: Digest
    filtered: Sequence[Filtered] = ()
    uses: Mapping[str, tuple[Digest, Digest]] = field(default_factory=dict)


def read_all(
    shared: DataFrame,
    direct: DataFrame,
    drawn: Sequence[Predicate],
    hinted: Sequence[DataFrame],
    *,
    in_one_task: bool,
) -> Found:
    """Digest all readings of one table by one job, in which the table itself is read once.

    The rows of a filter in the table are those for which Spark finds it true among all rows.
    """
    conditions = [predicate.column for predicate in drawn]
    if not conditions:
        of_direct, of_shared = digests([direct, shared], in_one_task=in_one_task)
        return Found(of_shared, of_direct)
    first, last = conditions[0], conditions[-1]
    either = first | last
    uses = [
        reduce(DataFrame.unionByName, map(shared.where, (first, ~first, first.isNull()))),
        shared.where(first).unionByName(shared.where(last)),
        shared.where(either),
    ]
    frames = [direct, shared, *hinted, *map(direct.where, conditions), *uses]
    results = iter(digests(frames, [*conditions, either], in_one_task=in_one_task))
    of_direct, of_shared = next(results), next(results)
    count = len(conditions)
    of_hinted, of_skipped = list(islice(results, count)), list(islice(results, count))
    of_united, of_both, of_either = islice(results, len(uses))
    *of_filters, either_direct = results
    return Found(
        of_shared,
        of_direct,
        [Filtered(*each) for each in zip(of_hinted, of_filters, of_skipped, strict=True)],
        {
            "three filters that make up the whole, united": (of_united, of_direct),
            "two filters, united": (of_both, of_filters[0] + of_filters[-1]),
            "one filter or another": (of_either, either_direct),
        },
    )


def remark_on(result: Filtered) -> str | None:
    """Return a note when delta-spark itself reads other rows with data skipping on: no fault of the share."""
    if result.skipped == result.direct:
        return None
    return (
        f"delta-spark itself reads {result.skipped.rows} rows here with data skipping on, and others with it "
        "off: the statistics in the table's log do not hold for its rows, or are read wrongly"
    )


def use_differences(uses: Mapping[str, tuple[Digest, Digest]]) -> list[str]:
    """Describe the uses of one DataFrame, in one plan and in sequence, that did not have all rows."""
    return [
        f"{name}: {of_share.rows} rows shared, {of_table.rows} in the table"
        + (", but not the same" if of_share.rows == of_table.rows else "")
        for name, (of_share, of_table) in uses.items()
        if of_share != of_table
    ]
