"""The `naksha` command: reads the configuration, assembles the parts and runs them."""
