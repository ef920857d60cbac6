"""`magnetar`, with a store so small that a second of load meets everything: the journal goes around, segments are
written and sealed, the catalogue is written again.

    python small_server.py standalone --data-dir DIR ...
"""

from dataclasses import replace

from magnetar.base.settings import ServerSettings
from magnetar.cli.main import main
from magnetar.server import start_steps
from magnetar.storage.local import catalogue
from magnetar.storage.local.settings import LocalStoreSettings


def _small(settings: ServerSettings) -> LocalStoreSettings:
    return replace(
        LocalStoreSettings(journal_sync_data=settings.storage.journal_sync_data),
        journal_file_bytes=1 << 20,
        round_bytes_max=512 << 10,
        checkpoint_entries_max=500,
        flush_bytes=64 << 10,
    )


if __name__ == "__main__":
    start_steps.store_settings = _small  # type: ignore[attr-defined]
    catalogue.REWRITE_SLACK_BYTES = 2048  # type: ignore[misc]
    main()
