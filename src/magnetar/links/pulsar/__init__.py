"""A Pulsar cluster as a source: its entries keep their bytes, and their positions are noted with them."""
