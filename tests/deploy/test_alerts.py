"""The alert rules of the package, by Prometheus's own tool: their syntax, and when each one fires."""

import shutil
import subprocess
from pathlib import Path

import tools
import yaml

RULES = tools.ROOT / "gateway/telemetry/dashboards/alerts.yaml"
CASES = Path(__file__).with_name("alerts_test.yaml")


def promtool(*arguments):
    return subprocess.run(
        [tools.program("promtool"), *arguments], capture_output=True, text=True, check=False
    )


def test_prometheus_accepts_the_rules():
    checked = promtool("check", "rules", "--lint=all", "--lint-fatal", RULES)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_each_alert_fires_when_it_should_and_not_before(tmp_path):
    cases, rules = yaml.safe_load(CASES.read_text()), yaml.safe_load(RULES.read_text())
    described = {rule["alert"]: rule for group in rules["groups"] for rule in group["rules"]}
    fired = set()
    for one in (one for case in cases["tests"] for one in case["alert_rule_test"]):
        for alert in one.get("exp_alerts", []):
            # Annotations are texts for people; only their variables are the rule's own.
            texts = described[one["alertname"]]["annotations"]
            for name, value in alert["exp_labels"].items():
                variable = f"{{{{ $labels.{name} }}}}"
                texts = {key: text.replace(variable, value) for key, text in texts.items()}
            alert["exp_annotations"] = texts
            fired.add(one["alertname"])
    assert fired == set(described)
    shutil.copy(RULES, tmp_path)
    (tmp_path / "cases.yaml").write_text(yaml.safe_dump(cases))
    tested = promtool("test", "rules", tmp_path / "cases.yaml")
    assert tested.returncode == 0, tested.stdout + tested.stderr


def test_a_case_that_expects_too_much_fails(tmp_path):
    shutil.copy(RULES, tmp_path)
    alert = {
        "eval_time": "1m",
        "alertname": "GatewayErrors",
        "exp_alerts": [{"exp_labels": {"severity": "page"}}],
    }
    case = {"interval": "1m", "input_series": [], "alert_rule_test": [alert]}
    (tmp_path / "cases.yaml").write_text(yaml.safe_dump({"rule_files": ["alerts.yaml"], "tests": [case]}))
    assert promtool("test", "rules", tmp_path / "cases.yaml").returncode != 0


def test_every_alert_has_a_severity_and_an_action():
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        for rule in group["rules"]:
            assert rule["labels"]["severity"] in {"page", "ticket"}
            assert rule["annotations"]["action"]
