# SPDX-License-Identifier: Apache-2.0
"""The page /-/ui of a real `kvern serve` in a real Chromium: its numbers, its looks, and what it says when nobody answers.

Screenshots of it are kept in build/dashboard.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright
from prometheus_client.parser import text_string_to_metric_families

ROOT = Path(__file__).resolve().parents[2]
KVERN = ROOT / "build/release/src/cli/kvern"
SHOTS = ROOT / "build/dashboard"
PAGE = ROOT / "src/server/dashboard.html"
CHROMIUM = shutil.which("chromium")
PHONE, DESK = {"width": 375, "height": 812}, {"width": 1280, "height": 800}
MARKUP = "Qwen <b>2.5</b> \"7B\" & \\ <img src=x onerror=alert(1)>"  # the name of a model may be anything
KEPT, ANSWERS_WITHIN_S = 5, 20


class Server:
    """A `kvern serve` on a folder; it may be stopped and started again on the same port."""

    def __init__(self, folder: Path):
        self.folder, self.port, self.process = folder, 0, None
        (folder / "store").mkdir()

    def start(self) -> None:
        port_file = self.folder / "port"
        port_file.unlink(missing_ok=True)
        command = [KVERN, "serve", "--store", f"file://{self.folder}/store", "--anonymous", "--listen", f"127.0.0.1:{self.port}",
                   "--port-file", port_file, "--quota", "cache=8MiB,scratch=1GiB", "--memory", "128MiB"]
        self.process = subprocess.Popen([str(part) for part in command], stderr=(self.folder / "log").open("a"))
        await_that(lambda: port_file.exists() or self.process.poll() is not None, "kvern serve listens")
        assert self.process.poll() is None, (self.folder / "log").read_text()
        self.port = int(port_file.read_text())

    def stop(self, how: int = signal.SIGTERM) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.send_signal(how)
        self.process.wait(timeout=30)

    def ask(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        with contextlib.closing(connection):
            connection.request(method, path, body)
            answer = connection.getresponse()
            return answer.status, answer.read()

    def metrics(self) -> dict[str, float]:
        """`name` or `name{value of label, …}` of each sample."""
        families = text_string_to_metric_families(self.ask("GET", "/-/metrics")[1].decode())
        return {sample.name + ("{" + ",".join(sample.labels.values()) + "}" if sample.labels else ""): sample.value
                for family in families for sample in family.samples}


def await_that(true: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + ANSWERS_WITHIN_S
    while not true():
        assert time.monotonic() < until, f"never: {what}"
        time.sleep(0.05)


def fill(server: Server) -> None:
    """Buckets with and without a quota, objects, and what the cache leaves beside them: the name of the model."""
    for bucket in ("cache", "scratch", "a-bucket-with-a-rather-long-name.of-some-team"):
        assert server.ask("PUT", f"/{bucket}")[0] == 200
    for namespace, label, objects in (("aa11", "meta-llama/Llama-3.1-70B-Instruct-and-a-long-tail-of-a-name", 12),
                                      ("bb22", MARKUP, 4)):
        assert server.ask("PUT", f"/cache/{namespace}/label", label.encode())[0] == 200
        for number in range(objects):
            assert server.ask("PUT", f"/cache/{namespace}/{number:02}/object", os.urandom(480 << 10))[0] == 200
    assert server.ask("PUT", "/scratch/one", os.urandom(3 << 20))[0] == 200


def mixed_traffic(server: Server, over: threading.Event) -> None:
    """Reads that hit and miss, writes, looks, listings and refused requests, some 100 a second, until told."""
    round_number = 0
    while not over.wait(0.05):
        server.ask("GET", f"/cache/aa11/{round_number % 12:02}/object")
        server.ask("GET", "/cache/aa11/nothing")
        server.ask("HEAD", "/scratch/one")
        server.ask("PUT", f"/scratch/new{round_number % 7}", b"x" * 40000)
        if round_number % 4 == 0:
            server.ask("GET", "/scratch?list-type=2")
        if round_number % 16 == 0:
            server.ask("GET", "/scratch?tagging")
        round_number += 1


@contextlib.contextmanager
def traffic(server: Server) -> Iterator[None]:
    over = threading.Event()
    thread = threading.Thread(target=mixed_traffic, args=(server, over))
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("serve"))
    server.start()
    try:
        fill(server)
        server.stop()
        server.start()  # its scan finds what is there, the names of models too
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    assert CHROMIUM, "chromium is missing: ./run setup installs it"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@contextlib.contextmanager
def opened(browser: Browser, server: Server, viewport: dict = DESK, scheme: str = "light") -> Iterator[Page]:
    """The page, live. Nothing may be asked of anybody but this server, and nothing may go wrong in the page."""
    context = browser.new_context(viewport=viewport, color_scheme=scheme)
    page = context.new_page()
    page.set_default_timeout(ANSWERS_WITHIN_S * 1000)
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda message: faults.append(message.text) if "Content Security" in message.text else None)
    page.on("dialog", lambda dialog: (faults.append("markup of a label was run"), dialog.dismiss()))
    origin = f"http://127.0.0.1:{server.port}/"
    page.on("request", lambda request: None if request.url.startswith((origin, "data:")) else faults.append(request.url))
    page.goto(origin + "-/ui")
    page.wait_for_selector("#state[data-state=live]")
    yield page
    context.close()
    assert not faults


def value(page: Page, name: str) -> float:
    exact = page.locator(f"[data-n='{name}']").get_attribute("data-v")
    assert exact, f"{name} shows '{page.locator(f'[data-n={name}]').inner_text()}' and has no value"
    return float(exact)


def polled(page: Page, rounds: int = 2) -> None:
    """Waits until the page has had that many more answers."""
    for _ in range(rounds):
        before = page.locator("[data-n=time_ns]").get_attribute("data-v")
        page.wait_for_function("was => document.querySelector('[data-n=time_ns]').dataset.v !== was", arg=before)


# ------------------------------------------------------------------------------------------------------------ numbers


def test_page_is_the_file_and_may_ask_nobody_else(server: Server):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    connection.request("GET", "/-/ui")
    answer = connection.getresponse()
    assert answer.read() == PAGE.read_bytes()
    policy = dict(part.split(" ", 1) for part in answer.headers["Content-Security-Policy"].split("; "))
    assert policy["default-src"] == "'none'" and policy["connect-src"] == "'self'"
    assert "unsafe" not in " ".join(policy.values())
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"


def test_numbers_equal_the_metrics(server: Server, browser: Browser):
    with traffic(server):
        time.sleep(1)
    with opened(browser, server) as page:
        polled(page)
        true = server.metrics()

        def total(prefix: str, ending: str = "") -> float:
            return sum(number for name, number in true.items() if name.startswith(prefix) and name.endswith(ending))

        expected = {name: true[f"kvern_server_{metric}"] for name, metric in {
            "sent_bytes": "sent_bytes_total", "received_bytes": "received_bytes_total", "hits": "hits_total",
            "misses": "misses_total", "in_flight": "in_flight", "connections_max": "connections_max",
            "connections_refused": "connections_refused_total", "memory_bytes": "memory_bytes",
            "memory_leased_bytes": "memory_leased_bytes", "memory_waiting": "memory_waiting"}.items()}
        expected["requests"] = total("kvern_server_requests_total")
        expected["hit_ratio"] = expected["hits"] / (expected["hits"] + expected["misses"])
        for status in ("2xx", "4xx"):
            expected[f"status_{status}"] = total("kvern_server_requests_total", f",{status}}}")
            assert expected[f"status_{status}"] > 0
        assert true["kvern_server_store_outcomes_total{failed}"] == 0, "nothing was wrong with the store"
        assert true["kvern_server_store_outcomes_total{ok}"] > 0 and true["kvern_server_store_outcomes_total{miss}"] > 0
        for outcome in ("ok", "miss", "refused", "busy", "failed"):
            expected[f"store_{outcome}"] = true[f"kvern_server_store_outcomes_total{{{outcome}}}"]
        for operation in ("GetObject", "HeadObject", "PutObject", "ListObjectsV2"):
            expected[f"op_{operation}_total"] = total(f"kvern_server_requests_total{{{operation},")
            assert expected[f"op_{operation}_total"] > 0
        for bucket in ("cache", "scratch"):
            expected[f"bucket_{bucket}_bytes"] = true[f"kvern_server_bucket_bytes{{{bucket}}}"]
            expected[f"bucket_{bucket}_objects"] = true[f"kvern_server_bucket_objects{{{bucket}}}"]
        assert {name: value(page, name) for name in expected} == pytest.approx(expected)


def test_buckets_show_quota_and_models(server: Server, browser: Browser):
    with opened(browser, server) as page:
        assert value(page, "bucket_cache_quota") == 8 << 20
        assert "of 8.00 MiB" in page.locator("[data-n=bucket_cache_quota]").inner_text()
        quota, models = page.locator("[role=meter][aria-label='Part of the quota of cache']"), page.locator(".model")
        assert float(quota.get_attribute("aria-valuenow")) == pytest.approx(100 * value(page, "bucket_cache_bytes") / (8 << 20), abs=1)
        assert quota.locator("i").evaluate("bar => bar.offsetWidth / bar.parentElement.offsetWidth") == pytest.approx(
            value(page, "bucket_cache_bytes") / (8 << 20), abs=0.02)
        assert models.locator(".name > span:first-child").all_inner_texts()[1] == MARKUP  # as text, and the smaller one
        sums = [float(part) for part in models.locator(".name > span:last-child").evaluate_all("all => all.map(one => one.dataset.v)")]
        metrics = {name: number for name, number in server.metrics().items() if name.startswith("kvern_server_label_bytes")}
        assert sorted(sums) == sorted(metrics.values()) and len(sums) == 2
        assert "ago" in page.locator("[data-n=scanned_ns]").inner_text()


def test_rates_follow_the_traffic(server: Server, browser: Browser):
    def all_requests() -> float:
        return sum(number for name, number in server.metrics().items() if name.startswith("kvern_server_requests_total"))

    with traffic(server), opened(browser, server) as page:
        polled(page, KEPT + 2)
        before, start = all_requests(), time.monotonic()
        polled(page, KEPT + 1)
        true = (all_requests() - before) / (time.monotonic() - start)
        assert value(page, "request_rate") == pytest.approx(true, rel=0.3)
        assert value(page, "sent_rate") > value(page, "received_rate") > 0
        assert 0 < value(page, "p50") <= value(page, "p90") <= value(page, "p99") < 10
        assert 0 <= value(page, "own_share") <= 1
        for name in ("throughput_out", "throughput_in", "requests_reads", "requests_looks", "requests_writes", "latency_p99"):
            assert value(page, name) > 0
        for path in page.locator("[data-chart=throughput] path").all():
            assert path.get_attribute("d").count("L") >= KEPT
    with opened(browser, server) as page:  # and go down again
        polled(page, 3)
        assert value(page, "request_rate") == 0 and value(page, "throughput_out") == 0
        assert page.locator("[data-n=p50]").inner_text() == "–"


def test_quantiles_lie_where_the_histogram_has_them(server: Server, browser: Browser):
    with opened(browser, server) as page:
        def quantile(counts: list[int], q: float) -> float | None:
            return page.evaluate("([counts, q]) => { const v = quantile([1, 2, 4], counts, q); return v === Infinity ? 'beyond' : v }",
                                 [counts, q])

        assert quantile([0, 0, 0, 0], 0.5) is None
        assert quantile([10, 0, 0, 0], 0.5) == 0.5
        assert quantile([0, 0, 8, 0], 0.25) == 2.5
        assert quantile([5, 0, 5, 0], 0.9) == pytest.approx(3.6)
        assert quantile([1, 1, 1, 1], 0.99) == "beyond"


# -------------------------------------------------------------------------------------------------------------- looks


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name, viewport", [("phone", PHONE), ("desk", DESK), ("small", {"width": 320, "height": 640})])
def test_fits_and_can_be_read(server: Server, browser: Browser, name: str, viewport: dict, scheme: str):
    with traffic(server), opened(browser, server, viewport, scheme) as page:
        polled(page, 6)
        SHOTS.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=SHOTS / f"{name}-{scheme}.png", full_page=True)
        assert page.evaluate("document.scrollingElement.scrollWidth <= innerWidth"), "scrolls sideways"
        assert page.evaluate(TOO_FAINT) == []
        assert page.evaluate("""[...document.querySelectorAll('.big, .small, h2')].filter(e => e.scrollWidth > e.clientWidth + 1)
                                .map(e => e.textContent)""") == [], "cut off"
        assert page.evaluate("""[...document.querySelectorAll('[role=img], [role=meter], [role=region]')]
                                .filter(e => !e.getAttribute('aria-label')).length""") == 0


# Texts whose contrast to what is behind them is below 4.5 to 1 (WCAG AA).
TOO_FAINT = """(() => {
  const rgb = color => color.match(/[\\d.]+/g).map(Number);
  const light = color => rgb(color).slice(0, 3).map(c => c / 255).map(c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = e => { for (; e; e = e.parentElement) { const b = getComputedStyle(e).backgroundColor;
    if ((rgb(b)[3] ?? 1) > 0) return b; } return 'rgb(255, 255, 255)'; };
  const found = [];
  for (const e of document.querySelectorAll('body *')) {
    if (![...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim()) || !e.offsetParent) continue;
    const [a, b] = [light(getComputedStyle(e).color), light(behind(e))].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) found.push(e.textContent.trim());
  }
  return found;
})()"""


def test_nothing_jumps(server: Server, browser: Browser):
    with traffic(server), opened(browser, server, PHONE) as page:
        polled(page, 3)
        page.evaluate("""window.shifts = 0; new PerformanceObserver(list => {
            for (const entry of list.getEntries()) window.shifts += entry.value;
        }).observe({type: 'layout-shift'})""")
        heights = "[...document.querySelectorAll('.card')].map(card => card.offsetHeight)"
        before = page.evaluate(heights)
        polled(page, 5)
        assert page.evaluate(heights) == before
        assert page.evaluate("window.shifts") < 0.005  # a word behind a number of more digits


def test_a_chart_tells_the_moment_under_the_pointer(server: Server, browser: Browser):
    with traffic(server), opened(browser, server) as page:
        polled(page, 4)
        plot = page.locator("[data-chart=requests] .plot")
        box = plot.bounding_box()
        page.mouse.move(box["x"] + box["width"] - 4, box["y"] + 40)
        assert re.fullmatch(r"at \d\d:\d\d:\d\d UTC", page.locator("[data-chart=requests] .axis span").first.inner_text())
        assert page.locator("[data-chart=requests] .hair").get_attribute("visibility") == "visible"
        page.mouse.move(0, 0)
        assert page.locator("[data-chart=requests] .axis span").first.inner_text() == "5 min ago"


# ------------------------------------------------------------------------------------------------------------ no answer


def test_says_when_the_server_hangs_and_when_it_is_gone(server: Server, browser: Browser):
    with opened(browser, server) as page:
        assert not page.locator("#alarm").is_visible()
        tops = "[...document.querySelectorAll('.card')].map(card => card.offsetTop)"
        before = page.evaluate(tops)
        server.process.send_signal(signal.SIGSTOP)
        page.wait_for_selector("#state[data-state=silent]")
        assert "nothing within 4 s" in page.locator("#alarm").inner_text() and page.title().startswith("No answer")
        assert page.evaluate(tops) == before
        server.process.send_signal(signal.SIGCONT)
        page.wait_for_selector("#state[data-state=live]")
        assert not page.locator("#alarm").is_visible() and page.title() == "kvern serve"
        server.stop()
        page.wait_for_selector("#state[data-state=silent]")
        alarm = page.locator("#alarm").inner_text()
        assert "does not answer (no connection)" in alarm and re.search(r"those of \d\d:\d\d:\d\d UTC", alarm)
        assert page.locator("#alarm").get_attribute("role") == "alert"
        page.screenshot(path=SHOTS / "no-answer.png")
        server.start()
        page.wait_for_selector("#state[data-state=live]")
        polled(page, 2)
        # Counters that began again are no negative rates, and history is that of the new server.
        assert value(page, "sent_rate") >= 0 and value(page, "uptime") < ANSWERS_WITHIN_S
        assert page.locator("[data-chart=throughput] path").first.get_attribute("d").count("L") <= 3


def test_rests_while_nobody_looks(server: Server, browser: Browser):
    with opened(browser, server) as page:
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.evaluate("""Object.defineProperty(document, 'hidden', {configurable: true, get: () => true});
                         document.dispatchEvent(new Event('visibilitychange'))""")
        page.wait_for_timeout(200)
        asked.clear()
        page.wait_for_timeout(2500)
        assert not asked
        page.evaluate("""Object.defineProperty(document, 'hidden', {configurable: true, get: () => false});
                         document.dispatchEvent(new Event('visibilitychange'))""")
        polled(page, 2)
        assert asked
