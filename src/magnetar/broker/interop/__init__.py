"""Entries as clients of the other protocol read them."""
