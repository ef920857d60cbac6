"""What holds for every test."""

from hypothesis import HealthCheck, settings

# How long one example takes says nothing on a machine that does other things too; pytest-timeout ends what hangs.
# All else stays as it is: random here, the same examples each time where CI is set.
settings.register_profile(
    "magnetar",
    parent=settings(),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.load_profile("magnetar")
