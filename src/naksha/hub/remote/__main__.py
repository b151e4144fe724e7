"""Command line `python -m naksha.hub.remote`: host an event handler for a hub elsewhere."""

import sys

from naksha.hub.remote.program import main

sys.exit(main())
