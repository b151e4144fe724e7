#!/usr/bin/env bash
# Write requirements.lock: every package that `make run`, `make test` and `make check` use, pinned,
# for each Python we support. The file names no package index; pip's own configuration decides that.
set -euo pipefail
cd "$(dirname "$0")/.."

.venv/bin/python -m pip install --quiet "uv>=0.8"
.venv/bin/uv pip compile pyproject.toml \
  --universal --python-version 3.11 \
  --extra mariadb --extra postgres --extra redis --extra server --extra spark --extra testing \
  --group dev \
  --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" \
  --quiet --output-file requirements.lock "$@" >/dev/null
echo "requirements.lock: $(grep -c '==' requirements.lock) packages pinned"
