"""Entry point of `python -m naksha.server`: run the hub as a process."""

from __future__ import annotations

import sys

from naksha.server.process.main import main

if __name__ == "__main__":
    sys.exit(main())
