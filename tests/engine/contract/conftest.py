# SPDX-License-Identifier: Apache-2.0
"""Before vLLM is imported: no device is looked for, and few threads are started."""
from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ.setdefault("VLLM_TARGET_DEVICE", "cpu")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("KVERN_LOG", "error")  # damage is ordered here; a warning about each would bury what matters
sys.path.insert(0, str(Path(__file__).resolve().parent))
