"""Programs that other Pythons run: in a folder of their own, as beside `bench/profile.py` theirs would not be found."""
