"""TensorBoard's event file, written here and now.

torch's `SummaryWriter` writes in a thread of its own, where nobody can catch what a failing disk
says.
"""

from __future__ import annotations

import itertools
import os
import socket
import time
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from mcat.safe_io import io_errors

_NUMBERS = itertools.count()


class EventFile:
    """A new event file in a folder; needs tensorboard.

    Args:
        folder: Where TensorBoard looks.
        until: On resuming, the last step before it: what other files say of later ones is void.
    """

    def __init__(self, folder: Path, until: int) -> None:
        self._events = import_module("tensorboard.compat.proto.event_pb2")
        self._summaries = import_module("tensorboard.compat.proto.summary_pb2")
        records = import_module("tensorboard.summary.writer.record_writer")
        stamp = f"{int(time.time()):010}.{socket.gethostname()}.{os.getpid()}.{next(_NUMBERS)}"
        self._path = folder / f"events.out.tfevents.{stamp}"
        with io_errors(self._path, "write"):
            self._file = open(self._path, "xb")  # noqa: SIM115  (grows with the run)
            self._records = records.RecordWriter(self._file)
            self._add(file_version="brain.Event:2")
            if until:
                start = self._events.SessionLog(status=self._events.SessionLog.START)
                self._add(step=until + 1, session_log=start)

    def add_scalar(self, name: str, value: float, step: int) -> None:
        """Add one number to the event file."""
        with io_errors(self._path, "write"):
            number = self._summaries.Summary.Value(tag=name, simple_value=value)
            self._add(step=step, summary=self._summaries.Summary(value=[number]))

    def flush(self) -> None:
        """Hand all numbers to the system, so that TensorBoard sees them."""
        with io_errors(self._path, "write"):
            self._file.flush()

    def close(self) -> None:
        """End the file, which holds all that was flushed."""
        with suppress(OSError):
            self._file.close()

    def _add(self, **content: Any) -> None:
        event = self._events.Event(wall_time=time.time(), **content)
        self._records.write(event.SerializeToString())
