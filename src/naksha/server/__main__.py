"""`python -m naksha.server`: the hub as a process."""

from __future__ import annotations

import sys

from naksha.server.process.main import main

if __name__ == "__main__":
    sys.exit(main())
