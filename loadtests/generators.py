"""The load: locust for users whose answers are checked, hey for the highest rate of requests.

Locust runs all users of a process in one loop, so a user who checks a million lines would delay the clock of
one who waits for a single line. Users with small answers therefore run in a separate process.
"""

import csv
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from baseline import TABLE

HERE = Path(__file__).resolve().parent
HEY = "github.com/rakyll/hey@v0.1.5"
HEY_CLIENTS = 64
# hey sends the same number per client and drops the remainder.
HEY_REQUESTS = HEY_CLIENTS * 320

WEIGHTS: Mapping[str, Mapping[str, int]] = {
    "quick": {"Discovery": 40, "WrongToken": 4},
    "small": {"SmallQuery": 25, "Pages": 10, "Changes": 5, "Refresh": 5},
    "long": {"FullListing": 3, "CutStream": 4, "SlowReader": 4},
}
"""The processes of locust, and the weights of the users in each."""


def weight_of(kind: str) -> int:
    return next(kinds[kind] for kinds in WEIGHTS.values() if kind in kinds)


@dataclass(frozen=True)
class Load:
    """Users, duration and shape of the load, and its target."""

    users: int
    seconds: int
    shape: str
    url: str
    token: str
    report: Path


def users_of(users: int) -> dict[str, int]:
    """Divide the users among the processes; at least one of each kind."""
    total = sum(sum(kinds.values()) for kinds in WEIGHTS.values())
    parts = {
        name: max(len(kinds), round(users * sum(kinds.values()) / total)) for name, kinds in WEIGHTS.items()
    }
    parts["quick"] = max(len(WEIGHTS["quick"]), parts["quick"] + users - sum(parts.values()))
    return parts


def run_locust(load: Load, expectations: Path) -> bool:
    """Run all processes to their end; return whether each exited with code 0."""
    running = [_start(name, users, load, expectations) for name, users in users_of(load.users).items()]
    codes = [process.wait() for process in running]
    return not any(codes)


def _start(name: str, users: int, load: Load, expectations: Path) -> subprocess.Popen[bytes]:
    environment = os.environ | {
        "LOADTEST_BASELINE": str(expectations),
        "LOADTEST_TOKEN": load.token,
        "LOADTEST_USERS": str(users),
        "LOADTEST_SECONDS": str(load.seconds),
        "LOADTEST_SHAPE": load.shape,
        "PYTHONPATH": str(HERE),
    }
    command = [sys.executable, "-m", "locust", "-f", str(HERE / "locustfile.py"), "--headless"]
    command += ["--host", load.url, "--only-summary", "--stop-timeout", "60", "--csv-full-history"]
    command += ["--csv", str(load.report / name), "--html", str(load.report / f"locust-{name}.html")]
    with (load.report / f"locust-{name}.log").open("wb") as log:
        return subprocess.Popen([*command, *WEIGHTS[name]], env=environment, stdout=log, stderr=log)


def kinds(report: Path) -> list[dict[str, Any]]:
    """Return counts and times of each kind of request."""
    rows = [row for name in WEIGHTS for row in csv.DictReader((report / f"{name}_stats.csv").open())]
    return [_kind(row) for row in rows if row["Name"] != "Aggregated"]


def _kind(row: Mapping[str, str]) -> dict[str, Any]:
    return {
        "name": row["Name"],
        "requests": int(row["Request Count"]),
        "failures": int(row["Failure Count"]),
        "p50_ms": row["50%"],
        "p99_ms": row["99%"],
        "max_ms": row["Max Response Time"],
        "per_second": round(float(row["Requests/s"]), 2),
    }


def history(report: Path) -> list[dict[str, float]]:
    """Return users and requests of each second, and the 99th percentile of the quick ones."""
    seconds: dict[float, dict[str, float]] = {}
    for name in WEIGHTS:
        for row in _aggregated(report / f"{name}_stats_history.csv"):
            second = _number(row["Timestamp"])
            at = seconds.setdefault(second, {"second": second, "users": 0.0, "requests": 0.0, "p99_ms": 0.0})
            at["users"] += _number(row["User Count"])
            at["requests"] += _number(row["Requests/s"])
            if name == "quick":
                at["p99_ms"] = _number(row["99%"])
    return [seconds[second] for second in sorted(seconds)]


def _aggregated(path: Path) -> Iterable[dict[str, str]]:
    return (row for row in csv.DictReader(path.open()) if row["Name"] == "Aggregated")


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def ceiling(url: str, token: str, hey: Path) -> dict[str, str]:
    """Return the requests per second of discovery and of a table's version, by a cheap generator."""
    return {
        path: _requests_per_second(hey, f"{url}{path}", token) for path in ("/shares", f"{TABLE}/version")
    }


def _requests_per_second(hey: Path, url: str, token: str) -> str:
    load = ["-n", str(HEY_REQUESTS), "-c", str(HEY_CLIENTS), "-H", f"Authorization: Bearer {token}"]
    output = subprocess.run([str(hey), *load, url], check=True, capture_output=True, text=True).stdout
    answered = "".join(line for line in output.splitlines() if "[200]" in line).split()
    if answered[1:2] != [str(HEY_REQUESTS)]:
        raise SystemExit(f"hey was not answered by {HEY_REQUESTS} times 200: {output[-500:]}")
    figure = next(line.split(":")[1].strip() for line in output.splitlines() if "Requests/sec" in line)
    return f"{float(figure):,.0f} a second"


def find_hey(cache: Path) -> Path | None:
    """Return the path of hey, which Go installs if it is missing; None without Go."""
    places = [os.environ.get("PATH", ""), str(Path.home() / "go/bin"), "/usr/local/go/bin", str(cache)]
    found = shutil.which("hey", path=os.pathsep.join(places))
    if found is not None:
        return Path(found)
    go = shutil.which("go", path=os.pathsep.join(places))
    if go is None:
        return None
    cache.mkdir(parents=True, exist_ok=True)
    subprocess.run([go, "install", HEY], check=True, env=os.environ | {"GOBIN": str(cache)})
    return cache / "hey"


def slope_percent_per_hour(samples: Sequence[tuple[float, int]]) -> float:
    """Return the slope of a line through (second, bytes) in percent of the mean per hour."""
    if len(samples) < 2:
        return 0.0
    seconds, sizes = zip(*samples, strict=True)
    return statistics.linear_regression(seconds, sizes).slope / statistics.fmean(sizes) * 3600 * 100
