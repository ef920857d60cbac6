"""Entries in the form in which clients of the other protocol read them."""
