"""Lists the Python packages and Rust crates of the artefacts: their bill of materials and their licences.

In: uv.lock, Cargo.lock and the metadata of the packages. Out: one CycloneDX document for both languages,
equal for equal locks, the packages whose licence is not allowed, and the texts that a wheel has to contain.
"""

import importlib.metadata
import json
import re
import tomllib
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
NATIVE = "delta-gateway-native"
NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "https://github.com/delta-sharing-gateway/delta-sharing-gateway")
_NOTICE = re.compile(r"(licen[cs]e|copying|copyright|notice)([-_.]|s\b|$)", re.IGNORECASE)
# Of Python packages, beside those that deny.toml allows for crates: none asks for the sources of a program
# that uses an unchanged package.
PYTHON_LICENSES = {"0BSD", "CC0-1.0", "LGPL-3.0-only", "MIT-0", "MIT-CMU", "MPL-2.0", "PSF-2.0"}
# Names of licences in the metadata of packages without an SPDX expression.
SPDX = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}


@dataclass(frozen=True, order=True)
class Component:
    """A package of another project.

    Attributes:
        kind: `pypi` or `cargo`, as in package URLs.
        name: name of the package.
        version: version in the lock file.
        license: SPDX expression.
        hashes: SHA-256 of its files.
        needs: package URLs of the components that it needs.

    """

    kind: str
    name: str
    version: str
    license: str
    hashes: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()

    @property
    def url(self) -> str:
        return f"pkg:{self.kind}/{self.name}@{self.version}"


def python_components(exported: Mapping[str, Any], installed: Path) -> list[Component]:
    """Return the packages of a document that uv exported from uv.lock.

    Licences are read in the directory `installed`, which has all packages.
    """
    urls = {one["bom-ref"]: one.get("purl", "") for one in exported["components"]}
    needs = {
        urls.get(one["ref"], ""): [urls[ref] for ref in one.get("dependsOn", []) if urls.get(ref)]
        for one in exported.get("dependencies", [])
    }
    found = {}
    for one in exported["components"]:
        if one.get("purl"):
            files = one.get("externalReferences", [])
            hashes = sorted(entry["content"] for file in files for entry in file.get("hashes", []))
            component = Component(
                kind="pypi",
                name=one["name"],
                version=one["version"],
                license=python_license(one["name"], installed),
                hashes=tuple(hashes),
                needs=tuple(sorted(needs[one["purl"]])),
            )
            found[component.url] = component
    return sorted(found.values())


def python_license(name: str, installed: Path) -> str:
    """Return the SPDX expression of a package; `unknown` if it is not installed."""
    found = list(importlib.metadata.distributions(name=name, path=[str(installed)]))
    if not found:
        return "unknown"
    metadata = found[0].metadata
    if expression := metadata.get("License-Expression"):
        return expression
    classifiers = [
        line.split(" :: ")[-1] for line in metadata.get_all("Classifier", []) if "License ::" in line
    ]
    text = (metadata.get("License") or "").strip()
    names = [SPDX.get(word, word) for word in classifiers] or [SPDX.get(text, text.partition("\n")[0])]
    return " AND ".join(names) or "unknown"


def rust_components(metadata: Mapping[str, Any]) -> list[Component]:
    """Return the crates that the native module is linked from or built by, of `cargo metadata`."""
    packages, nodes = _packages_and_nodes(metadata)
    checksums = {
        (package["name"], package["version"]): package.get("checksum")
        for package in tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
    }

    def component(one: str) -> Component:
        package = packages[one]
        checksum = checksums.get((package["name"], package["version"]))
        needs = sorted(
            f"pkg:cargo/{packages[needed]['name']}@{packages[needed]['version']}"
            for needed in _needed(nodes[one])
        )
        # Crates from before SPDX expressions separate alternatives by a slash.
        expression = re.sub(r"\s*/\s*", " OR ", package["license"] or "unknown")
        return Component(
            "cargo",
            package["name"],
            package["version"],
            expression,
            (checksum,) if checksum else (),
            tuple(needs),
        )

    return sorted(component(one) for one in _reached(packages, nodes))


def notices(metadata: Mapping[str, Any]) -> str:
    """Return the licences and notices of the crates that are within the native module, each text once."""
    packages, nodes = _packages_and_nodes(metadata)
    texts: dict[str, list[str]] = {}
    for package in (packages[one] for one in _reached(packages, nodes)):
        # Own crates have no source: their licence is that of the package.
        if package["source"] is not None:
            files = Path(package["manifest_path"]).parent.iterdir()
            found = sorted(file.read_text().strip() for file in files if _is_notice(file))
            for text in found or [f"SPDX-License-Identifier: {package['license']}"]:
                texts.setdefault(text, []).append(f"{package['name']} {package['version']}")
    parts = sorted(f"{', '.join(sorted(names))}\n\n{text}\n" for text, names in texts.items())
    return f"\n{'=' * 80}\n".join(parts)


def _is_notice(file: Path) -> bool:
    return _NOTICE.match(file.name) is not None and file.is_file()


def _packages_and_nodes(metadata: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    return (
        {package["id"]: package for package in metadata["packages"]},
        {node["id"]: node for node in metadata["resolve"]["nodes"]},
    )


def _reached(packages: Mapping[str, Any], nodes: Mapping[str, Any]) -> set[str]:
    (root,) = [one for one, package in packages.items() if package["name"] == NATIVE]
    reached, waiting = {root}, [root]
    while waiting:
        for needed in _needed(nodes[waiting.pop()]):
            if needed not in reached:
                reached.add(needed)
                waiting.append(needed)
    return reached


def _needed(node: Mapping[str, Any]) -> list[str]:
    return [one["pkg"] for one in node["deps"] if any(kind["kind"] != "dev" for kind in one["dep_kinds"])]


def bill_of_materials(version: str, components: list[Component], seconds: int) -> str:
    """Return a CycloneDX 1.5 document."""
    listed = [_listed(one) for one in components]
    own = f"pkg:pypi/delta-sharing-gateway@{version}"
    known = {one.url for one in components}
    depends = [
        {"ref": one.url, "dependsOn": [url for url in one.needs if url in known]} for one in components
    ]
    needed = {url for one in components for url in one.needs}
    roots = sorted(known - needed)
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z"),
            "component": {
                "type": "application",
                "bom-ref": own,
                "name": "delta-sharing-gateway",
                "version": version,
                "purl": own,
                "licenses": [{"expression": "Apache-2.0"}],
            },
        },
        "components": listed,
        "dependencies": [{"ref": own, "dependsOn": roots}, *depends],
    }
    # By the content: two builds of one commit have one number.
    serial = uuid.uuid5(NAMESPACE, json.dumps(document, sort_keys=True))
    return json.dumps({"serialNumber": f"urn:uuid:{serial}", **document}, indent=1) + "\n"


def _listed(one: Component) -> dict[str, Any]:
    listed = {
        "type": "library",
        "bom-ref": one.url,
        "name": one.name,
        "version": one.version,
        "purl": one.url,
        "licenses": [{"expression": one.license}],
    }
    if len(one.hashes) == 1:
        return {**listed, "hashes": [{"alg": "SHA-256", "content": one.hashes[0]}]}
    # A Python package has several files, of which an installation takes one.
    files = [{"name": "delta-gateway:sha256", "value": value} for value in one.hashes]
    return {**listed, "properties": files} if files else listed


def allowed_licenses(kind: str) -> set[str]:
    """Return the accepted SPDX identifiers for packages of a kind."""
    allowed = set(tomllib.loads((ROOT / "deny.toml").read_text())["licenses"]["allow"])
    return allowed | PYTHON_LICENSES if kind == "pypi" else allowed


def refused(components: list[Component]) -> Iterator[Component]:
    """Yield the components whose licence is not allowed."""
    for component in components:
        if not is_allowed(component.license, allowed_licenses(component.kind)):
            yield component


def is_allowed(expression: str, allowed: set[str]) -> bool:
    """Return whether allowed licences can meet an SPDX expression. AND binds more than OR, as in Python."""
    operators = {"(": "(", ")": ")", "AND": "and", "OR": "or"}
    words = re.findall(r"[()]|[^\s()]+(?: WITH [^\s()]+)?", expression)
    # Of operators, parentheses, True and False alone.
    condition = " ".join(operators.get(word) or str(word in allowed) for word in words)
    try:
        return bool(eval(condition))
    except (SyntaxError, TypeError):
        return False


def license_list(components: list[Component]) -> str:
    """Return the components by licence, as Markdown."""
    lines = ["# Licences of the dependencies", ""]
    for expression in sorted({one.license for one in components}):
        names = [f"{one.name} {one.version}" for one in components if one.license == expression]
        lines += [f"- {expression}: {', '.join(names)}"]
    return "\n".join(lines) + "\n"
