"""What a line of the log says beside its message."""

from __future__ import annotations

import json
import logging

import pytest

from askback.cli.serving import JsonFormatter, TextFormatter


@pytest.fixture
def record() -> logging.LogRecord:
    logger = logging.getLogger("askback.worker")
    extra = {"run": "01abc", "error": "cut off\nwhile waiting"}
    return logger.makeRecord(logger.name, logging.ERROR, "worker.py", 1, "a turn failed", (), None, extra=extra)


def test_a_line_of_text_names_the_run(record: logging.LogRecord) -> None:
    line = TextFormatter().format(record)
    assert line.endswith("ERROR askback.worker a turn failed run=01abc error=cut off while waiting")
    assert "\n" not in line


def test_a_line_in_json_names_the_run(record: logging.LogRecord) -> None:
    line = json.loads(JsonFormatter().format(record))
    assert (line["message"], line["run"], line["error"]) == ("a turn failed", "01abc", "cut off\nwhile waiting")
    assert "engine" not in line
