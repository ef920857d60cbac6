"""`magnetar worker`: one Spark driver that runs the pipelines that are declared to a server."""
