# SPDX-License-Identifier: Apache-2.0
"""The Grafana dashboard asks for metrics and labels that vLLM's /metrics has when the connector runs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator

import code_facts as code
import promql_parser as promql
import pytest
from prometheus_client.parser import text_string_to_metric_families

sys.path.insert(0, str(code.ROOT / "tools"))
from serving import PYTHON, engine_env  # noqa: E402

BOARD = json.loads((code.ROOT / "deploy/grafana/kvern.json").read_text())
PANELS = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
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


@pytest.fixture(scope="module")
def scraped() -> dict[str, set[str]]:
    """The labels of each sample on the page that the real metrics make."""
    done = subprocess.run([str(PYTHON), "-c", SCRAPE], env=engine_env(), capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    families = text_string_to_metric_families(done.stdout[done.stdout.index("# HELP"):])
    return {sample.name: set(sample.labels) for family in families for sample in family.samples}


def parsed(query: str) -> promql.Expr:
    """Grafana's own variables stand for a time and for any value."""
    return promql.parse(query.replace("$__rate_interval", "5m").replace("$model", ".*").replace("$engine", ".*"))


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


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_panel_is_explained_and_its_queries_parse(panel: dict):
    assert panel["title"] and panel["description"].endswith(".")
    assert panel["fieldConfig"]["defaults"]["unit"]
    assert panel["datasource"]["uid"] == "${datasource}"
    assert panel["targets"]
    for target in panel["targets"]:
        assert list(uses(parsed(target["expr"]))), "no metric in the query"
        # A legend shows only labels that the query leaves.
        shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
        grouped = set(re.search(r"by \((\w*)\)", target["expr"])[1].split()) if "by (" in target["expr"] else set()
        assert shown <= grouped


def test_every_metric_and_label_exists(scraped: dict[str, set[str]]):
    assert {name.partition("{")[0] for name in code.metrics()} <= set(scraped), "the scrape itself"
    for panel in PANELS:
        for target in panel["targets"]:
            for metric, labels in uses(parsed(target["expr"])):
                assert metric in scraped, f"{panel['title']}: there is no metric {metric}"
                assert labels <= scraped[metric], f"{panel['title']}: {metric} has no label {labels - scraped[metric]}"


def test_variables_come_from_labels_that_exist(scraped: dict[str, set[str]]):
    variables = {variable["name"]: variable for variable in BOARD["templating"]["list"]}
    assert set(variables) == {"datasource", "model", "engine"}
    for name in ("model", "engine"):
        metric, label = re.fullmatch(r"label_values\((\w+)(?:\{.*\})?, (\w+)\)", variables[name]["query"]["query"]).groups()
        assert label in scraped[metric]
    used = "".join(target["expr"] for panel in PANELS for target in panel["targets"])
    assert set(re.findall(r"\$(\w+)", used)) == {"model", "engine", "__rate_interval"}


def test_panels_do_not_overlap():
    cells = [(x, y) for panel in BOARD["panels"]
             for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
             for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])]
    assert len(cells) == len(set(cells)) and max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])
