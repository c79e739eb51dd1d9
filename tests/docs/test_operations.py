# SPDX-License-Identifier: Apache-2.0
"""docs/operations.md has every option, reason and metric of the code, with the code's own numbers, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import code_facts as code
import kvern_server
import pytest

PAGE = (code.ROOT / "docs/operations.md").read_text()


def section(title: str) -> str:
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, f"docs/operations.md has no section '{title}'"
    return found[1]


def table(title: str) -> dict[str, list[str]]:
    """The other cells of each row by the code in its first cell."""
    rows = [re.split(r" *(?<!\\)\| *", line.strip("| ")) for line in section(title).splitlines() if line.startswith("| `")]
    return {row[0].strip("`"): row[1:] for row in rows}


def test_options_are_complete():
    assert list(table("Options")) == code.option_names()


@pytest.mark.parametrize("name", code.option_names())
def test_option_has_the_defaults_and_limits_of_the_code(name: str):
    assert name in table("Options"), f"docs/operations.md, Options: no row for '{name}'"
    default, limits, meaning = table("Options")[name]
    option = code.options()[name]
    # Optional numbers are 0 in the code where they are not given; their limits are those of a given one.
    assert (default, limits) == (option.default, option.limits), f"docs/operations.md, Options, {name}"
    assert len(meaning) > 10


def test_limits_are_those_of_the_code():
    rows, known = table("Limits"), code.limits()
    assert len(known) > 30 and len(rows) > 10
    assert not set(rows) - set(known), "docs/operations.md, Limits: there are no such limits"
    shown = {name: float(re.match(r"[\d,.]+", cells[0])[0].replace(",", "")) for name, cells in rows.items()}
    assert shown == {name: known[name] for name in rows}
    others = {name for row in re.findall(r"^\| (`[^|]+) \|", section("Keep the store bounded"), re.MULTILINE)
              for name in re.findall(r"`(\w+)`", row)}
    assert others and others <= set(known)


@pytest.mark.parametrize("section_title, entry, array", [
    ("It does not hit: why?", "Miss", "miss_names"),
    ("Loads that fail: why?", "Failed load", "load_failure_names"),
    ("Chunks that are not stored: why?", "Dropped chunk", "drop_names"),
])
def test_every_reason_has_an_entry(section_title: str, entry: str, array: str):
    text = section(section_title)
    headings = re.findall(r"^### (.+)$", text, re.MULTILINE)
    assert headings == [f"{entry}: {reason}" for reason in code.reasons(array)]
    for heading, body in re.findall(r"^### (.+?)\n(.*?)(?=^### |\Z)", text, re.MULTILINE | re.DOTALL):
        assert re.findall(r"^- \*\*(.+?)\*\* \S", body, re.MULTILINE) == ["Means:", "See:", "Do:"], heading


def test_metrics_are_complete():
    assert list(table("Metrics")) == list(code.metrics())


# -------------------------------------------------------------------------------------------------------- kvern serve


def subsection(title: str) -> str:
    return re.search(rf"^### {re.escape(title)}\n(.*?)(?=^### |\Z)", section("kvern serve"), re.MULTILINE | re.DOTALL)[1]


def names_of(text: str) -> list[str]:
    """The names in code in the first cells of its tables."""
    return [name for row in re.findall(r"^\| (`[^|]+?) *\|", text, re.MULTILINE) for name in re.findall(r"`([^`]+)`", row)]


def test_server_s_options_are_complete_and_have_the_defaults_of_the_code():
    text = section("kvern serve").partition("\n### ")[0]
    assert sorted(names_of(text)) == sorted(code.server_options())
    shown = dict(re.findall(r"^\| `(--[\w-]+)` \| `([^`]+)`", text, re.MULTILINE))
    seconds = f"{code.limits()['server_drain'] // 1000}s"
    assert shown == code.server_option_defaults() | {"--drain": seconds}


def test_server_s_metrics_are_complete(tmp_path: Path):
    documented = dict(re.match(r"(\w+)(?:\{(.*)\})?", name).groups()
                      for name in names_of(subsection("The page, health and metrics")) if name.startswith("kvern_"))
    real: dict[str, set[str]] = {}
    for sample, labels in kvern_server.scraped(tmp_path).items():
        real.setdefault(re.sub(r"(_seconds)_(bucket|sum|count)$", r"\1", sample), set()).update(labels - {"le"})
    assert {name: set((labels or "").split(",")) - {""} for name, labels in documented.items()} == real


def test_server_s_pages_and_fields_of_the_log_are_complete():
    source = (code.ROOT / "src/server/s3_server.cc").read_text()
    pages = [name for name in names_of(subsection("The page, health and metrics")) if name.startswith("/-/")]
    assert sorted(pages) == sorted(re.findall(r"/-/\w+", re.search(r"known: ([^(]+)", source)[1]))
    assert names_of(subsection("Access log")) == code.server_access_log()


def test_server_s_limits_are_those_of_the_code():
    known, units = code.limits(), {"MiB": 1 << 20, "TiB": 1 << 40}
    rows = re.findall(r"^\| `(\w+)` \| ([\d,]+) (\w+) \|", subsection("Stop and restart"), re.MULTILINE)
    assert len(rows) > 10
    assert {name: int(number.replace(",", "")) * units.get(unit, 1) for name, number, unit in rows} == {
        name: known[name] for name, _, _ in rows}


def test_record_s_vector_is_that_of_the_unit_test():
    page = (code.ROOT / "docs/format.md").read_text()
    vector = "".join(re.search(r"### 7\.3 .*?```\n(.*?)```", page, re.DOTALL)[1].split())
    test = (code.ROOT / "tests/server/object_record_test.cc").read_text()
    assert vector == "".join(re.findall(r'"([0-9a-f]+)"', test[test.index("to_hex(encode"):test.index("ComesBackWhole)")]))


# --------------------------------------------------------------------------------------------------------------- pages


def test_links_lead_somewhere():
    """Of all pages: files exist, headings too."""
    def anchors(text: str) -> set[str]:
        titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
        return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}

    broken = []
    for page in (code.ROOT / "README.md", *(code.ROOT / "docs").glob("*.md")):
        for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
            if "://" in target:
                continue
            file, _, anchor = target.partition("#")
            path = (page.parent / file) if file else page
            if not path.exists() or (anchor and anchor not in anchors(path.read_text())):
                broken.append(f"{page.name}: {target}")
    assert not broken
