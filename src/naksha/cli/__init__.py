"""The `naksha` command: reads the configuration, assembles the parts and runs them.

A module has the verbs of one group, or what several groups share; the work belongs to the packages
that a verb calls.
"""
