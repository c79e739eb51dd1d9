# SPDX-License-Identifier: Apache-2.0
"""The process that serves the engine tests: imports vLLM once, then forks a child for every case.

Importing vLLM takes twenty seconds and starting an engine five, so a case costs five. The tests' own process never
imports vLLM and speaks to this one through its standard input and output: one pickled request
{"function": "module:name", "arguments": {...}, "timeout_s": seconds, "log": path}, one pickled reply
{"value": ...} or {"trouble": "traceback or reason"}, both length-prefixed. A child's output goes to the case's log.
"""
from __future__ import annotations

import importlib
import os
import pickle
import select
import signal
import struct
import sys
import time
import traceback

LENGTH = struct.Struct("<Q")


def write_message(fd: int, message: object) -> None:
    body = pickle.dumps(message)
    data = memoryview(LENGTH.pack(len(body)) + body)
    while data:
        data = data[os.write(fd, data):]


def read_exactly(fd: int, count: int, deadline: float | None) -> bytes:
    """Raises EOFError when the other side is gone, TimeoutError at the deadline (of the monotonic clock)."""
    data = b""
    while len(data) < count:
        if deadline is not None and not select.select([fd], [], [], max(0.0, deadline - time.monotonic()))[0]:
            raise TimeoutError
        part = os.read(fd, count - len(data))
        if not part:
            raise EOFError
        data += part
    return data


def read_message(fd: int, deadline: float | None = None) -> object:
    (count,) = LENGTH.unpack(read_exactly(fd, LENGTH.size, deadline))
    return pickle.loads(read_exactly(fd, count, deadline))


def run_case(request: dict) -> dict:
    """In the child: calls the function; the answer must be picklable without vLLM."""
    try:
        module, name = request["function"].split(":")
        return {"value": getattr(importlib.import_module(module), name)(**request["arguments"])}
    except BaseException:
        return {"trouble": traceback.format_exc()}


def child(request: dict, reply_fd: int) -> None:
    """Never returns."""
    os.setpgid(0, 0)
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    reply = run_case(request)
    write_message(reply_fd, reply)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # no exit handlers: they belong to the process that was forked


def serve_one(request: dict) -> dict:
    """In the host: a child, its answer or the reason why there is none, and no process left behind."""
    reply_fd, child_fd = os.pipe()
    start = time.monotonic()
    pid = os.fork()
    if pid == 0:
        os.close(reply_fd)
        child(request, child_fd)
    os.close(child_fd)
    try:
        return read_message(reply_fd, start + request["timeout_s"])
    except TimeoutError:
        return {"trouble": f"no answer within {request['timeout_s']} s"}
    except EOFError:
        return {"trouble": "the child died without an answer"}
    finally:
        os.close(reply_fd)
        print(f"{request['function']}: {time.monotonic() - start:.1f} s", file=sys.stderr, flush=True)
        try:
            os.killpg(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        os.waitpid(pid, 0)


def main() -> None:
    replies = os.dup(1)
    os.dup2(2, 1)  # whatever a library prints must not mix with the replies
    import vllm  # noqa: F401
    from vllm import LLM  # noqa: F401  (loads the parts that `import vllm` leaves for later)
    from vllm.model_executor.models import registry
    from vllm.v1.engine import core, llm_engine  # noqa: F401

    # vLLM looks at an architecture for the first time in a process of its own, which imports vLLM once more.
    registry._run_in_subprocess = lambda look: look()
    write_message(replies, {"value": "ready"})
    while True:
        try:
            request = read_message(0)
        except EOFError:
            return
        write_message(replies, serve_one(request))


if __name__ == "__main__":
    main()
