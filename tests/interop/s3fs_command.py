# SPDX-License-Identifier: Apache-2.0
"""s3fs as a command, since it lives in an environment of its own: ENDPOINT put|get|range|keys|delete BUCKET [KEY [FILE ...]].

Keys, and the access key, come as for AWS's tools. Exit status 1 and "not found" where there is no such key.
"""
from __future__ import annotations

import json
import sys
from pathlib import Path

import s3fs

MIB = 1 << 20


def main(endpoint: str, what: str, bucket: str, key: str = "", file: str = "", first: str = "0", last: str = "0") -> int:
    files = s3fs.S3FileSystem(endpoint_url=endpoint, config_kwargs={"s3": {"addressing_style": "path"}})
    path = f"{bucket}/{key}"
    if what == "put":
        # As a stream: large ones go in parts.
        with files.open(path, "wb", block_size=5 * MIB) as target:
            target.write(Path(file).read_bytes())
    elif what == "get":
        try:
            Path(file).write_bytes(files.cat_file(path))
        except FileNotFoundError:
            print("not found", file=sys.stderr)
            return 1
    elif what == "range":
        Path(file).write_bytes(files.cat_file(path, start=int(first), end=int(last) + 1))
    elif what == "keys":
        print(json.dumps([name.split("/", 1)[1] for name in files.find(bucket)]))
    elif what == "delete":
        files.rm_file(path)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
