"""Models behind HTTP, in the wire formats that clients already speak.

    bytes → `wire`: what is asked → `requests`: its turn → `models`: events → `wire` → bytes

Each wire format is a translation to `GenerationRequest` and back; it does not know who runs it.
Passes are shared below, in the engine's scheduler: nothing here knows of them.

Starlette and uvicorn come with the extra `serve`; only what runs a server imports them.
"""
