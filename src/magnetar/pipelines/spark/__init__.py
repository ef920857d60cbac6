"""Spark itself: its installation, its Java, its sessions and the process that forks its Python workers."""
