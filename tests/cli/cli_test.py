#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The real kvern command against real folders: exit statuses, sentences, round trips, interrupts. Standard library only.

usage: cli_test.py --kvern PATH [unittest arguments]
"""

import argparse
import hashlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

KVERN = ""
MIB = 1 << 20
LIMIT_S = 120


def data_of(size_bytes, seed=1):
    return random.Random(seed).randbytes(size_bytes)


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="kvern-cli-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.root = self.folder / "store"
        self.root.mkdir()
        self.uri = f"file://{self.root}"

    def kvern(self, *words, stdin=b"", expect=0):
        done = subprocess.run([KVERN, *map(str, words)], input=stdin, capture_output=True, timeout=LIMIT_S)
        self.assertEqual(done.returncode, expect, f"kvern {words}: {done.stderr.decode()}")
        if expect == 0:
            self.assertEqual(done.stderr, b"")
        else:
            # One sentence, on stderr, about what went wrong.
            self.assertRegex(done.stderr.decode(), r"\Akvern: [^\n]+\n\Z")
        return done

    def said(self, *words, expect, stdin=b""):
        return self.kvern(*words, stdin=stdin, expect=expect).stderr.decode()

    def files(self):
        """Everything below the root that is a file, but for what the store keeps for itself."""
        return sorted(str(p.relative_to(self.root)) for p in self.root.rglob("*")
                      if p.is_file() and ".kvern-tmp" not in p.parts)

    def temporaries(self):
        folder = self.root / ".kvern-tmp"
        return [p.name for p in folder.iterdir() if p.name != "lock"] if folder.exists() else []


class Usage(Case):
    def test_version(self):
        document = json.loads(self.kvern("version", "--json").stdout)
        self.assertRegex(document["version"], r"\A\d+\.\d+\.\d+\Z")
        self.assertIn(document["crc32c"], ("vpclmulqdq", "sse4.2+avx2", "table"))
        self.assertIn(document["version"], self.kvern("version").stdout.decode())
        self.assertEqual(self.kvern("--version").stdout.decode(), f"kvern {document['version']}\n")

    def test_help_has_examples(self):
        for command in (["put"], ["get"], ["stat"], ["rm"], ["ls"], ["du"], ["gc"], ["fsck"], ["version"], ["bench", "store"], ["serve"]):
            text = self.kvern(*command, "--help").stdout.decode()
            self.assertIn("Examples:\n  ", text, command)
        self.assertIn("put", self.kvern("--help").stdout.decode())

    def test_wrong_usage_is_2_with_a_hint(self):
        self.assertIn("known: put, get", self.said(expect=2))
        self.assertIn("did you mean 'put'", self.said("putt", expect=2))
        self.assertIn("did you mean '--if-absent'", self.said("put", self.uri, "k", "--if-abset", expect=2))
        self.assertIn("URI is required", self.said("get", expect=2))
        self.assertIn("KEY is required", self.said("get", self.uri, expect=2))
        self.assertIn("too many", self.said("rm", self.uri, "a", "b", expect=2))
        self.assertIn("no size", self.said("get", self.uri, "k", "--offset", "1MB", expect=2))
        self.assertIn("--json needs a FILE", self.said("get", self.uri, "k", "--json", expect=2))
        self.assertIn("kvern put --help", self.said("put", expect=2))

    def test_wrong_uris(self):
        self.assertIn("did you mean 'file:///x'", self.said("stat", "/x", "k", expect=2))
        self.assertIn("did you mean 'file'", self.said("stat", "fil:///x", "k", expect=2))
        self.assertIn("did you mean 'depth'", self.said("stat", self.uri + "?dpeth=3", "k", expect=2))
        self.assertIn(str(self.folder / "none"), self.said("stat", f"file://{self.folder}/none", "k", expect=1))

    def test_wrong_keys(self):
        for key in ("..", "a/../b", "%2e%2e/x", ".", "", "a//b", "/a", "a/", "a%00b", "x" * 256, ".kvern-tmp/x"):
            for command in (["put", self.uri, key], ["get", self.uri, key], ["stat", self.uri, key], ["rm", self.uri, key]):
                self.said(*command, expect=2)
        self.assertIn("position 1", self.said("put", self.uri, "a%2", expect=2))
        self.assertEqual(self.files(), [])


class Serve(Case):
    """What `kvern serve` refuses to start with, and how it starts and stops. What it serves is tested elsewhere."""

    def start(self, *words):
        port = self.folder / "port"
        server = subprocess.Popen([KVERN, "serve", "--store", self.uri, "--listen", "127.0.0.1:0", "--port-file", str(port), *words],
                                  stderr=subprocess.PIPE, text=True)
        self.addCleanup(server.stderr.close)
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        until = time.monotonic() + LIMIT_S
        while not port.exists():
            self.assertIsNone(server.poll(), "it ended")
            self.assertLess(time.monotonic(), until)
            time.sleep(0.02)
        return server, int(port.read_text())

    def refused(self, *words, expect=2):
        return self.said("serve", "--store", self.uri, *words, expect=expect)

    def test_wrong_options_are_named(self):
        self.assertIn("--store URI is missing", self.said("serve", expect=2))
        self.assertIn("no access keys: set KVERN_ACCESS_KEY", self.refused())
        self.assertIn("exclude each other", self.refused("--anonymous", "--keys", "keys.toml"))
        self.assertIn("a port is missing", self.refused("--anonymous", "--listen", "127.0.0.1"))
        self.assertIn("no bucket can have the name 'kv'", self.refused("--anonymous", "--quota", "kv=1GiB"))
        self.assertIn("expected BUCKET=SIZE", self.refused("--anonymous", "--quota", "cache"))
        self.assertIn("expected BUCKET=SIZE", self.refused("--anonymous", "--quota", "cache=1GB"))
        self.assertIn("at least 64 MiB", self.refused("--anonymous", "--memory", "1MiB"))
        self.assertIn("both --tls-cert and --tls-key", self.refused("--anonymous", "--tls-cert", "/none"))
        self.assertIn("did you mean '--region'", self.refused("--anonymous", "--regoin", "x"))

    def test_what_is_not_there_or_not_safe_is_refused(self):
        self.assertIn("No such file", self.refused("--keys", self.folder / "none", expect=1))
        keys = self.folder / "keys.toml"
        keys.write_text("[[key]]\naccess = 'a'\nsecret = 'hushhush'\n")
        keys.chmod(0o644)
        said = self.refused("--keys", keys, expect=1)
        self.assertIn("chmod 600", said)
        self.assertNotIn("hushhush", said)
        self.assertIn("loopback", self.refused("--anonymous", "--listen", "0.0.0.0:0", expect=1))

    def test_says_where_it_listens_and_ends_well_when_told(self):
        for how in (signal.SIGTERM, signal.SIGINT):
            server, port = self.start("--anonymous", "--quota", "cache=1GiB,*=2GiB")
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=LIMIT_S) as answer:
                self.assertEqual(answer.read(), b"ready\n")
            server.send_signal(how)
            self.assertEqual(server.wait(timeout=LIMIT_S), 0)
            said = server.stderr.read()
            self.assertRegex(said, rf"\Akvern serve: http://127.0.0.1:{port}, .*anonymous, on file: [^\n]+\n")
            (self.folder / "port").unlink()

    def test_a_port_that_is_taken_is_named(self):
        _, port = self.start("--anonymous")
        self.assertIn(f"listen on 127.0.0.1:{port}", self.refused("--anonymous", "--listen", f"127.0.0.1:{port}", expect=1))


class RoundTrips(Case):
    def round_trip(self, size_bytes):
        data = data_of(size_bytes)
        source = self.folder / "source"
        source.write_bytes(data)
        # File to file.
        self.kvern("put", self.uri, "a/file", source)
        self.kvern("get", self.uri, "a/file", self.folder / "copy")
        self.assertTrue((self.folder / "copy").read_bytes() == data)
        # Pipe to pipe.
        self.kvern("put", self.uri, "a/pipe", stdin=data)
        self.assertTrue(self.kvern("get", self.uri, "a/pipe").stdout == data)
        self.kvern("put", self.uri, "a/dash", "-", stdin=data)
        self.assertTrue(self.kvern("get", self.uri, "a/dash", "-").stdout == data)
        stat = json.loads(self.kvern("stat", self.uri, "a/file", "--json").stdout)
        self.assertEqual((stat["key"], stat["size_bytes"]), ("a/file", size_bytes))
        self.assertEqual(self.temporaries(), [])

    def test_sizes(self):
        for size_bytes in (0, 1, 4096, 4097, 100_000):
            with self.subTest(size_bytes=size_bytes):
                self.round_trip(size_bytes)

    def test_pieces(self):
        for size_bytes in (16 * MIB - 1, 16 * MIB, 16 * MIB + 1, 40 * MIB):
            with self.subTest(size_bytes=size_bytes):
                self.round_trip(size_bytes)

    def test_replaced_value(self):
        for data in (data_of(20 * MIB), b"short", data_of(17 * MIB, 2)):
            self.kvern("put", self.uri, "k", stdin=data)
            self.assertTrue(self.kvern("get", self.uri, "k").stdout == data)

    def test_escaped_keys(self):
        for key, escaped in (("a b", "a%20b"), ("50%", "50%25"), ("é", "%C3%A9"), ("a/b?c", "a/b%3Fc"), ("x\ny", "x%0Ay"),
                             ("-dash", "-dash")):
            with self.subTest(key=key):
                self.kvern("put", self.uri, "--", escaped, stdin=key.encode())
                self.assertEqual(self.kvern("get", self.uri, "--", escaped).stdout, key.encode())
                listed = [entry["key"] for entry in json.loads(self.kvern("ls", self.uri, "--json").stdout)["entries"]]
                self.assertIn(escaped, listed)
                self.kvern("rm", self.uri, "--", escaped)
        self.assertEqual(self.files(), [])

    def test_ranges(self):
        data = data_of(33 * MIB)
        self.kvern("put", self.uri, "k", stdin=data)
        for offset, length in ((0, 1), (1, 4096), (4096, 0), (123, 20 * MIB), (16 * MIB - 1, 2), (33 * MIB, 0)):
            got = self.kvern("get", self.uri, "k", "--offset", offset, "--length", length).stdout
            self.assertTrue(got == data[offset:offset + length], (offset, length))
        self.assertTrue(self.kvern("get", self.uri, "k", "--offset", "32MiB").stdout == data[32 * MIB:])
        for words in (["--offset", "34MiB"], ["--length", "34MiB"], ["--offset", "33MiB", "--length", 1]):
            self.assertIn(str(33 * MIB), self.said("get", self.uri, "k", *words, expect=1))

    def test_mem_store(self):
        stat = json.loads(self.kvern("put", "mem:", "k", "--json", stdin=b"x" * 5000).stdout)
        self.assertEqual(stat["size_bytes"], 5000)


class Outcomes(Case):
    def test_no_such_key_is_3(self):
        for command in ("get", "stat", "rm"):
            self.assertIn("no such key", self.said(command, self.uri, "none", expect=3))

    def test_if_absent(self):
        for size_bytes in (10, 17 * MIB):
            first, second = data_of(size_bytes, 1), data_of(size_bytes, 2)
            key = f"k{size_bytes}"
            self.kvern("put", self.uri, key, "--if-absent", stdin=first)
            self.assertIn("--if-absent", self.said("put", self.uri, key, "--if-absent", stdin=second, expect=1))
            self.assertTrue(self.kvern("get", self.uri, key).stdout == first)
            self.kvern("put", self.uri, key, stdin=second)
            self.assertTrue(self.kvern("get", self.uri, key).stdout == second)
        self.assertEqual(self.temporaries(), [])

    def test_list_pages_through_all(self):
        for number in range(2345):
            (self.root / f"{number % 7:02}").mkdir(exist_ok=True)
            (self.root / f"{number % 7:02}" / f"{number}").write_bytes(b"x")
        entries = json.loads(self.kvern("ls", self.uri, "--json").stdout)["entries"]
        keys = [entry["key"] for entry in entries]
        self.assertEqual(len(keys), 2345)
        self.assertEqual(keys, sorted(keys))
        self.assertEqual(len(set(keys)), 2345)
        under = json.loads(self.kvern("ls", self.uri, "03/", "--json").stdout)["entries"]
        self.assertEqual([e["key"] for e in under], [k for k in keys if k.startswith("03/")])
        self.assertEqual(len(self.kvern("ls", self.uri).stdout.splitlines()), 2345)
        self.assertEqual(json.loads(self.kvern("ls", self.uri, "none", "--json").stdout), {"entries": []})

    def test_a_miss_leaves_the_file_alone(self):
        target = self.folder / "target"
        target.write_bytes(b"old")
        self.said("get", self.uri, "none", target, expect=3)
        self.assertEqual(target.read_bytes(), b"old")

    def test_get_replaces_the_file_and_keeps_its_mode(self):
        self.kvern("put", self.uri, "k", stdin=b"new")
        target = self.folder / "target"
        target.write_bytes(b"old")
        target.chmod(0o640)
        before = target.stat().st_ino
        link = self.folder / "link"
        link.symlink_to(target)
        self.kvern("get", self.uri, "k", link)
        self.assertEqual(target.read_bytes(), b"new")
        self.assertTrue(link.is_symlink())
        self.assertEqual(target.stat().st_mode & 0o777, 0o640)
        self.assertNotEqual(target.stat().st_ino, before)  # a new file took its place
        self.assertEqual(sorted(p.name for p in self.folder.iterdir()), ["link", "store", "target"])

    def test_local_files_that_fail(self):
        self.kvern("put", self.uri, "k", stdin=b"x")
        self.assertIn("No such file", self.said("put", self.uri, "j", self.folder / "none", expect=1))
        self.assertIn("is a folder", self.said("put", self.uri, "j", self.folder, expect=1))
        self.assertIn("No such file", self.said("get", self.uri, "k", self.folder / "none" / "x", expect=1))
        self.said("get", self.uri, "k", self.folder, expect=1)
        self.kvern("get", self.uri, "k", "/dev/null")
        self.assertEqual(self.files(), ["k"])

    def test_full_disk_behind_stdout(self):
        self.kvern("put", self.uri, "k", stdin=b"x")
        for words in (["get", self.uri, "k"], ["stat", self.uri, "k"], ["ls", self.uri]):
            with open("/dev/full", "wb") as full:
                done = subprocess.run([KVERN, *words], stdout=full, stderr=subprocess.PIPE, timeout=LIMIT_S)
            self.assertEqual(done.returncode, 1, words)
            self.assertIn(b"kvern: ", done.stderr)


def wait_until(what, seconds=30):
    end = time.monotonic() + seconds
    while not what():
        if time.monotonic() > end:
            raise TimeoutError("it did not happen")
        time.sleep(0.01)


class Interrupts(Case):
    def start(self, *words, **pipes):
        process = subprocess.Popen([KVERN, *map(str, words)], stderr=subprocess.PIPE, **pipes)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def interrupt_put(self, sent_bytes):
        before = self.files()
        process = self.start("put", self.uri, "k", stdin=subprocess.PIPE)
        process.stdin.write(data_of(sent_bytes))
        process.stdin.flush()  # returns once nearly all of it is taken
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(LIMIT_S), 1)
        self.assertIn(b"interrupted", process.stderr.read())
        process.stdin.close()
        process.stderr.close()
        self.assertEqual(self.files(), before)
        self.assertEqual(self.temporaries(), [])

    def test_put_leaves_nothing(self):
        self.interrupt_put(1000)      # within the first piece
        self.interrupt_put(20 * MIB)  # within an upload

    def test_put_leaves_what_was_there(self):
        self.kvern("put", self.uri, "k", stdin=b"old")
        self.interrupt_put(20 * MIB)
        self.assertEqual(self.kvern("get", self.uri, "k").stdout, b"old")

    def get_slowly(self, meanwhile):
        """Starts a get into a pipe, reads a little, does something, reads the rest: (status, bytes, stderr)."""
        process = self.start("get", self.uri, "k", stdout=subprocess.PIPE)
        first = process.stdout.read(4096)
        time.sleep(0.2)  # now it waits for the pipe, within its first piece
        meanwhile(process)
        rest, said = process.communicate(timeout=LIMIT_S)
        return process.returncode, first + rest, said.decode()

    def test_a_value_replaced_meanwhile_is_an_error(self):
        old = data_of(40 * MIB, 1)
        for new in (data_of(40 * MIB, 2), data_of(10, 3)):
            self.kvern("put", self.uri, "k", stdin=old)
            status, got, said = self.get_slowly(lambda _: self.kvern("put", self.uri, "k", stdin=new))
            self.assertEqual(status, 1, said)
            self.assertIn("replaced", said)
            self.assertTrue(old.startswith(got))  # never a mixture

    def test_a_value_removed_meanwhile_is_an_error(self):
        self.kvern("put", self.uri, "k", stdin=data_of(40 * MIB))
        status, _, said = self.get_slowly(lambda _: self.kvern("rm", self.uri, "k"))
        self.assertEqual(status, 1, said)

    def test_interrupted_get_is_an_error(self):
        self.kvern("put", self.uri, "k", stdin=data_of(40 * MIB))
        status, got, said = self.get_slowly(lambda process: process.send_signal(signal.SIGINT))
        self.assertEqual(status, 1)
        self.assertIn("interrupted", said)
        self.assertLess(len(got), 40 * MIB)

    def test_bench_leaves_nothing(self):
        process = self.start("bench", "store", self.uri, "--bytes", "16MiB", "--rounds", 1000, stdout=subprocess.DEVNULL)
        wait_until(lambda: list(self.root.glob("bench-*")))
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(LIMIT_S), 1)
        said = process.stderr.read().decode()
        process.stderr.close()
        self.assertIn("interrupted", said)
        self.assertEqual(list(self.root.glob("bench-*")), [])
        self.assertEqual(self.temporaries(), [])


class BenchStore(Case):
    def bench(self, *words):
        return json.loads(self.kvern("bench", "store", *words, "--rounds", 1, "--json").stdout)

    def test_file_store(self):
        (self.root / "other").write_bytes(b"stays")
        report = self.bench(self.uri, "--bytes", "4MiB", "--size", "1MiB,64KiB", "--depth", 4, "--mode", "cached")
        rows = {(row["op"], row["size_bytes"]): row for row in report["rows"]}
        self.assertEqual(set(rows), {(op, size) for op in ("put", "get") for size in (MIB, 65536)})
        for row in rows.values():
            self.assertEqual((row["mode"], row["depth"], row["engine"]), ("cached", 4, "file"))
            self.assertEqual(row["cores"], len(os.sched_getaffinity(0)))
            self.assertGreater(row["gbps"], 0)
            self.assertGreater(row["ceiling_gbps"], 0)
            self.assertAlmostEqual(row["ratio"], row["gbps"] / row["ceiling_gbps"], delta=0.01 * row["ratio"] + 0.01)
            self.assertIn(row["ceiling"], ("io_uring loop", "pread/pwrite loop", "fio"))
            self.assertGreaterEqual(row["p99_us"], row["p50_us"])
            self.assertGreater(row["p50_us"], 0)
        self.assertEqual(self.files(), ["other"])
        self.assertEqual(list(self.root.glob("bench-*")), [])

    def test_both_modes_are_measured(self):
        report = self.bench(self.uri, "--bytes", "1MiB", "--size", "64KiB", "--ops", "get", "--depth", 2)
        modes = [row["mode"] for row in report["rows"]]
        # A file system may refuse direct I/O; then a note says so.
        self.assertTrue(modes == ["direct", "cached"] or (modes == ["cached"] and report["notes"]), report)

    def test_other_stores_have_no_ceiling(self):
        for row in self.bench("mem:", "--bytes", "1MiB", "--size", "4KiB")["rows"]:
            self.assertEqual((row["mode"], row["engine"]), ("cached", "mem"))
            self.assertIsNone(row["ceiling"])
            self.assertIsNone(row["ratio"])

    def test_table(self):
        text = self.kvern("bench", "store", "mem:", "--bytes", "1MiB", "--rounds", 1).stdout.decode()
        self.assertTrue(re.search(r"^get +64 KiB", text, re.MULTILINE), text)

    def test_wrong_options(self):
        self.assertIn("4KiB", self.said("bench", "store", self.uri, "--size", "1000", expect=2))
        self.assertIn("did you mean 'get'", self.said("bench", "store", self.uri, "--ops", "gte", expect=2))
        self.assertIn("did you mean 'direct'", self.said("bench", "store", self.uri, "--mode", "dircet", expect=2))
        self.assertIn("--mode", self.said("bench", "store", self.uri + "?direct=on", expect=2))
        self.assertIn("--depth", self.said("bench", "store", self.uri, "--depth", "0", expect=2))


PAGE = 4096


class Kept(Case):
    """gc, du and fsck on a folder of objects: prompts of ten chunks, each a page, the later ones used later."""

    space = "5a" * 32

    def make(self, count, age_s=7200, first=0):
        now = time.time()
        for number in range(first, first + count):
            parent = self.hash_of(number - 1)[:16] if number % 10 else "0" * 16
            name = self.hash_of(number)
            path = self.root / self.space / name[:2] / f"{name}.p{parent}.g0.l0-1.h0-0"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"x")
            used = now - age_s + number
            os.utime(path, (used, used))

    @staticmethod
    def hash_of(number):
        return hashlib.sha256(str(number).encode()).hexdigest()

    def gc(self, *words, expect=0):
        """Its report. Progress may stand on stderr."""
        done = subprocess.run([KVERN, "gc", self.uri, *map(str, words), "--json"], capture_output=True, timeout=LIMIT_S)
        self.assertEqual(done.returncode, expect, done.stderr.decode())
        return json.loads(done.stdout)

    def numbers(self, count):
        here = {path.name.split(".")[0] for path in self.root.rglob("*.g0.*")}
        return [number for number in range(count) if self.hash_of(number) in here]

    def test_gc_removes_the_longest_unused(self):
        self.make(100)
        would = self.gc("--max-bytes", 60 * PAGE, "--dry-run")
        self.assertEqual((would["removed"]["objects"], len(self.numbers(100))), (40, 100))
        did = self.gc("--max-bytes", 60 * PAGE)
        self.assertEqual((did["removed"], did["limits_hold"]), ({"chunks": 40, "objects": 40, "bytes": 40 * PAGE}, True))
        self.assertEqual(self.numbers(100), list(range(40, 100)))
        self.gc("--max-bytes", 15 * PAGE)
        # A prompt is cut from its tail.
        self.assertEqual(self.numbers(100), list(range(80, 85)) + list(range(90, 100)))
        self.gc("--max-age", "1h")
        self.assertEqual(self.numbers(100), [])
        self.assertIn("removed", self.kvern("gc", self.uri, "--max-age", "1h").stdout.decode())

    def test_gc_leaves_foreign_files_alone(self):
        self.make(10)
        (self.root / "README").write_bytes(b"x" * 5000)
        report = self.gc("--max-bytes", 0)
        self.assertEqual(report["foreign"], {"files": 1, "bytes": 2 * PAGE, "example": "README"})
        self.assertEqual(self.files(), ["README"])
        self.assertIn("not Kvern's: 1 file", self.kvern("gc", self.uri, "--max-bytes", 0).stdout.decode())

    def test_gc_says_when_limits_cant_hold(self):
        disk = os.statvfs(self.root)
        if disk.f_bavail >= 0.985 * disk.f_blocks:
            self.skipTest("nearly all of this disk is free")
        report = self.gc("--min-free-percent", 99, expect=1)
        self.assertFalse(report["limits_hold"])
        self.assertIn("can't hold", self.said("gc", self.uri, "--min-free-percent", 99, expect=1))

    def test_two_gcs_at_once_remove_what_one_would(self):
        self.make(3000)
        words = [KVERN, "gc", self.uri, "--max-bytes", str(1000 * PAGE), "--json"]
        both = [subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) for _ in range(2)]
        reports = [json.loads(one.communicate(timeout=LIMIT_S)[0]) for one in both]
        self.assertEqual([one.returncode for one in both], [0, 0])
        self.assertEqual(sum(report["removed"]["objects"] for report in reports), 2000)
        self.assertEqual(self.numbers(3000), list(range(2000, 3000)))

    def test_a_killed_gc_leaves_work_for_the_next(self):
        self.make(3000)
        process = subprocess.Popen([KVERN, "gc", self.uri, "--max-bytes", str(100 * PAGE)], stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        wait_until(lambda: len(list(self.root.rglob("*.g0.*"))) < 3000 or process.poll() is not None)
        process.kill()
        process.wait()
        self.gc("--max-bytes", 100 * PAGE)
        self.assertEqual(self.numbers(3000), list(range(2900, 3000)))
        self.assertEqual(self.temporaries(), [])

    def test_gc_again_and_again_until_a_signal(self):
        self.make(50)
        process = subprocess.Popen([KVERN, "gc", self.uri, "--max-bytes", str(20 * PAGE), "--every", "100ms"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(process.kill)
        for first in range(50, 250, 50):
            wait_until(lambda: len(list(self.root.rglob("*.g0.*"))) <= 20)
            self.make(50, first=first)
        wait_until(lambda: len(list(self.root.rglob("*.g0.*"))) <= 20)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=LIMIT_S)
        self.assertEqual((process.returncode, err), (0, b""))
        lines = out.decode().splitlines()
        self.assertGreaterEqual(len(lines), 5)
        for line in lines:
            self.assertRegex(line, r"^\d{4}-.* UTC: removed \d+ objects?, .*; left .*; [\d.]+ s$")
        self.assertEqual(self.numbers(250), list(range(230, 250)))

    def test_du(self):
        self.make(10)
        (self.root / self.space / "label").write_text("some model\n")
        (self.root / "README").write_bytes(b"x")
        document = json.loads(self.kvern("du", self.uri, "--json").stdout)
        model = document["models"][0]
        self.assertEqual((model["model"], model["chunks"], model["bytes"]), ("some model", 10, 10 * PAGE))
        ages = {row["age"]: row["objects"] for row in document["ages"]}
        self.assertEqual(ages, {"up to 1h": 0, "up to 1d": 10, "up to 7d": 0, "up to 30d": 0, "older": 0})
        self.assertEqual(document["total"]["bytes"], 11 * PAGE)
        self.assertEqual(document["foreign"]["files"], 1)
        self.assertGreater(document["space"]["capacity_bytes"], document["space"]["free_bytes"])
        spaces = json.loads(self.kvern("du", self.uri, "--json", "--by", "namespace").stdout)["namespaces"]
        self.assertEqual([(row["namespace"], row["model"]) for row in spaces], [(self.space, "some model")])
        text = self.kvern("du", self.uri).stdout.decode()
        for part in ("some model", "up to 1d", "total: 10 objects", "not Kvern's: 1 file", "free space: "):
            self.assertIn(part, text)

    def test_fsck(self):
        self.assertTrue(json.loads(self.kvern("fsck", self.uri, "--json").stdout)["ok"])
        self.make(3)  # no objects at all
        done = subprocess.run([KVERN, "fsck", self.uri, "--json"], capture_output=True, timeout=LIMIT_S)
        document = json.loads(done.stdout)
        self.assertEqual((done.returncode, document["ok"], document["bad"]), (1, False, 3))
        self.assertIn("too short", document["findings"][0]["why"])
        self.assertIn("3 files bad and left", self.said("fsck", self.uri, expect=1))
        self.assertEqual(len(self.numbers(3)), 3)
        self.assertIn("1 file bad and left", self.said("fsck", self.uri, "--sample", 1, expect=1))
        document = json.loads(self.kvern("fsck", self.uri, "--remove", "--json").stdout)
        self.assertEqual((document["bad"], document["removed"]), (3, 3))
        self.assertEqual(self.numbers(3), [])
        self.assertIn("every checksum is right", self.kvern("fsck", self.uri).stdout.decode())

    def test_wrong_options(self):
        self.assertIn("--max-bytes", self.said("gc", self.uri, expect=2))
        self.assertIn("did you mean '--max-age'", self.said("gc", self.uri, "--max-aeg", "1d", expect=2))
        self.assertIn("12h", self.said("gc", self.uri, "--max-age", "12", expect=2))
        self.assertIn("1 to 99", self.said("gc", self.uri, "--min-free-percent", 100, expect=2))
        self.assertIn("hex digits", self.said("gc", self.uri, "--max-age", "1d", "--namespace", "XY", expect=2))
        self.assertIn("--dry-run", self.said("gc", self.uri, "--max-age", "1d", "--every", "1m", "--dry-run", expect=2))
        self.assertIn("did you mean 'model'", self.said("du", self.uri, "--by", "modle", expect=2))
        for sample in ("0", "0%", "101%", "x", "10 %"):
            self.assertIn("--sample", self.said("fsck", self.uri, "--sample", sample, expect=2))
        for command in (["du"], ["fsck"], ["gc", "--max-age", "1d"]):
            self.assertIn("create it", self.said(*command, self.uri + "/none", expect=1))


class Probe(Case):
    """Whatever this machine has: `local` and `http` are everywhere, a ConnectX and CUDA's library are hardly ever."""

    def test_every_provider_has_a_reason(self):
        found = {one["name"]: one for one in json.loads(self.kvern("probe", "--json").stdout)["providers"]}
        self.assertEqual(list(found), ["local", "verbs;ofi_rxm", "tcp;ofi_rxm", "cuobject", "dc", "http"])
        self.assertTrue(found["local"]["usable"] and found["http"]["usable"])
        self.assertTrue(all(one["reason"] for one in found.values()), found)
        for name in found:
            self.assertIn(name, self.kvern("probe").stdout.decode())

    def test_what_a_store_uses_is_told_too(self):
        self.assertIn(str(self.root), json.loads(self.kvern("probe", self.uri, "--json").stdout)["store"])
        self.assertIn("nothing-there", self.said("probe", f"file://{self.root}/nothing-there", expect=1))


def main():
    global KVERN
    parser = argparse.ArgumentParser()
    parser.add_argument("--kvern", required=True)
    options, rest = parser.parse_known_args()
    KVERN = options.kvern
    unittest.main(argv=[sys.argv[0], "-v", *rest])


if __name__ == "__main__":
    main()
