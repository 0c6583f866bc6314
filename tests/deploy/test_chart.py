"""The Helm chart: what it renders for which values, by the schemas of Kubernetes and of the gateway."""

import json
import logging
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import jsonschema_rs
import pytest
import tools
import yaml
from support.configuration_reference import sections

from gateway.config import loads
from gateway.config.effects import EFFECTS, Effect

CHART = tools.ROOT / "deploy/chart"
KUBERNETES = ("1.27", "1.37")
PACKAGED = tools.ROOT / "gateway/telemetry/dashboards"
OPERATOR_SCHEMAS = "example/prometheus-operator-crd/monitoring.coreos.com"
OPERATOR = "github.com/prometheus-operator/prometheus-operator@v0.85.0"
# Modules with their versions, and their files of the Gateway API and the Prometheus operator.
CUSTOM_RESOURCES = (
    (
        "sigs.k8s.io/gateway-api@v1.6.1",
        "config/crd/standard/gateway.networking.k8s.io_httproutes.yaml",
    ),
    (OPERATOR, f"{OPERATOR_SCHEMAS}_servicemonitors.yaml"),
    (OPERATOR, f"{OPERATOR_SCHEMAS}_prometheusrules.yaml"),
)
SECRET_VARIABLE = {
    "name": "DATABASE_URL",
    "valueFrom": {"secretKeyRef": {"name": "database", "key": "url"}},
}
MANY = {
    "replicas": 3,
    "workers": 2,
    "database": {"enabled": False},
    "tokenKeys": [
        {"id": "new", "existingSecret": "keys", "key": "new"},
        {"id": "old", "existingSecret": "keys"},
    ],
    "storages": [
        {"prefix": "s3://a/", "existingSecret": "store", "region": "eu-central-1", "sessionToken": True},
        {"prefix": "s3://b/", "region": "eu-central-1"},
        {
            "prefix": "abfss://data@acct.dfs.core.windows.net/",
            "existingSecret": "azure",
            "credential": "accountKey",
        },
        {
            "prefix": "abfss://other@acct2.dfs.core.windows.net/",
            "existingSecret": "client",
            "credential": "clientSecret",
            "tenantId": "t1",
            "clientId": "c1",
        },
        {"prefix": "gs://bucket/", "existingSecret": "google", "credential": "credentialsFile"},
    ],
    "tls": {"existingSecret": "certificate"},
    "admin": {"existingSecret": "admin", "metricsExistingSecret": "metrics"},
    "config": {
        "shares": [{"name": "sales", "schemas": []}],
        "gateway": {
            "publicUrl": "https://sharing.example.com",
            "drainSeconds": 40,
            "recipients": [{"name": "acme", "tokens": [{"sha256": "0" * 64}], "shares": ["sales"]}],
            "storages": [{"prefix": "s3://c/", "region": "us-east-1"}],
        },
    },
    "restartOnConfigChange": True,
    "ingress": {
        "enabled": True,
        "className": "nginx",
        "annotations": {"nginx.ingress.kubernetes.io/proxy-buffering": "off"},
        "hosts": ["sharing.example.com"],
        "tls": [{"secretName": "certificate", "hosts": ["sharing.example.com"]}],
    },
    "httpRoute": {"enabled": True, "parentRefs": [{"name": "gateway"}], "hostnames": ["sharing.example.com"]},
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "prometheusRule": {"enabled": True},
    "dashboard": {"enabled": True},
    "networkPolicy": {
        "enabled": True,
        "from": [{"ipBlock": {"cidr": "192.0.2.0/24"}}],
        "adminFrom": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}],
        "egress": [{"ports": [{"port": 9000, "protocol": "TCP"}]}],
    },
    "serviceAccount": {
        "annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::123456789012:role/sharing"}
    },
    "podLabels": {"team": "data"},
    "podAnnotations": {"note": "text"},
    "extraEnv": [{"name": "AWS_REGION", "value": "eu-central-1"}],
    "extraVolumes": [{"name": "tables", "emptyDir": {}}],
    "extraVolumeMounts": [{"name": "tables", "mountPath": "/tables"}],
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "tolerations": [{"key": "dedicated", "operator": "Exists"}],
    "affinity": {"podAntiAffinity": {}},
    "priorityClassName": "high",
    "imagePullSecrets": [{"name": "registry"}],
}
SCALED = {**MANY, "autoscaling": {"enabled": True}}
VALUES = {"default": {}, "many": MANY, "scaled": SCALED}


def helm(*arguments, text=None):
    command = [tools.program("helm"), *arguments]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=False)


def template(values, kubernetes=KUBERNETES[-1]):
    return templated(yaml.safe_dump(values), kubernetes)


@cache
def templated(values, kubernetes):
    """What helm says of the text of some values, with which several tests begin."""
    options = ["--kube-version", f"{kubernetes}.0", "--namespace", "sharing", "--values", "-"]
    return helm("template", "demo", CHART, *options, text=values)


def rendered(values, kubernetes=KUBERNETES[-1]):
    ended = template(values, kubernetes)
    assert ended.returncode == 0, ended.stderr
    return [document for document in yaml.safe_load_all(ended.stdout) if document]


def the(kind, documents, suffix=""):
    name = f"demo-delta-sharing-gateway{suffix}"
    (found,) = [one for one in documents if (one["kind"], one["metadata"]["name"]) == (kind, name)]
    return found


def configuration(documents):
    environment = {
        "CACHE_DIRECTORY": "/var/cache/delta-gateway",
        "STATE_DIRECTORY": "/var/lib/delta-gateway",
        "CREDENTIALS_DIRECTORY": "/run/secrets",
        "ADMIN_TOKEN_SHA256": "a" * 64,
        "METRICS_TOKEN_SHA256": "b" * 64,
    }
    return the("ConfigMap", documents)["data"]["share.yaml"], environment


def merged(values, **changes):
    return json.loads(json.dumps({**values, **changes}))


def test_the_linter_of_helm_finds_nothing_to_fix():
    ended = helm("lint", "--strict", "--kube-version", KUBERNETES[-1], CHART)
    assert ended.returncode == 0, ended.stdout


def kubernetes_schemas(kubernetes):
    """The definitions of a version of Kubernetes, from the package kubernetes-validate."""
    packages = tools.environment("release").parent.glob("lib/python*/site-packages")
    folder = f"kubernetes_validate/kubernetes-json-schema/v{kubernetes}.0-local-strict"
    (path,) = [directory / folder / "_definitions.json" for directory in packages]
    return json.loads(path.read_text())


@pytest.mark.parametrize("kubernetes", KUBERNETES)
def test_kubernetes_accepts_the_manifests(kubernetes):
    schemas = kubernetes_schemas(kubernetes)
    names = {
        (one["group"], one["version"], one["kind"]): name
        for name, definition in schemas["$defs"].items()
        for one in definition.get("x-kubernetes-group-version-kind", [])
    }
    manifests, used = {}, set()
    for values in VALUES.values():
        for document in rendered(values, kubernetes):
            group, _, version = document["apiVersion"].rpartition("/")
            if group not in custom_schemas():
                name = names[group, version, document["kind"]]
                manifests[f"{name} {len(manifests)}"] = document
                used.add(name)
    # One schema for all manifests: its compilation takes longer than they do.
    patterns = {f"^{name} ": {"$ref": f"#/$defs/{name}"} for name in used}
    jsonschema_rs.validator_for({**schemas, "patternProperties": patterns}).validate(manifests)


def test_an_unknown_key_of_a_manifest_is_found():
    (deployment,) = [one for one in rendered({}) if one["kind"] == "Deployment"]
    deployment["spec"]["template"]["spec"]["replica"] = 1
    schemas = kubernetes_schemas(KUBERNETES[-1])
    root = {**schemas, "$ref": "#/$defs/io.k8s.api.apps.v1.Deployment"}
    validator = jsonschema_rs.validator_for(root)
    with pytest.raises(jsonschema_rs.ValidationError, match="replica"):
        validator.validate(deployment)


def custom_resources():
    """The schemas of custom resources that the chart uses, from the modules that define them."""

    def download():
        for module, path in CUSTOM_RESOURCES:
            source = json.loads(tools.output("go", "mod", "download", "-json", module))["Dir"]
            shutil.copy(Path(source) / path, tools.CACHE / "custom-resources")

    words = [f"{module}/{path}" for module, path in CUSTOM_RESOURCES]
    return tools.made(tools.CACHE / "custom-resources", words, download)


@cache
def custom_schemas():
    schemas = {}
    for path in custom_resources().iterdir():
        definition = yaml.safe_load(path.read_text())["spec"]
        versions = {
            version["name"]: version["schema"]["openAPIV3Schema"] for version in definition["versions"]
        }
        schemas.setdefault(definition["group"], {})[definition["names"]["kind"]] = versions
    return schemas


def strict(schema):
    """Refuse unknown keys, as the API server does with field validation."""
    if isinstance(schema, list):
        return [strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: strict(value) for key, value in schema.items()}
    if "properties" in schema and isinstance(schema["properties"], dict) and schema.get("type") == "object":
        open_keys = {"additionalProperties", "x-kubernetes-preserve-unknown-fields"} & set(schema)
        if not open_keys and schema["properties"]:
            closed["additionalProperties"] = False
    return closed


def test_custom_resources_follow_their_schemas():
    schemas = custom_schemas()
    checked = set()
    for document in rendered(MANY):
        group, _, version = document["apiVersion"].partition("/")
        if group in schemas:
            schema = strict(schemas[group][document["kind"]][version])
            schema["properties"]["metadata"] = {"type": "object"}
            jsonschema_rs.validator_for(schema).validate(document)
            checked.add(document["kind"])
    assert checked == {"HTTPRoute", "ServiceMonitor", "PrometheusRule"}


@pytest.mark.parametrize("name", VALUES)
def test_the_gateway_accepts_the_configuration_without_a_warning(name, tmp_path, caplog):
    text, environment = configuration(rendered(VALUES[name]))
    for secret, content in SECRETS.items():
        (tmp_path / secret).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / secret).write_text(content)
    with caplog.at_level(logging.WARNING):
        config = loads(text, environment={**environment, "CREDENTIALS_DIRECTORY": str(tmp_path)})
    expected = ["tokenKeys is missing"] if name == "default" else []
    assert [word for word in expected if word in caplog.text] == expected
    assert len(caplog.records) == len(expected), caplog.text
    assert config.port == 8080
    if name == "many":
        assert [key.id for key in config.gateway.token_keys] == ["new", "old"]
        storages = config.gateway.storages
        assert [getattr(storage, "session_token", None) is not None for storage in storages] == [
            True,
            *[False] * 5,
        ]
        assert storages[2].account_key is not None
        assert storages[3].client_secret is not None
        assert storages[4].credentials_file == tmp_path / "storages/google/credentials.json"
        assert config.gateway.drain_seconds == 40
        assert config.ssl is not None
        assert config.gateway.admin.ssl is not None


SECRETS = {
    **dict.fromkeys(["token-keys/keys/new", "token-keys/keys/token-key"], "a secret of at least 16 bytes"),
    **{f"storages/store/{key}": "text" for key in ("access-key-id", "secret-access-key", "session-token")},
    "storages/azure/account-key": "a2V5IG9mIGFuIGFjY291bnQ=",
    "storages/client/client-secret": "text",
    "storages/google/credentials.json": json.dumps(
        {
            "type": "external_account",
            "audience": "a",
            "subject_token_type": "t",
            "token_url": "https://a",
            "credential_source": {"file": "/token"},
        }
    ),
}


def test_every_secret_file_of_the_configuration_is_mounted():
    documents = rendered(MANY)
    text, _ = configuration(documents)
    pod = the("Deployment", documents)["spec"]["template"]["spec"]
    mounts = {mount["mountPath"]: mount["name"] for mount in pod["containers"][0]["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert set(mounts.values()) == set(volumes)
    assert "${CREDENTIALS_DIRECTORY}/storages/store/secret-access-key" in text
    assert volumes[mounts["/run/secrets/storages/store"]]["secret"]["secretName"] == "store"
    items = [source["secret"]["items"] for source in volumes["token-keys"]["projected"]["sources"]]
    assert items == [[{"key": "new", "path": "keys/new"}], [{"key": "token-key", "path": "keys/token-key"}]]


def test_another_order_of_secrets_changes_no_file_in_the_configuration_of_running_pods():
    def secret_files(values):
        gateway = yaml.safe_load(configuration(rendered(values))[0])["gateway"]
        keys = {(one["id"], one["secretFile"]) for one in gateway["tokenKeys"]}
        return keys | {(one["prefix"], one.get("secretAccessKeyFile")) for one in gateway["storages"]}

    turned = {name: MANY[name][::-1] for name in ("tokenKeys", "storages")}
    assert secret_files(MANY) == secret_files({**MANY, **turned})


def test_storages_may_share_a_secret():
    entries = [{"prefix": f"s3://{name}/", "existingSecret": "store"} for name in "ab"]
    pod = the("Deployment", rendered({"storages": entries}))["spec"]["template"]["spec"]
    mounts = [mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]]
    assert mounts.count("/run/secrets/storages/store") == 1


def test_the_server_chooses_the_memory_of_its_cache_unless_the_values_do():
    def cache(values):
        return yaml.safe_load(configuration(rendered(values))[0])["gateway"]["cache"]

    assert "memoryBytes" not in cache({"resources": {"limits": {"memory": "512Mi"}}})
    assert cache({"cache": {"memory": "1Gi"}})["memoryBytes"] == 1 << 30


def test_no_secret_is_in_the_manifests_as_text():
    documents = rendered(MANY)
    assert not [one for one in documents if one["kind"] == "Secret"]
    environment = the("Deployment", documents)["spec"]["template"]["spec"]["containers"][0]["env"]
    assert {entry["name"] for entry in environment if "valueFrom" in entry} == {
        "ADMIN_TOKEN_SHA256",
        "METRICS_TOKEN_SHA256",
    }


def test_no_secret_of_the_configuration_is_accepted_as_text():
    values, pointers = {}, set()
    for path in (key.path for section in sections() for key in section.keys if key.type == "secret"):
        if path == "gateway.database.url":
            continue
        place, (*names, last) = values, f"config.{path}".split(".")
        for name in names:
            below = place.setdefault(name.removesuffix("[]"), [{}] if name.endswith("[]") else {})
            place = below[0] if name.endswith("[]") else below
        place[last] = "text"
        pointers.add(
            "/" + "/".join(f"{name[:-2]}/0" if name.endswith("[]") else name for name in [*names, last])
        )
    refused = set(re.findall("at '([^']+)': 'text' does not match", template(values).stderr))
    assert refused == pointers


def test_a_secret_of_the_configuration_may_be_a_variable():
    text, _ = configuration(rendered({"config": {"authorization": {"bearerToken": "${TOKEN}"}}}))
    assert yaml.safe_load(text)["authorization"] == {"bearerToken": "${TOKEN}"}


def test_names_that_yaml_reads_as_other_types_stay_text():
    values = {
        "priorityClassName": "1",
        "tokenKeys": [{"id": "k", "existingSecret": "2", "key": "3"}],
        "storages": [{"prefix": "s3://a/", "existingSecret": "4"}],
        "tls": {"existingSecret": "5"},
        "admin": {"existingSecret": "on", "metricsExistingSecret": "null"},
        "database": {"storageClassName": "6"},
        "ingress": {"enabled": True, "className": "7", "hosts": ["host"]},
        "serviceMonitor": {"enabled": True},
    }
    documents = rendered(values)
    pod = the("Deployment", documents)["spec"]["template"]["spec"]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    (keys,) = volumes["token-keys"]["projected"]["sources"]
    names = [
        pod["priorityClassName"],
        keys["secret"]["name"],
        keys["secret"]["items"][0]["key"],
        volumes["storage-0"]["secret"]["secretName"],
        volumes["tls"]["secret"]["secretName"],
        the("PersistentVolumeClaim", documents, "-recipients")["spec"]["storageClassName"],
        the("Ingress", documents)["spec"]["ingressClassName"],
    ]
    assert names == list("1234567")
    environment = pod["containers"][0]["env"]
    assert [entry["valueFrom"]["secretKeyRef"]["name"] for entry in environment] == ["on", "null"]
    (endpoint,) = the("ServiceMonitor", documents)["spec"]["endpoints"]
    assert endpoint["authorization"]["credentials"]["name"] == "null"
    claimed = the("Deployment", rendered({"database": {"existingClaim": "8"}}))["spec"]["template"]["spec"]
    assert {"persistentVolumeClaim": {"claimName": "8"}, "name": "database"} in claimed["volumes"]


def test_the_names_of_services_are_short_enough():
    services = [
        document["metadata"]["name"]
        for document in rendered({"fullnameOverride": "a" * 70, "admin": {"existingSecret": "admin"}})
        if document["kind"] == "Service"
    ]
    assert [len(name) for name in services] == [63, 63]
    assert len(set(services)) == 2


@pytest.mark.parametrize("database", ["postgresql://db/x", {"url": "${DATABASE_URL}"}, {"urlFile": "/x"}])
def test_several_replicas_may_have_a_database_of_postgresql(database):
    values = merged(MANY, config={"gateway": {"database": database}}, extraEnv=[SECRET_VARIABLE])
    container = the("Deployment", rendered(values))["spec"]["template"]["spec"]["containers"][0]
    assert SECRET_VARIABLE in container["env"]


def egress_ports(documents):
    rules = the("NetworkPolicy", documents)["spec"]["egress"]
    return [entry["port"] for rule in rules for entry in rule["ports"]]


def test_a_network_policy_lets_the_pods_reach_all_that_the_configuration_names():
    catalog = {"url": "https://catalog.example.com:8443", "catalog": "c", "within": ["s3://a/"]}
    values = merged(
        MANY,
        networkPolicy={"enabled": True},
        storages=[{"prefix": "s3://a/", "endpoint": "http://minio:9000", "region": "x"}],
        config={
            "shares": [{"name": "s", "comment": "http://wiki:99", "tables": {"unityCatalog": catalog}}],
            "gateway": {
                "publicUrl": "http://sharing.example.com:8888",
                "database": "postgresql://user%40tenant@db1:6432,db2/gateway?sslmode=verify-full",
                "tracing": {"endpoint": "http://collector:4318/v1/traces"},
                "storages": [
                    {"prefix": "s3://b/", "endpoint": "http://store", "region": "x"},
                    {"prefix": "s3://c/", "endpoint": "https://store:443", "region": "x"},
                ],
            },
        },
    )
    assert egress_ports(rendered(values)) == [53, 53, 443, 6432, 5432, 8443, 9000, 80, 4318]
    for url, ports in (
        ("postgresql:///gateway?host=db&port=6000", [6000]),
        ("postgres://[::1]/gateway", [5432]),
        ("postgres://u@[::1]:7000/gateway", [7000]),
    ):
        values["config"]["gateway"]["database"] = {"url": url}
        assert egress_ports(rendered(values))[3:4] == ports


@pytest.mark.parametrize(
    ("gateway", "what"),
    [
        ({"database": {"url": "${DATABASE_URL}"}}, "the port of gateway.database is in a secret"),
        ({"database": {"urlFile": "/run/url"}}, "the port of gateway.database is in a secret"),
        (
            {"storages": [{"prefix": "s3://a/", "endpoint": "${STORE}", "region": "x"}]},
            "the port of the endpoint of s3://a/ is in a secret",
        ),
    ],
)
def test_a_port_that_is_in_a_secret_has_to_be_in_the_network_policy(gateway, what):
    values = {"database": {"enabled": False}, "config": {"gateway": gateway}}
    ended = template({**values, "networkPolicy": {"enabled": True}})
    assert (ended.returncode != 0, what in ended.stderr) == (True, True), ended.stderr
    named = {"enabled": True, "egress": [{"ports": [{"port": 5432, "protocol": "TCP"}]}]}
    assert egress_ports(rendered({**values, "networkPolicy": named})) == [53, 53, 443, 5432]


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"replicas": 2}, "SQLite has one writer"),
        ({"autoscaling": {"enabled": True}}, "SQLite has one writer"),
        (
            merged(MANY, config={"gateway": {"recipientsDatabase": "/shared/recipients.db"}}),
            "SQLite has one writer",
        ),
        (merged(MANY, config={"gateway": {"database": "sqlite:////shared/r.db"}}), "SQLite has one writer"),
        (merged(MANY, config={"gateway": {"database": {"url": "sqlite:///r.db"}}}), "SQLite has one writer"),
        (merged(MANY, tokenKeys=[]), "several replicas need common tokenKeys"),
        ({"terminationGracePeriodSeconds": 35}, "is not more than the 35 s"),
        (merged(MANY, terminationGracePeriodSeconds=45), "streams would be cut"),
        ({"serviceMonitor": {"enabled": True}}, "needs admin.existingSecret"),
        ({"ingress": {"enabled": True}}, "needs ingress.hosts"),
        ({"httpRoute": {"enabled": True}}, "needs httpRoute.parentRefs"),
        ({"cache": {"memory": "half"}}, "does not match pattern"),
        ({"config": None}, "missing property 'config'"),
        ({"replica": 2}, "additional properties 'replica' not allowed"),
        ({"image": {"digest": "latest"}}, "does not match pattern"),
        ({"storages": [{"prefix": "s3://a/", "secretAccessKey": "in the values"}]}, "storages"),
        ({"storages": [{"prefix": "s3://a/", "cloudflareApiToken": "in the values"}]}, "cloudflareApiToken"),
        ({"config": {"gateway": {"database": "postgresql://u:text@host/d"}}}, "gateway/database"),
        (
            {"config": {"gateway": {"database": {"url": "postgresql://u@host/d?password=text"}}}},
            "gateway/database/url",
        ),
        ({"config": {"shares": [{"name": False}]}}, "shares/0/name': got boolean, want string"),
        ({"storages": [{"prefix": "s3://a/", "externalId": 83}]}, "externalId': got number, want string"),
        ({"config": {"gateway": {"admin": {"port": 9000}}}}, "gateway/admin/port"),
        ({"config": {"gateway": {"admin": {"oidc": {}}}}}, "needs admin.existingSecret"),
    ],
)
def test_values_that_would_not_work_are_refused_with_the_reason(values, reason):
    ended = template(values)
    assert ended.returncode != 0
    assert reason in ended.stderr


def test_a_pod_with_the_database_is_replaced_and_others_roll():
    (default, many) = (the("Deployment", rendered(values))["spec"] for values in ({}, MANY))
    assert default["strategy"] == {"type": "Recreate"}
    assert many["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    assert (default["replicas"], many["replicas"]) == (1, 3)
    assert "replicas" not in the("Deployment", rendered(SCALED))["spec"]


def test_the_pod_runs_without_root_and_without_a_writable_root():
    pod = the("Deployment", rendered({}))["spec"]["template"]["spec"]
    container = pod["containers"][0]
    assert pod["securityContext"]["runAsNonRoot"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert not pod["automountServiceAccountToken"]


def test_the_probes_speak_the_protocol_of_the_server():
    for values, scheme in (({}, "HTTP"), (MANY, "HTTPS")):
        container = the("Deployment", rendered(values))["spec"]["template"]["spec"]["containers"][0]
        probes = [container[name]["httpGet"] for name in ("startupProbe", "livenessProbe", "readinessProbe")]
        assert [probe["scheme"] for probe in probes] == [scheme] * 3
        assert [probe["path"] for probe in probes] == ["/healthz", "/healthz", "/readyz"]


def test_a_changed_configuration_starts_new_pods_only_if_the_values_say_so():
    def pods(name, values):
        shares = {"shares": [{"name": name, "schemas": []}]}
        return the("Deployment", rendered({**values, "config": shares}))["spec"]["template"]

    restart = {"restartOnConfigChange": True}
    assert pods("a", {}) == pods("b", {})
    assert pods("a", restart) != pods("b", restart)


def test_a_changed_key_that_no_reload_takes_starts_new_pods():
    changes = {
        "host": {"host": "::"},
        "endpoint": {"endpoint": "/sharing"},
        "gateway.endpointAliases": {"gateway": {"endpointAliases": ["/api"]}},
        "gateway.database": {"gateway": {"database": "postgresql://a@b/c"}},
        "gateway.recipientsDatabase": {"gateway": {"recipientsDatabase": "other.db"}},
        "gateway.cache": {"gateway": {"cache": {"threads": 3}}},
        "gateway.audit": {"gateway": {"audit": {"file": "${STATE_DIRECTORY}/audit.log"}}},
        "gateway.admin": {"gateway": {"admin": {"viewerTokenSha256": "c" * 64}}},
        "gateway.tracing": {"gateway": {"tracing": {"endpoint": "https://collector.example.com"}}},
    }
    # The chart itself decides about these.
    fixed = {row for row, effect in EFFECTS.items() if effect is Effect.RESTART} - {"ssl", "port"}
    assert set(changes) == fixed

    def pod(config, **values):
        admin = {"existingSecret": "admin"}
        return the("Deployment", rendered({"admin": admin, "config": config, **values}))["spec"]["template"]

    unchanged = pod({})
    for row, change in changes.items():
        assert pod(change) != unchanged, row
    assert pod({}, cache={"memory": "1Gi"}) != unchanged
    oidc = {"issuer": "https://login.example.com", "clientSecret": "${CONSOLE_CLIENT_SECRET}"}
    for change in ({"admin": {"oidc": oidc}}, {"publicUrl": "https://a.example.com"}, {"drainSeconds": 10}):
        assert pod({"gateway": change}) == unchanged, change


def test_people_sign_in_to_the_console_by_an_identity_provider():
    oidc = {
        "issuer": "https://login.example.com",
        "clientId": "console",
        "clientSecret": "${CONSOLE_CLIENT_SECRET}",
        "redirectUrl": "https://console.example.com/console/sign-in/callback",
        "operatorValues": ["operators"],
    }
    values = {"admin": {"existingSecret": "admin"}, "config": {"gateway": {"admin": {"oidc": oidc}}}}
    text, environment = configuration(rendered(values))
    secret = {"CONSOLE_CLIENT_SECRET": "s" * 32, **environment}
    admin = yaml.safe_load(text)["gateway"]["admin"]
    assert (admin["oidc"], admin["port"], "tokenSha256" in admin) == (oidc, 8081, True)
    loaded = loads(text, environment=secret).gateway.admin
    assert loaded is not None
    assert loaded.oidc is not None


def test_labels_and_annotations_of_the_values_do_not_replace_those_of_the_chart():
    name, checksum = "app.kubernetes.io/name", "checksum/config"
    values = {
        **MANY,
        "podLabels": {name: "another", "team": "data"},
        "podAnnotations": {checksum: "none", "note": "text"},
        "serviceMonitor": {"enabled": True, "labels": {name: "another", "release": "prometheus"}},
    }
    text = template(values).stdout
    documents = [document for document in yaml.safe_load_all(text) if document]
    pod = the("Deployment", documents)["spec"]["template"]["metadata"]
    assert (pod["labels"][name], pod["labels"]["team"]) == ("delta-sharing-gateway", "data")
    assert (pod["annotations"][checksum] == "none", pod["annotations"]["note"]) == (False, "text")
    assert the("ServiceMonitor", documents)["metadata"]["labels"]["release"] == "prometheus"
    # A key that stands twice is an error for Kubernetes, but not for the parser above.
    assert "another" not in text


def test_the_alerts_and_the_dashboard_are_those_of_the_package():
    documents = rendered(MANY)
    assert the("PrometheusRule", documents)["spec"] == yaml.safe_load((PACKAGED / "alerts.yaml").read_text())
    dashboard = the("ConfigMap", documents, "-dashboard")["data"]["delta-sharing-gateway.json"]
    assert json.loads(dashboard) == json.loads((PACKAGED / "dashboard.json").read_text())


def test_the_metrics_are_on_a_service_that_the_clients_do_not_reach():
    documents = rendered(MANY)
    assert [port["name"] for port in the("Service", documents)["spec"]["ports"]] == ["sharing"]
    assert [port["name"] for port in the("Service", documents, "-admin")["spec"]["ports"]] == ["admin"]
    monitor = the("ServiceMonitor", documents)["spec"]
    labels = the("Service", documents, "-admin")["metadata"]["labels"]
    assert monitor["selector"]["matchLabels"].items() <= labels.items()


def test_the_notes_say_how_to_add_a_recipient_and_what_is_missing():
    options = ["--dry-run=client", "--kube-version", f"{KUBERNETES[-1]}.0"]
    notes = helm("install", "demo", CHART, *options).stdout.partition("NOTES:")[2]
    # Without a cluster a dry run of this version of Helm may not get as far as the notes.
    assert notes == "" or "delta-gateway recipient add NAME" in notes
    text = (CHART / "templates/NOTES.txt").read_text()
    assert "WARNING: tokenKeys is empty" in text


def test_the_readme_of_the_chart_is_generated_from_its_values():
    sys.path.insert(0, str(tools.ROOT / "deploy"))
    try:
        import chart_reference  # noqa: PLC0415 - found by the line above
    finally:
        sys.path.pop(0)
    assert (CHART / "README.md").read_text() == chart_reference.reference()


def test_the_schema_knows_every_value_and_the_versions_are_those_of_the_package():
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert set(schema["properties"]) - {"global"} == set(values)
    for name, section in values.items():
        known = schema["properties"][name].get("properties")
        if schema["properties"][name].get("additionalProperties") is False:
            assert set(known) == set(section), name
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    project = (tools.ROOT / "pyproject.toml").read_text()
    assert f'version = "{chart["appVersion"]}"' in project
    assert chart["version"] == chart["appVersion"]
