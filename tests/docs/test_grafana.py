# SPDX-License-Identifier: Apache-2.0
"""The Grafana dashboards ask for metrics and labels that exist: on vLLM's /metrics when the connector runs, and on those of
`kvern serve`."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator

import code_facts as code
import kvern_server
import promql_parser as promql
import pytest
from prometheus_client.parser import text_string_to_metric_families

sys.path.insert(0, str(code.ROOT / "tools"))
from serving import PYTHON, engine_env  # noqa: E402

BOARDS = {name: json.loads((code.ROOT / f"deploy/grafana/{name}.json").read_text()) for name in ("kvern", "kvern-serve")}
PANELS = [(name, panel) for name, board in BOARDS.items() for panel in board["panels"] if panel["type"] != "row"]
# The variables of each, with the labels that Prometheus itself adds.
VARIABLES = {"kvern": {"model", "engine"}, "kvern-serve": {"instance"}}
ADDED = {"kvern": set(), "kvern-serve": {"instance"}}
# What the engine does: its factory gives the connector's class, which registers its metrics and is told counts.
SCRAPE = """
from types import SimpleNamespace
from prometheus_client import REGISTRY, generate_latest
from vllm.config import KVTransferConfig
from vllm.distributed.kv_transfer.kv_connector.v1.metrics import KVConnectorProm
import kvern.metrics as m
config = KVTransferConfig(kv_connector="KvernConnector", kv_connector_module_path="kvern.vllm", kv_role="kv_both")
prom = KVConnectorProm(SimpleNamespace(kv_transfer_config=config), ["model_name", "engine"], {0: ["m", "0"]})
prom.observe({name + ("/some" if name in m.LABELLED else ""): 1 for name in m.COUNTERS})
print(generate_latest(REGISTRY).decode())
"""


def scraped_from_vllm() -> dict[str, set[str]]:
    """The labels of each sample on the page that the real metrics make."""
    done = subprocess.run([str(PYTHON), "-c", SCRAPE], env=engine_env(), capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    families = text_string_to_metric_families(done.stdout[done.stdout.index("# HELP"):])
    return {sample.name: set(sample.labels) for family in families for sample in family.samples}


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, set[str]]]:
    """By the board that asks."""
    return {"kvern": scraped_from_vllm(), "kvern-serve": kvern_server.scraped(tmp_path_factory.mktemp("serve"))}


def parsed(query: str) -> promql.Expr:
    """Grafana's own variables stand for a time and for any value."""
    return promql.parse(re.sub(r"\$(model|engine|instance)", ".*", query.replace("$__rate_interval", "5m")))


def children(node: object) -> Iterator[object]:
    for name in ("lhs", "rhs", "expr", "param", "vector_selector"):
        if (child := getattr(node, name, None)) is not None:
            yield child
    yield from getattr(node, "args", None) or ()


def uses(node: object, grouped: frozenset[str] = frozenset()) -> Iterator[tuple[str, set[str]]]:
    """(metric, labels that are matched or grouped by) of each selector below this node."""
    modifier = getattr(node, "modifier", None)
    if isinstance(node, promql.AggregateExpr) and modifier is not None:
        grouped = grouped | frozenset(modifier.labels)
    if isinstance(node, promql.VectorSelector):
        yield node.name, {matcher.name for matcher in node.matchers.matchers} | grouped
    for child in children(node):
        yield from uses(child, grouped)


@pytest.mark.parametrize("board, panel", PANELS, ids=lambda part: part if isinstance(part, str) else part["title"])
def test_panel_is_explained_and_its_queries_parse(board: str, panel: dict):
    assert panel["title"] and panel["description"].endswith("."), board
    assert panel["fieldConfig"]["defaults"]["unit"]
    assert panel["datasource"]["uid"] == "${datasource}"
    assert panel["targets"]
    for target in panel["targets"]:
        assert list(uses(parsed(target["expr"]))), "no metric in the query"
        # A legend shows only labels that the query leaves.
        shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
        grouped = re.search(r"by \(([\w, ]*)\)", target["expr"])
        assert shown <= (set(re.findall(r"\w+", grouped[1])) if grouped else set())


def test_every_metric_and_label_exists(scraped: dict[str, dict[str, set[str]]]):
    assert {name.partition("{")[0] for name in code.metrics()} <= set(scraped["kvern"]), "the scrape itself"
    for board, panel in PANELS:
        for target in panel["targets"]:
            for metric, labels in uses(parsed(target["expr"])):
                assert metric in scraped[board], f"{panel['title']}: there is no metric {metric}"
                unknown = labels - scraped[board][metric] - ADDED[board]
                assert not unknown, f"{panel['title']}: {metric} has no label {unknown}"


def test_every_metric_of_the_server_is_shown(scraped: dict[str, dict[str, set[str]]]):
    shown = {metric for board, panel in PANELS if board == "kvern-serve" for target in panel["targets"]
             for metric, _ in uses(parsed(target["expr"]))}
    assert {re.sub(r"_seconds_count$", "_seconds_sum", name) for name in scraped["kvern-serve"]} == shown


def test_variables_come_from_labels_that_exist(scraped: dict[str, dict[str, set[str]]]):
    for name, board in BOARDS.items():
        variables = {variable["name"]: variable for variable in board["templating"]["list"]}
        assert set(variables) == VARIABLES[name] | {"datasource"}
        for variable in VARIABLES[name]:
            asked = variables[variable]["query"]["query"]
            metric, label = re.fullmatch(r"label_values\((\w+)(?:\{.*\})?, (\w+)\)", asked).groups()
            assert label in scraped[name][metric] | ADDED[name]
        used = "".join(target["expr"] for owner, panel in PANELS if owner == name for target in panel["targets"])
        assert set(re.findall(r"\$(\w+)", used)) == VARIABLES[name] | {"__rate_interval"}


@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
def test_panels_do_not_overlap(board: dict):
    cells = [(x, y) for panel in board["panels"]
             for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
             for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])]
    assert len(cells) == len(set(cells)) and max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
