"""Models behind HTTP, in the wire formats that clients already speak.

    bytes → wire format → `Generation` in a thread → events → wire format → bytes

What a request asks for is decided in one form (`generate.py`); each wire format is a translation to
it and back. Passes are shared below, in the engine's scheduler: nothing here knows of them.

Starlette and uvicorn come with the extra `serve`; only what runs a server imports them.
"""
