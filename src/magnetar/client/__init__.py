"""Clients of a Magnetar server for what runs outside of it: the command line, pipelines.  No server code in them."""
