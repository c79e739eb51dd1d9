# SPDX-License-Identifier: Apache-2.0
"""Other people's KV cache tools that store into S3, through `kvern serve`: LMCache's adapter and NIXL's plugin OBJ."""
from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from servers import ACCESS, MIB, REGION, ROOT, SECRET, KvernServe

PYTHON = ROOT / ".venv-lmcache" / "bin" / "python"
COMMAND_S = 240

pytestmark = pytest.mark.long


def run(serve: KvernServe, *command: str | Path, **environment: str) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=COMMAND_S,
                          stdin=subprocess.DEVNULL, env={**os.environ, **serve.endpoint.env(), **environment})
    assert done.returncode == 0, f"{done.args}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


# ---------------------------------------------------------------------------------------------------------------- NIXL


@pytest.mark.parametrize("block, blocks, options", [
    (4096, 3, []), (MIB, 16, []), (4 * MIB, 8, ["req_checksum=supported", "resp_checksum=supported"]),
    (16 * MIB, 4, ["crtMinLimit=5242880"])], ids=["4 KiB", "1 MiB", "4 MiB with checksums", "16 MiB in parts"])
def test_nixl_stores_and_loads(serve, bucket: str, block: int, blocks: int, options: list[str]):
    found = json.loads(run(serve, PYTHON, Path(__file__).with_name("nixl_command.py"), serve.endpoint.url, bucket, str(block),
                           str(blocks), *options).splitlines()[-1])
    assert found == {"stored": blocks, "loaded": blocks, "equal": True, "there": [True] * blocks + [False]}
    listed = serve.boto3().list_objects_v2(Bucket=bucket)["Contents"]
    assert [one["Size"] for one in listed] == [block] * blocks


# ------------------------------------------------------------------------------------------------------------- LMCache


@pytest.fixture
def hosts(tmp_path: Path, bucket: str) -> list[str]:
    """A command's beginning, with which the bucket's own name is a host here. LMCache addresses no other way."""
    table = tmp_path / "hosts"
    table.write_text(f"127.0.0.1 localhost {bucket}.s3.test\n")
    private = ["unshare", "--mount", "--map-root-user", "--", "sh", "-c", f'mount --bind {table} /etc/hosts && exec "$@"', "sh"]
    if subprocess.run([*private, "true"], capture_output=True).returncode:
        pytest.skip("a mount of our own is not allowed here")
    return private


@pytest.mark.parametrize("kib", [256, 4096])
def test_lmcache_stores_and_loads(serve, bucket: str, hosts: list[str], kib: int):
    keys, rounds = 8, 2
    adapter = {"type": "s3", "s3_endpoint": f"{bucket}.s3.test:{serve.endpoint.port}", "s3_region": REGION, "disable_tls": True,
               "s3_prefer_http2": False, "aws_access_key_id": ACCESS, "aws_secret_access_key": SECRET, "s3_num_io_threads": 4}
    said = run(serve, *hosts, PYTHON.with_name("lmcache"), "bench", "l2", "--l2-adapter", json.dumps(adapter), "--num-keys",
               str(keys), "--in-flight", "1", "--data-size-kb", str(kib), "--l1-align-bytes", "4096", "--rounds", str(rounds),
               "--lookup-max-hit-rate", "1.0", "--no-skip-verify", "--format", "json", LMCACHE_TRACK_USAGE="false", PYTHONUNBUFFERED="1")
    assert "verified OK" in said, said[-3000:]
    metrics = json.loads(said[said.index('{\n  "title"'):said.rindex("\n}") + 2])["metrics"]
    operations = {one["operation"]: one for name, one in metrics.items() if name.startswith("op_")}
    for name in ("Store", "Load"):
        assert operations[name]["total_success"] == operations[name]["total_keys"] > 0, operations[name]
    looked_up = re.findall(r"found=(\d+)/(\d+)", said)
    assert looked_up and all(found == asked for found, asked in looked_up), looked_up
    sizes = [one["Size"] for one in serve.boto3().list_objects_v2(Bucket=bucket)["Contents"]]
    assert len(sizes) >= operations["Store"]["total_keys"] and set(sizes) == {kib << 10}  # it warms up, too
