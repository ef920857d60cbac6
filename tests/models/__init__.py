"""Models: small worlds in which a part of Magnetar is driven at random and held to its contract after every step.

`python -m tests.models.dispatch --rounds 1000 --seed 1`, from the root of the repository, runs one for long.
"""
