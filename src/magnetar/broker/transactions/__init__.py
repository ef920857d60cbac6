"""Transactions over partitions and groups (KIP-98): which producer may write, what a transaction has, and how it
ends.
"""
