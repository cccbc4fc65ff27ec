"""What the library says besides its results."""

from __future__ import annotations

import logging

import pytest

from triplepoint.traces import log


def test_a_warning_has_its_fields(caplog: pytest.LogCaptureFixture) -> None:
    """An application that reads `logging` gets the message, and the fields on the record."""
    with caplog.at_level(logging.WARNING, "triplepoint"):
        log.warning("removed 2 traces, 50 %", removed_traces=2)

    record = caplog.records[0]
    assert (record.name, record.getMessage()) == ("triplepoint", "removed 2 traces, 50 %")
    assert vars(record)["removed_traces"] == 2
