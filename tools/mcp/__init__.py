"""Tools of other programs, through the Model Context Protocol (MCP)."""

from __future__ import annotations

from .config import ServerConfig, read_config
from .servers import McpServers

__all__ = ["McpServers", "ServerConfig", "read_config"]
