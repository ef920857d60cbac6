"""The storage part of `magnetar doctor`: it finds what is wrong with a stopped store, and repairs it.

`check` reads and changes nothing.  `repair` writes a new catalogue, if the old one is damaged, and a new journal file
with what can be kept (`salvage`).  It moves the files that it replaces into a folder, and deletes nothing.  After
each step the store is either as damaged as before or repaired.  The new journal file has a greater epoch than all
others and begins after the checkpoint, so it replaces them from the moment when it gets its name.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from crc32c import crc32c

from magnetar.base.arena import Arena, map_memory
from magnetar.base.errors import EntryCorrupt
from magnetar.base.findings import Finding, Weight
from magnetar.storage.blocks import align_up
from magnetar.storage.local.catalogue import whole_catalogue
from magnetar.storage.local.disk import Disk, File
from magnetar.storage.local.format import ROUND_BYTES, round_header
from magnetar.storage.local.index import SparseIndex
from magnetar.storage.local.replay import Damage
from magnetar.storage.local.salvage import Examined, LedgerState
from magnetar.storage.local.segment import Damaged, Stretch, read_chunk, read_footer, scan
from magnetar.storage.segment_format import INDEX_STEP_BYTES
from magnetar.wire.stored import RECORD_BYTES

READ_BYTES: Final = 4 << 20
DEEP_BYTES_MAX: Final = 1 << 30
"""How many bytes of the segments a check reads that is not deep."""

TOLD_MAX: Final = 20
"""How many ledgers and segments get a sentence of their own.  The sums count the rest, and the details have all."""


def check(examined: Examined, *, deep: bool) -> Iterator[Finding]:
    """Check the catalogue, the journal, then the segments.  Raises OSError if a file cannot be read."""
    yield from _check_catalogue(examined)
    yield from _check_journal(examined)
    yield from _check_ledgers(examined)
    yield from _check_segments(examined, deep=deep)


def _check_catalogue(examined: Examined) -> Iterator[Finding]:
    known, view = examined.known, examined.catalogue
    details = {
        "bytes": examined.catalogue_size,
        "ledgers": len(known.facts),
        "checkpoint_round": known.journal_sequence,
    }
    if not examined.is_catalogue_damaged:
        torn = view is not None and view.position < examined.catalogue_size
        end = ", and ends in a commit that was cut short, which is harmless" if torn else ""
        yield Finding(
            "catalogue",
            Weight.OK,
            f"{len(known.facts)} ledgers, checkpoint at round {known.journal_sequence}{end}",
            details,
        )
    elif not examined.has_catalogue:
        yield Finding(
            "catalogue",
            Weight.DAMAGE,
            "the catalogue is gone, and there are segments or a journal: it can be made again from them",
            details,
        )
    else:
        place = 0 if view is None else view.position
        yield Finding(
            "catalogue",
            Weight.DAMAGE,
            f"the catalogue is damaged at byte {place} of {examined.catalogue_size}: it can be made again from what is"
            f" whole of it and from the segments, with {len(known.facts)} ledgers",
            details | {"position": place},
        )


def _check_journal(examined: Examined) -> Iterator[Finding]:
    files = sorted(examined.files.values(), key=lambda file: (file.epoch, file.name))
    details = {
        "files": [
            {
                "name": file.name,
                "bytes": file.size_bytes,
                "epoch": file.epoch,
                "rounds": file.round_count,
                "first_round": file.first_round,
                "last_round": file.last_round,
            }
            for file in files
        ],
        "kept_rounds": len(examined.kept),
        "kept_records": examined.kept_records,
    }
    for name, size in examined.journal.cut:
        yield Finding(
            "journal",
            Weight.DAMAGE,
            f"{name} has {size} bytes: something has cut it",
            {"file": name, "bytes": size},
        )
    for damage in examined.damage:
        yield _finding_of(damage)
    for torn in examined.torn:
        yield Finding(
            "journal",
            Weight.NOTE,
            f"{torn.file_name} ends at byte {torn.position} in a write that was cut short, round {torn.sequence}: a"
            " kill leaves that, and no client had an answer yet (damage to the very last write looks the same, if more"
            " than one bit is wrong)",
            {"file": torn.file_name, "position": torn.position, "round": torn.sequence},
        )
    kept = f"{examined.kept_records} records in {len(examined.kept)} rounds"
    if examined.is_journal_damaged:
        text = (
            f"{kept} behind the checkpoint can be kept; of {examined.records_behind} whole ones behind the damage"
            f" {sum(ledger.cut_off for ledger in examined.ledgers.values())} cannot"
        )
        yield Finding("journal", Weight.NOTE, text, details)
    else:
        yield Finding(
            "journal", Weight.OK, f"{len(files)} files; a start takes {kept} behind the checkpoint", details
        )


def _finding_of(damage: Damage) -> Finding:
    lost = max(damage.end_sequence - damage.first_sequence, 0)
    text = f"{damage.sentence()}: not what was written, and others were written after it"
    if damage.mended is not None:
        lost = 0
        text = f"{damage.sentence()}: a repair turns it back, and nothing of the round is lost"
    elif damage.is_unclear:
        text = (
            f"{damage.sentence()}: the bit says to which ledger a record belongs, and a client can feign that, so a"
            " repair leaves the round out"
        )
    elif not damage.is_synced:
        text = (
            f"{damage.sentence()}: never written, or damaged (the journal was not synced, so a start takes it for a"
            " loss of power and drops what is behind it)"
        )
    return Finding(
        "journal",
        Weight.DAMAGE,
        text,
        {
            "file": damage.file_name or None,
            "position": damage.position,
            "first_round": damage.first_sequence,
            "lost_rounds": lost,
        },
    )


def _check_ledgers(examined: Examined) -> Iterator[Finding]:
    holed = {
        ledger_id: ledger
        for ledger_id, ledger in sorted(examined.ledgers.items())
        if ledger.missing_entry is not None
    }
    for number, (ledger_id, ledger) in enumerate(holed.items()):
        if number == TOLD_MAX:
            yield Finding("ledgers", Weight.DAMAGE, f"and {len(holed) - TOLD_MAX} ledgers more", {})
            return
        yield Finding(
            "ledgers",
            Weight.DAMAGE,
            f"ledger {ledger_id}: entry {ledger.missing_entry} is missing; {ledger.entry_count} entries in front of it"
            f" (up to offset {_offset(ledger)}) are kept, and {ledger.cut_off} whole ones behind it cannot be",
            {
                "ledger": ledger_id,
                "kept_entries": ledger.entry_count,
                "last_offset": _offset(ledger),
                "cut_off_entries": ledger.cut_off,
            },
        )


def _offset(ledger: LedgerState) -> int:
    return ledger.last_offset if ledger.entry_count else -1


# -- segments


def _check_segments(examined: Examined, *, deep: bool) -> Iterator[Finding]:
    with_files = {
        ledger_id: ledger for ledger_id, ledger in sorted(examined.ledgers.items()) if ledger.data_bytes
    }
    total = sum(ledger.data_bytes for ledger in with_files.values())
    is_read = deep or total <= DEEP_BYTES_MAX
    arena = Arena(READ_BYTES * 4)
    bad = 0
    for ledger_id, ledger in with_files.items():
        for finding in _check_segment(examined, ledger_id, ledger, arena, is_read=is_read):
            bad += 1
            if bad <= TOLD_MAX:
                yield finding
    if bad > TOLD_MAX:
        yield Finding("segments", Weight.DAMAGE, f"and {bad - TOLD_MAX} findings of this kind more", {})
    how = "every record read" if is_read else "their sizes looked at (--deep reads every record)"
    weight = Weight.NOTE if bad else Weight.OK
    yield Finding(
        "segments",
        weight,
        f"{len(with_files)} files with {total} bytes, {how}",
        {"files": len(with_files), "bytes": total, "deep": is_read},
    )
    unknown = sorted(set(examined.segments) - set(examined.ledgers))
    if unknown:
        names = ", ".join(examined.segments[ledger_id].name for ledger_id in unknown[:3])
        yield Finding(
            "segments",
            Weight.NOTE,
            f"{len(unknown)} files are of ledgers that are not there any more: {names}"
            + (", ..." if len(unknown) > 3 else ""),
            {"ledgers": unknown},
        )


def _check_segment(
    examined: Examined, ledger_id: int, ledger: LedgerState, arena: Arena, *, is_read: bool
) -> Iterator[Finding]:
    path = examined.segments.get(ledger_id)

    def finding(text: str, **details: object) -> Finding:
        return Finding(
            "segments", Weight.DAMAGE, f"ledger {ledger_id}: {text}", {"ledger": ledger_id, **details}
        )

    if path is None:
        yield finding(f"its segment with {ledger.in_segment} entries is gone", lost_entries=ledger.in_segment)
        return
    file = examined.disk.open(path)
    try:
        if file.size() < ledger.data_bytes:
            yield finding(f"{path.name} has {file.size()} bytes, and {ledger.data_bytes} were synced")
        index = _index_of(examined, ledger_id, ledger, file, arena)
        if index is None:
            yield finding(f"the footer of {path.name} is damaged: readers read the records instead")
        if not is_read:
            return
        damaged = _damaged_entries(
            ledger_id, ledger, file, index or _scanned(ledger_id, ledger, file, arena), arena
        )
        if damaged:
            yield finding(
                f"{len(damaged)} of {ledger.in_segment} entries in {path.name} are damaged, the first is entry"
                f" {damaged[0]}: reading them is an error, the others can be read",
                damaged_entries=len(damaged),
                first_damaged_entry=damaged[0],
            )
    finally:
        file.close()


def _index_of(
    examined: Examined, ledger_id: int, ledger: LedgerState, file: File, arena: Arena
) -> SparseIndex | None:
    """An index, for continuing after damage; None if the segment should have a footer and has no whole one."""
    index = SparseIndex()
    if not ledger.is_sealed:
        index.extend(b"".join(examined.known.facts[ledger_id][1]))
        return index
    footer = read_footer(file, arena, ledger_id)
    if footer is None or (footer.entry_count, footer.data_bytes) != (ledger.in_segment, ledger.data_bytes):
        return None
    index.extend(footer.points)
    return index


def _scanned(ledger_id: int, ledger: LedgerState, file: File, arena: Arena) -> SparseIndex:
    index = SparseIndex()
    for position, entry in scan(file, arena, ledger_id, ledger.data_bytes, READ_BYTES):
        if index.wants_point(position):
            index.add(entry.entry_id, position, 0, 0)
    return index


def _damaged_entries(
    ledger_id: int, ledger: LedgerState, file: File, index: SparseIndex, arena: Arena
) -> list[int]:
    marks = [*zip(index.entries, index.positions, strict=True), (ledger.in_segment, ledger.data_bytes)]
    if not marks or marks[0] != (0, 0):
        marks.insert(0, (0, 0))
    damaged: list[int] = []
    first = 0
    while first < len(marks) - 1:
        last = first + 1
        while last < len(marks) - 1 and marks[last][1] - marks[first][1] < READ_BYTES - INDEX_STEP_BYTES:
            last += 1
        stretch = Stretch(
            marks[first][0], marks[last][0], marks[first][1], marks[last][1], marks[first + 1 : last]
        )
        try:
            chunk = read_chunk(file, arena, ledger_id, stretch)
        except EntryCorrupt:
            damaged += range(stretch.first, stretch.end)
        else:
            damaged += [entry.entry_id for entry in chunk.entries if isinstance(entry, Damaged)]
            del chunk
        first = last
    return damaged


# -- repair


def repair(examined: Examined, folder: Path) -> Iterator[Finding]:
    """Make a store of what can be kept, and move the files that it replaces into `folder`, which exists.

    Raises OSError if a file cannot be written or moved; the caller can then try again.
    """
    disk = examined.disk
    if examined.is_catalogue_damaged:
        _replace_catalogue(examined, folder)
        yield Finding(
            "catalogue",
            Weight.REPAIRED,
            f"made again with {len(examined.known.facts)} ledgers; the old one is in {folder.name}",
            {"ledgers": len(examined.known.facts)},
        )
    if examined.is_journal_damaged:
        # Before the journal: a repair that was interrupted is done again because the journal is still damaged.
        if unknown := examined.unknown_segments:
            disk.make_directory(folder / "segments")
            for ledger_id in unknown:
                path = examined.segments[ledger_id]
                disk.rename(path, folder / "segments" / path.name)
            disk.sync_directory(folder / "segments")
            disk.sync_directory(examined.data_dir / "segments")
            yield Finding(
                "segments",
                Weight.REPAIRED,
                f"{len(unknown)} files of ledgers whose beginning is lost are in {folder.name}/segments now",
                {"ledgers": unknown},
            )
        name = _write_journal(examined)
        old = [file.path for file in examined.journal.files()]
        old += [examined.data_dir / "journal" / name for name, _ in examined.journal.cut]
        disk.make_directory(folder / "journal")
        for path in dict.fromkeys(old):
            disk.rename(path, folder / "journal" / path.name)
        disk.sync_directory(folder / "journal")
        disk.sync_directory(examined.data_dir / "journal")
        yield Finding(
            "journal",
            Weight.REPAIRED,
            f"{examined.kept_records} records are in {name} now; the old files are in {folder.name}/journal",
            {"records": examined.kept_records, "file": name},
        )


def repair_bytes(examined: Examined) -> int:
    """How many bytes `repair` writes."""
    catalogue = 2 * examined.catalogue_size if examined.is_catalogue_damaged else 0
    if not examined.is_journal_damaged:
        return catalogue
    return catalogue + sum(align_up(ROUND_BYTES + sum(map(len, parts))) for parts in examined.kept or [[]])


def _replace_catalogue(examined: Examined, folder: Path) -> None:
    disk, path = examined.disk, examined.data_dir / "catalogue"
    if examined.has_catalogue:
        file = disk.open(path)
        try:
            content = bytearray(file.size())
            file.read(memoryview(content), 0)
        finally:
            file.close()
        _write_file(disk, folder / "catalogue", bytes(content))
    # Until a store starts, its salt is that of the files that it finds.
    _write_file(disk, path, whole_catalogue(examined.known))


def _write_file(disk: Disk, path: Path, content: bytes) -> None:
    fresh = path.with_name(path.name + ".new")
    disk.remove(fresh)
    file = disk.open(fresh, create=True)
    try:
        file.write(content, 0)
        file.sync()
    finally:
        file.close()
    disk.rename(fresh, path)
    disk.sync_directory(path.parent)


def _write_journal(examined: Examined) -> str:
    """Write one file with what is kept, which replaces all others; returns its name."""
    disk, directory, known = examined.disk, examined.data_dir / "journal", examined.known
    for name in disk.names(directory):
        if name.endswith(".new"):  # of a repair that had no room, perhaps: the next one needs that
            disk.remove(directory / name)
    numbers = [int(name.split(".")[0]) for name in disk.names(directory) if name.split(".")[0].isdigit()]
    path = directory / f"{max(numbers, default=-1) + 1:04d}.journal"
    fresh = path.with_suffix(".new")
    epoch = max(examined.journal.newest_epoch, known.journal_epoch) + 1
    file = disk.open(fresh, create=True)
    try:
        position = 0
        # If nothing is kept, the file has one empty round, which shows that the journal begins again here.
        for number, records in enumerate(examined.kept or [[]]):
            round_ = _round(records, epoch, known.journal_sequence + 1 + number, known.journal_salt)
            file.write(round_, position)
            position += len(round_)
        file.sync()
    finally:
        file.close()
    disk.rename(fresh, path)
    disk.sync_directory(directory)
    return path.name


def _round(parts: list[bytes | memoryview], epoch: int, sequence: int, salt: int) -> memoryview:
    length = sum(map(len, parts))
    buffer = memoryview(map_memory(align_up(ROUND_BYTES + length)))
    checksums = bytearray()
    position = ROUND_BYTES
    count = 0
    for part in parts:
        buffer[position : position + len(part)] = part
        position += len(part)
    at = ROUND_BYTES
    while at < position:
        size = int.from_bytes(buffer[at : at + 4], "big")
        checksums += buffer[at + 4 : at + 8]
        count += 1
        at += RECORD_BYTES + size
    buffer[:ROUND_BYTES] = round_header(epoch, sequence, length, count, crc32c(checksums), salt, 0)
    return buffer
