#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Rules of the house that no compiler checks: who may include whom, headers that compile alone, licence lines, and no
paths of somebody's machine in tracked files. Standard library only.

usage: house_test.py --root ROOT [--compiler g++] [--flags="-DX -I/y"] [--jobs 2]
"""

import argparse
import concurrent.futures
import pathlib
import re
import subprocess
import sys
import unittest

ROOT = pathlib.Path()
COMPILER = "g++"
FLAGS = []
JOBS = 2

# A room may include itself and every room before it.
ROOMS = ["base", "memory", "fabric", "http", "store", "cache", "engine", "python"]
# On top of a room, and known to nobody but the cli.
SIDE_ROOMS = {"keep": "cache", "server": "store"}
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)

# Homes. /usr, /dev, /proc, /tmp and /mnt are the same on every machine.
HOME_PATH = re.compile(r"(?<![\w.:/$}*])/(?:home|root|Users)/[\w.-]+")


def machine_path(text):
    """A path in `text` that exists only on one machine: a home, or where this work tree happens to lie."""
    found = HOME_PATH.search(text)
    if found:
        return found.group()
    return str(ROOT) if len(ROOT.parts) > 2 and str(ROOT) in text else None


def tracked():
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True).stdout
    return [ROOT / name for name in names.decode().split("\0") if name]


def sources(folder, *endings):
    return sorted(p for p in (ROOT / folder).rglob("*") if p.suffix in endings)


def shown(path):
    return str(path.relative_to(ROOT))


def wrong_include(room, included):
    """Why code in `room` may not include this, or nothing."""
    target = included.split("/")[0]
    if target in ("kvern", room) or room == "cli":
        return None
    if target not in [*ROOMS, *SIDE_ROOMS]:
        return "is neither kvern/… nor in a known room"
    if target in SIDE_ROOMS or ROOMS.index(target) > ROOMS.index(SIDE_ROOMS.get(room, room)):
        return f"{room} may not know {target}"
    return None


class Includes(unittest.TestCase):
    def test_rooms_look_one_way(self):
        faults = []
        for path in sources("src", ".h", ".cc"):
            room = path.relative_to(ROOT / "src").parts[0]
            self.assertIn(room, [*ROOMS, *SIDE_ROOMS, "cli"], "a folder of src/ that this test doesn't know")
            for included in INCLUDE.findall(path.read_text()):
                why = wrong_include(room, included)
                if why:
                    faults.append(f'{shown(path)}: "{included}" {why}')
        self.assertEqual(faults, [])

    def test_python_binding_is_the_last_room(self):
        faults = []
        for path in sources("python", ".h", ".cc"):
            for included in INCLUDE.findall(path.read_text()):
                if included.split("/")[0] not in ROOMS + ["kvern"]:
                    faults.append(f'{shown(path)}: "{included}"')
        self.assertEqual(faults, [])

    def test_public_headers_know_only_public_headers(self):
        faults = []
        for path in sources("include", ".h"):
            for included in INCLUDE.findall(path.read_text()):
                if not included.startswith("kvern/"):
                    faults.append(f'{shown(path)}: "{included}"')
        self.assertEqual(faults, [])

    def test_the_rule_itself(self):
        self.assertIsNone(wrong_include("store", "base/text.h"))
        self.assertIsNone(wrong_include("store", "base/fd.h"))
        self.assertIsNone(wrong_include("store", "kvern/store.h"))
        self.assertIsNone(wrong_include("cli", "engine/step.h"))
        self.assertIsNone(wrong_include("keep", "cache/key.h"))
        self.assertIsNone(wrong_include("keep", "keep/forest.h"))
        self.assertIsNone(wrong_include("cli", "keep/forest.h"))
        self.assertIn("may not know", wrong_include("store", "cache/key.h"))
        self.assertIn("may not know", wrong_include("keep", "engine/step.h"))
        self.assertIn("may not know", wrong_include("engine", "keep/forest.h"))
        self.assertIsNone(wrong_include("store", "http/sigv4.h"))
        self.assertIsNone(wrong_include("server", "http/sigv4.h"))
        self.assertIsNone(wrong_include("cli", "server/key_map.h"))
        self.assertIsNone(wrong_include("http", "fabric/token.h"))
        self.assertIn("may not know", wrong_include("http", "store/delivery.h"))
        self.assertIn("may not know", wrong_include("fabric", "http/head.h"))
        self.assertIn("may not know", wrong_include("server", "cache/key.h"))
        self.assertIn("may not know", wrong_include("server", "keep/forest.h"))
        self.assertIn("may not know", wrong_include("store", "server/key_map.h"))
        self.assertIn("may not know", wrong_include("base", "memory/toucher.h"))
        self.assertIn("neither", wrong_include("base", "cli/target.h"))


class Headers(unittest.TestCase):
    def test_each_compiles_alone(self):
        headers = sources("include", ".h") + sources("src", ".h")
        self.assertGreater(len(headers), 10)

        def compile_alone(path):
            command = [COMPILER, "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", *FLAGS, f"-I{ROOT / 'include'}",
                       f"-I{ROOT / 'src'}", "-include", str(path), "-x", "c++", "/dev/null"]
            done = subprocess.run(command, capture_output=True, text=True)
            return f"{shown(path)}:\n{done.stderr}" if done.returncode != 0 or done.stderr else None

        with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
            faults = [fault for fault in pool.map(compile_alone, headers) if fault]
        self.assertEqual(faults, [], "\n".join(faults))

    def test_each_is_included_once(self):
        for path in sources("include", ".h") + sources("src", ".h"):
            self.assertIn("#pragma once", path.read_text(), shown(path))


class Tracked(unittest.TestCase):
    def test_licence_lines(self):
        code = [p for p in tracked() if p.suffix in (".h", ".cc") and p.is_file()]
        missing = [shown(p) for p in code if "SPDX-License-Identifier: Apache-2.0" not in p.read_text()[:300]]
        self.assertEqual(missing, [])

    def test_no_paths_of_a_machine(self):
        faults = []
        for path in tracked():
            if not path.is_file() or path.is_symlink():
                continue
            try:
                text = path.read_text()
            except UnicodeDecodeError:
                continue  # a picture
            if path.resolve() == pathlib.Path(__file__).resolve():
                continue  # names the pattern
            for number, line in enumerate(text.splitlines(), 1):
                found = machine_path(line)
                if found:
                    faults.append(f"{shown(path)}:{number}: {found}")
        self.assertEqual(faults, [])

    def test_the_pattern_itself(self):
        self.assertTrue(machine_path("see /home/someone/x"))
        self.assertTrue(machine_path(f"'{ROOT}/src'"))
        self.assertFalse(machine_path("file:///mnt/kv, /usr/include, ${ROOT}/home/x, a/home/x"))


def main():
    global ROOT, COMPILER, FLAGS, JOBS
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", required=True, type=pathlib.Path)
    parser.add_argument("--compiler", default="g++")
    parser.add_argument("--flags", default="")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    ROOT, COMPILER, FLAGS, JOBS = options.root.resolve(), options.compiler, options.flags.split(), options.jobs
    unittest.main(argv=[sys.argv[0]], verbosity=2)


if __name__ == "__main__":
    main()
