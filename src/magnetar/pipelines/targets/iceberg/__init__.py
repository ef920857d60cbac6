"""Iceberg tables whose catalogue is their own folder, as Hadoop has them: `target` writes, `history` reads."""
