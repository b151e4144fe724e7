"""The `naksha` command: it reads configuration, assembles the parts and runs them."""
