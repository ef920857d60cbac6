"""Kafka's share consumers (KIP-932) as consumers of a Shared subscription.

* `consumer`: one share consumer at one partition: its records, their locks, and its acknowledgements;
* `sessions`: what each share consumer fetches, request by request.
"""
