"""How many seeds a test tries, and where."""

from tests.examples import seeds


def test_the_first_seeds_run_everywhere_and_the_others_in_make_soak() -> None:
    found = [
        seed if isinstance(seed, int) else (*seed.values, *(one.name for one in seed.marks))
        for seed in seeds(2, 4)
    ]
    assert found == [0, 1, (2, "soak"), (3, "soak")]
