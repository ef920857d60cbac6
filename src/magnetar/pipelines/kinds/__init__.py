"""What a pipeline can be; each kind has a folder of its own and knows no other kind."""
