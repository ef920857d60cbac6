"""`magnetar worker`: one Spark driver that runs the pipelines declared to a server."""
