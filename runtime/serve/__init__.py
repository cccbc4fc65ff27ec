"""An HTTP server for models that speaks the APIs of OpenAI, Anthropic and llama-server.

    bytes → `wire`: request → `requests`: admission → `models`: events → `wire` → bytes

Each wire format is a translation to `GenerationRequest` and back; it does not know who runs it.
Requests are batched below, in the engine's scheduler: nothing here knows of batches.

Starlette and uvicorn come with the extra `serve`; only what runs a server imports them.
"""
