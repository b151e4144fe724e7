"""Entry point of `python -m naksha.spark`, which runs a job as a process."""

from __future__ import annotations

import sys

from naksha.spark.runtime.main import main

if __name__ == "__main__":
    sys.exit(main())
