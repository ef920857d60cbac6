"""Transactions over partitions and groups (KIP-98): who may write, what a transaction holds, how it ends."""
