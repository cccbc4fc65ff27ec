"""Library warnings: structlog's fields on standard `logging`.

structlog is imported at the first message: rich and asyncio come with it, and most runs say
nothing.
"""

from __future__ import annotations

import logging
from typing import Any


def warning(message: str, **fields: Any) -> None:
    """Log a warning as ``triplepoint``; the fields become attributes of the log record."""
    import structlog

    to_logging = structlog.stdlib.render_to_log_kwargs
    logger = logging.getLogger("triplepoint")
    structlog.wrap_logger(logger, processors=[to_logging]).warning(message, **fields)
