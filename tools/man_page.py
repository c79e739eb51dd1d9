#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes kvern(1) out of what `kvern --help` and each subcommand's --help say, so that neither can be behind the other.

usage: man_page.py KVERN VERSION OUTPUT.gz
"""
from __future__ import annotations

import gzip
import re
import subprocess
import sys
from pathlib import Path

HEAD = """.TH KVERN 1 "" "kvern {version}" "User Commands"
.SH NAME
kvern \\- KV cache of LLM inference on shared file and object storage
.SH SYNOPSIS
.B kvern
.I COMMAND
.RI [ ARGUMENTS ]
.SH DESCRIPTION
Looks into the stores in which engines keep the KV cache of prompts, measures them, and keeps them within bounds.
What engines need to use a store is not in this program but in the Python package kvern.
"""
FOOT = """.SH FILES
.TP
.I /etc/default/kvern
Settings of kvern\\-gc.service, which keeps a store within its size.
.TP
.I /etc/default/kvern\\-serve
Settings of kvern\\-serve.service, an S3 server on a store.
.TP
.I /etc/kvern/serve.env
Its access key: KVERN_ACCESS_KEY and KVERN_SECRET_KEY, readable by root alone.
"""


def help_of(kvern: str, *words: str) -> str:
    return subprocess.run([kvern, *words, "--help"], check=True, capture_output=True, text=True).stdout


def subcommands(text: str) -> list[str]:
    """The names in the list "Subcommands:" of a help text."""
    found = re.search(r"^Subcommands:\n((?:  .*\n)+)", text, re.MULTILINE)
    return re.findall(r"^  (\S+)", found[1], re.MULTILINE) if found else []


def escaped(text: str) -> str:
    """Text that roff shows as it stands."""
    lines = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").splitlines()
    return "\n".join("\\&" + line if line.startswith((".", "\\(aq")) else line for line in lines)


def sections(kvern: str, words: tuple[str, ...] = ()) -> str:
    """The help of a command and of all below it, each as one section of preformatted text."""
    text = help_of(kvern, *words)
    title = "COMMANDS" if not words else "kvern " + " ".join(words)
    page = f'.SH "{escaped(title)}"\n.nf\n{escaped(text.strip())}\n.fi\n'
    return page + "".join(sections(kvern, (*words, name)) for name in subcommands(text))


def main() -> None:
    kvern, version, output = sys.argv[1:]
    page = HEAD.format(version=version) + sections(str(Path(kvern).resolve())) + FOOT
    Path(output).write_bytes(gzip.compress(page.encode(), 9, mtime=0))


if __name__ == "__main__":
    main()
