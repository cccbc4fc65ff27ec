"""The engine and what runs on it, in rooms that import downward only.

From the ground up: `gguf` and `tokens` (files and text), `weights`, `forward` and `models` (a pass
as equations), `engine` (engine, sessions, scheduler, KV cache), `conversation` and `agent` (chat
templates, tool calls, the loop), `serve`, `fleet` and `cli` on top. `docs/map.md` names every file.
"""
