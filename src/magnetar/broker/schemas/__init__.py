"""The schema registry: the schemas that a topic has had, and whether it accepts a new one."""
