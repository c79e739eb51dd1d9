# SPDX-License-Identifier: Apache-2.0
"""What the code says about itself, for tests that compare documents with it: options, limits, reasons, metrics.

Names and bounds of options come from the answers of the built module; defaults and limits from the headers, which hold
them as plain initialisers.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from kvern import _core

ROOT = Path(__file__).resolve().parents[2]
KVERN = ROOT / "build/release/src/cli/kvern"


@dataclass
class Option:
    """`default` and `limits` as docs/operations.md writes them."""

    default: str
    limits: str


def refusal(**options: object) -> str:
    try:
        _core.check_options(json.dumps(options))
    except ValueError as error:
        return str(error)
    raise AssertionError(f"{options} was accepted")


def option_names() -> list[str]:
    """All that the parser knows: it lists them beside a name that resembles none."""
    said = refusal(xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx=1)
    return re.search(r"\(known: (.+)\)$", said)[1].split(", ")


def option_limits(name: str) -> str:
    """Of a value of the wrong type the parser says what a right one is."""
    said = refusal(**{"store": "mem:", name: [7]})
    for pattern, shown in ((r"is not a whole number from (\d+) to (\d+)", "{} to {}"), (r"is not one of ([^()]+?) \(", "{}"),
                           (r"is not (a text|true or false)$", "{}")):
        if found := re.search(pattern, said):
            return shown.format(*(f"{int(part):,}" if part.isdigit() else part for part in found.groups()))
    raise AssertionError(f"no limits in '{said}'")


def value_of(initialiser: str) -> int | float:
    """The number that an initialiser of limits.h stands for."""
    text = re.sub(r"(?:std::)?\w+\{([^}]*)\}", r"(\1)", " ".join(initialiser.split()))
    assert re.fullmatch(r"[\d\s.()<*+-]+", text), f"limits.h: '{initialiser}' is no plain number"
    return eval(text, {"__builtins__": {}})


def limits() -> dict[str, int | float]:
    """Every constant of limits.h; durations in milliseconds."""
    text = re.sub(r"//[^\n]*", "", (ROOT / "include/kvern/limits.h").read_text())
    found = re.findall(r"inline constexpr [\w:]+ (\w+)\s*(?:=\s*([^;]+)|\{([^;]*)\});", text)
    assert len(found) == text.count("inline constexpr"), "a constant of limits.h has a form that is not known here"
    return {name: value_of(assigned or braced) for name, assigned, braced in found}


def option_defaults() -> dict[str, str]:
    """The initialisers of struct Options by name of the option."""
    text = (ROOT / "src/engine/options.h").read_text()
    body = re.sub(r"//[^\n]*", "", re.search(r"struct Options \{(.*?)\n\};", text, re.DOTALL)[1])
    fields = dict(re.findall(r"(?:std::)?\w+ (\w+)(?: = ([^;]+))?;", body))
    known = limits()
    defaults = {}
    for field, initialiser in fields.items():
        word = initialiser.removeprefix("limits::")
        value = known.get(word, word)
        defaults[field] = f"{int(value):,}" if str(value).isdigit() else str(value).split("::")[-1] or "empty"
    defaults["store"] = "required"
    defaults["on_reset"] = {"true": "epoch", "false": "keep"}[defaults.pop("epoch_on_reset")]
    return defaults


def options() -> dict[str, Option]:
    defaults = option_defaults()
    unknown = set(option_names()) - set(defaults)
    assert not unknown, f"struct Options has no field of the name of {sorted(unknown)}: teach code_facts.py"
    return {name: Option(defaults[name], option_limits(name)) for name in option_names()}


def reasons(array: str) -> list[str]:
    """The values of a label: miss_names, drop_names or load_failure_names."""
    text = (ROOT / "src/engine/counters.h").read_text()
    return re.findall(r'"(\w+)"', re.search(rf"\b{array} = \{{(.*?)\}};", text, re.DOTALL)[1])


def metrics() -> dict[str, str]:
    """Name of each metric, with {reason} where it has that label, and its help text."""
    values = {}
    for node in ast.parse((ROOT / "python/kvern/metrics.py").read_text()).body:
        if isinstance(node, ast.Assign) and node.targets[0].id in ("COUNTERS", "LABELLED"):
            values[node.targets[0].id] = ast.literal_eval(node.value)
    return {f"kvern_{name}_total" + ("{reason}" if name in values["LABELLED"] else ""): text
            for name, text in values["COUNTERS"].items()}


def server_options() -> list[str]:
    """The options of `kvern serve`, but for --help."""
    said = subprocess.run([KVERN, "serve", "--help"], capture_output=True, text=True, check=True).stdout
    return re.findall(r"^  (--[\w-]+)", said[said.index("Options:"):], re.MULTILINE)


def server_option_defaults() -> dict[str, str]:
    """Those that --help shows."""
    said = subprocess.run([KVERN, "serve", "--help"], capture_output=True, text=True, check=True).stdout
    return dict(re.findall(r"^  (--[\w-]+) \w+=(\S+)", said, re.MULTILINE))


def server_access_log() -> list[str]:
    """The fields of a line, in their order."""
    text = (ROOT / "src/server/access_log.cc").read_text()
    return re.findall(r'\\"(\w+)\\":', text[text.index("void AccessLog::add"):])


def server_operations() -> list[str]:
    text = (ROOT / "src/server/metrics.cc").read_text()
    return re.findall(r'"(\w+)"', re.search(r"names\{(.*?)\};", text, re.DOTALL)[1])
