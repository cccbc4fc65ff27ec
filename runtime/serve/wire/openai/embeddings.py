"""``POST /v1/embeddings``, ``/embedding`` and ``/embeddings``: vectors of texts."""

from __future__ import annotations

import base64
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import Field
from pydantic_core import to_json
from starlette.requests import Request

from .....errors import ContextOverflowError, SettingError
from ....conversation.turn import Limits as TurnLimits
from ....conversation.turn import TurnRequest
from ....engine.embedding import Pooling, normalized
from ....engine.sampling.settings import Sampling
from ...http.api_error import APIError, too_long
from ...models.events import Done, Event, PromptRead
from ...models.generate import Generation, GenerationRequest
from ...models.loaded_model import LoadedModel
from ...models.model_request import ModelRequest
from ...models.prompts import Prompt
from ...models.writer import Writer
from ..body import Body
from ..prompt_body import Prompts, ids_of, prompts_of

if TYPE_CHECKING:
    from ....engine.engine import Engine
    from ...requests.service import Service


class VectorBody(Body):
    """The parameters that all embedding formats share."""

    model: str | None = None
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = Field(default=None, ge=1)
    embd_normalize: int = Field(default=2, ge=-1, le=64)


class EmbeddingsBody(VectorBody):
    """See OpenAI's reference; what is not here is refused by name."""

    input: Prompts


class NativeEmbeddingBody(VectorBody):
    """See llama-server's reference: one of the two is given."""

    content: Prompts | None = None
    input: Prompts | None = None


async def embeddings(request: Request, body: EmbeddingsBody) -> ModelRequest:
    """Return vectors of texts, in OpenAI's format."""
    work = EmbeddingWork(request.app.state.service, body, body.input, "input", native=False)
    return ModelRequest(work.model, [work.prepare], work, streamed=False)


async def native_embeddings(request: Request, body: NativeEmbeddingBody) -> ModelRequest:
    """Return vectors of texts, or of all of their tokens, in llama-server's own format."""
    given, name = (body.input, "input") if body.content is None else (body.content, "content")
    if given is None or (body.input is not None and body.content is not None):
        raise APIError("give content, or input", param="content")
    work = EmbeddingWork(request.app.state.service, body, given, name, native=True)
    return ModelRequest(work.model, [work.prepare], work, streamed=False)


class EmbeddingWork(Writer):
    """A request for embeddings: its computation, and the writer of its response.

    Args:
        texts: texts, or token IDs mixed with texts; `param`: their name in the request.
        native: whether the format is llama-server's own.
    """

    def __init__(
        self, service: Service, body: VectorBody, texts: Prompts, param: str, *, native: bool
    ) -> None:
        self.model, self._body, self._native = service.models.check(body.model), body, native
        self._settings, self._param = service.settings, param
        self._texts = prompts_of(texts, service.settings.limits.inputs, param)
        self._vectors: list[bytes] = []
        self._tokens = 0

    def prepare(self, model: LoadedModel) -> GenerationRequest:
        """Build the engine request.

        Raises:
            APIError: a text or a setting is invalid for the model; names the parameter.
        """
        engine, ids = model.engine, list[list[int]]()
        for n, text in enumerate(self._texts):
            ids.append(
                engine.embedder.ids(text)
                if isinstance(text, str)
                else ids_of(text, engine.tokenizer, self._param)
            )
            if len(ids[-1]) > engine.context:
                where = f"{self._param}[{n}]" if len(self._texts) > 1 else self._param
                raise too_long(len(ids[-1]), engine.context, where)
        way = self._way(engine)
        values = engine.embedder.width * (sum(map(len, ids)) if way == "none" else len(ids))
        if values > (limit := self._settings.limits.vector_values):
            raise APIError(
                f"the answer would have {values:,} numbers, but the limit is {limit:,}; send fewer "
                "or shorter texts",
                param=self._param,
            )

        def work(generation: Generation, engine: Engine) -> None:
            self._read(generation, engine, ids, way)

        prompt = Prompt([token for text in ids for token in text])
        return GenerationRequest(
            prompt,
            TurnRequest(Sampling(), limits=TurnLimits(0)),
            by=work,
            operation="embeddings",
            lengths=tuple(map(len, ids)),
        )

    def _way(self, engine: Engine) -> Pooling:
        embedder, body = engine.embedder, self._body
        try:
            way = embedder.pooling_of(self._settings.pooling)
        except SettingError as error:
            # llama-server takes a file that says nothing for one that says "none".
            if not self._native:
                raise APIError(
                    f"{error}, as the server's option --pooling does",
                    param="model",
                    code="no_pooling",
                ) from None
            way = "none"
        if way == "none" and not self._native:
            raise APIError(
                "Pooling type 'none' is not OAI compatible. Please use a different pooling type",
                param="model",
                code="no_pooling",
            )
        if body.dimensions is not None and (way == "none" or body.dimensions > embedder.width):
            why = "a state of each token" if way == "none" else f"{embedder.width} dimensions"
            raise APIError(f"Invalid 'dimensions': {self.model} gives {why}.", param="dimensions")
        return way

    def _read(
        self, generation: Generation, engine: Engine, ids: Sequence[list[int]], way: Pooling
    ) -> None:
        began, body = time.perf_counter(), self._body
        self._vectors, self._tokens = [], sum(map(len, ids))
        for text in ids:
            try:
                found = engine.embedder.vector(text, way, generation.check)
            except ContextOverflowError as error:  # of memory
                raise APIError(str(error), param=self._param) from None
            if way != "none":
                found = normalized(found[: body.dimensions], body.embd_normalize)
                found = found[None] if self._native else found
            self._vectors.append(self._encoded(found))
        generation.emit(PromptRead(self._tokens, 0, time.perf_counter() - began))
        generation.emit(Done(0, "stop", 0, 0, 0.0))

    def _encoded(self, vector: np.ndarray) -> bytes:
        """Serialize a vector as JSON, in the request's thread: the event loop stays free."""
        if self._body.encoding_format == "base64" and not self._native:
            return b'"' + base64.b64encode(vector.astype("<f4").tobytes()) + b'"'
        return to_json(vector.tolist())

    def add(self, event: Event) -> None:
        """Ignore the event: the response is built while the texts are computed."""

    def whole(self) -> bytes:
        kind = b"" if self._native else b'"object":"embedding",'
        one = b'{%s"index":%d,"embedding":%s}'
        data = b",".join(one % (kind, n, vector) for n, vector in enumerate(self._vectors))
        if self._native:
            return b"[" + data + b"]"
        usage = {"prompt_tokens": self._tokens, "total_tokens": self._tokens}
        more: dict[str, Any] = {"object": "list", "model": self.model, "usage": usage}
        return to_json(more)[:-1] + b',"data":[' + data + b"]}"

    def stream(self, event: Event) -> bytes:
        """Return nothing: embeddings are not streamed."""
        return b""
