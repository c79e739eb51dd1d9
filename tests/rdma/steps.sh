# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# For what runs in a guest (`script` in tests/rdma/guest.py): one boot does many steps, each looked at by tests of its own.

# step NAME COMMAND: runs the shell text COMMAND up to its first failure. Its output becomes $OUT/NAME.log, its end a line
# of $OUT/steps.jsonl. NAME may hold no slash and nothing that JSON escapes. The next step comes in any case.
step() {
  local begun_us=${EPOCHREALTIME/./} status
  (set -euo pipefail && eval "$2") >"$OUT/$1.log" 2>&1
  status=$?
  printf '{"step": "%s", "status": %d, "seconds": %de-6}\n' "$1" $status $((${EPOCHREALTIME/./} - begun_us)) >>"$OUT/steps.jsonl"
}
