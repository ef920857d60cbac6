"""Where the metadata of topics lie: the roots of the paths that are named by a topic or by its logs."""

from typing import Final

TOPICS_ROOT: Final = "/topics/"  # the topic's record: `topic.py`
DELETED_ROOT: Final = "/deleted-topics/"  # that it was deleted, and something may be left: `deleted.py`
SNAPSHOTS_ROOT: Final = "/producer-snapshots/"  # of each log: `log/producer_snapshots.py`
EPOCHS_ROOT: Final = "/topic-epochs/"  # of each log: `producers/admission.py`
