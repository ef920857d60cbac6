"""The program that runs one instance of a function outside of the server, with pulsar-client."""
