"""Kafka's share consumers (KIP-932) as consumers of a Shared subscription.

* `consumer`: one of them at one partition: what it was given, until when, and what it says of it;
* `sessions`: what each fetches, request by request.
"""
