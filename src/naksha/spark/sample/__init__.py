"""The data of the built-in sample: a real edit history, so that time travel has something to show.
`naksha.cli.sample` loads it."""
