"""Clients of a Magnetar server, for programs outside the server: the command line and pipelines.  They import no
server code.
"""
