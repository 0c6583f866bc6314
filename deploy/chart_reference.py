"""Writes the README of the chart from the comments of its values: `python3 deploy/chart_reference.py`.

A value is described by the comment `# -- TEXT` above it. Needs PyYAML.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).resolve().parent / "chart"
MARK = "# -- "
HEAD = """# {name}

{description}. Chart {version}, gateway {app_version}, Kubernetes {kube_version}.

```bash
helm install sharing deploy/chart --values values.yaml
```

[Install](../../docs/install.md#kubernetes) has an example of values. The schema `values.schema.json` checks
them, and values that would not work together are refused with the reason.

| value | default | meaning |
| --- | --- | --- |
"""


def reference() -> str:
    """Return the text of the README."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    text = (CHART / "values.yaml").read_text()
    defaults = yaml.safe_load(text)
    head = HEAD.format(
        name=chart["name"],
        description=chart["description"],
        version=chart["version"],
        app_version=chart["appVersion"],
        kube_version=chart["kubeVersion"],
    )
    rows = [
        f"| `{path}` | {_default(defaults, path)} | {description} |" for path, description in described(text)
    ]
    return head + "\n".join(rows) + "\n"


def described(text: str) -> Iterator[tuple[str, str]]:
    """Yield the path and the description of each value of a values file."""
    parents: list[tuple[int, str]] = []
    description: str | None = None
    for line in text.splitlines():
        words = line.strip()
        indent = len(line) - len(line.lstrip())
        if words.startswith(MARK):
            description = words.removeprefix(MARK)
        elif words and not words.startswith(("#", "-")):
            name = words.partition(":")[0]
            parents = [parent for parent in parents if parent[0] < indent]
            parents.append((indent, name))
            if description is not None:
                yield ".".join(name for _, name in parents), description.replace("|", "\\|")
            description = None


def _default(values: Any, path: str) -> str:
    for name in path.split("."):
        values = values[name]
    return f"`{json.dumps(values)}`"


if __name__ == "__main__":
    (CHART / "README.md").write_text(reference())
    sys.exit(0)
