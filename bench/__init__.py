"""Magnetar measured beside Apache Kafka: same clients, same machine, same run.

`python -m bench` starts both servers, lets librdkafka's `rdkafka_performance` and Kafka's `ProducerPerformance` load
them in turn, and reports medians and ratios.  How to read them: docs/internals/benchmarks.md.

* `stats` and `parse` are arithmetic without I/O; `report` turns their result into tables and JSON.
* `process`, `probe`, `servers` and `client` start, watch and end other programs.
* `measures` says what is measured, `runner` in which order, `__main__` reads the command line.
"""
