"""`python -m labs.harness.bfcl MODEL.gguf --trees FOLDER [--category A,B] [--n 16] [--out FILE]`.

Cases of the Berkeley Function Calling Leaderboard v4 through the chat completions of `triplepoint
serve`, greedy. The ``bfcl-eval`` wheel has the cases and judges them; it is downloaded at the
version that is pinned and read as it is: installing it would bring thirty packages and an older
numpy.

In place of a model an http URL asks a server that already runs, such as llama-server. ``--prompt``
is BFCL's own prompt mode: functions in the system prompt, calls as Python. The first N of each
category are asked, so that runs pair: `labs.harness.compare` reads the rows. Of a case, *wrong* is
a wrong call, or any call where none fits; *declined* is no call where one fits. Cases of
multi_turn_base call functions of the wheel over files and accounts in memory, and are asked only
by name; those with its MathAPI need mpmath.
"""

from __future__ import annotations

import argparse
import ast
import copy
import itertools
import json
import re
import sys
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Literal
from urllib.parse import urlsplit

from triplepoint import Engine
from triplepoint.errors import EngineError

from .runner import Result, Row, append, is_call, report, resume
from .trees import DISTRIBUTIONS, download

MULTI_TURN = "multi_turn_base"
CATEGORIES = ("simple_python", "multiple", "parallel", "irrelevance", "live_simple")
TOKENS = 512
STEPS = 20
"""Of one turn, with calls; BFCL's own limit."""
TIMEOUT_S = 900.0
HINT = " Note that the provided function is in Python 3 syntax."
"""What BFCL adds to each description."""

Mode = Literal["tools", "prompt"]
Case = dict[str, Any]
Post = Callable[[dict[str, Any]], dict[str, Any]]
"""Asks for a chat completion. Raises EngineError where it is refused."""
Calls = list[dict[str, dict[str, Any]]]
"""Arguments by function, as BFCL's checker takes them."""


class Benchmark:
    """The cases, prompts and checker of a wheel of ``bfcl-eval``."""

    def __init__(self, wheel: Path) -> None:
        self._wheel = wheel
        # Its own table of models imports every vendor's client. The checker asks it for one thing:
        # whether dots in names of functions were sent as underscores.
        stub = ModuleType("bfcl_eval.constants.model_config")
        dots = {"tools": True, "prompt": False}
        stub.__dict__["MODEL_CONFIG_MAPPING"] = {
            mode: SimpleNamespace(underscore_to_dot=sent) for mode, sent in dots.items()
        }
        sys.modules[stub.__name__] = stub
        with _importable(wheel):
            self._check = import_module("bfcl_eval.eval_checker.ast_eval.ast_checker").ast_checker
            self._python = import_module("bfcl_eval.constants.enums").Language.PYTHON
            self._types = import_module("bfcl_eval.constants.type_mappings").GORILLA_TO_OPENAPI
            self._prompts = import_module("bfcl_eval.constants.default_prompts")
            backend = import_module("bfcl_eval.constants.executable_backend_config")
        del sys.modules[stub.__name__]
        self._documented = backend.MULTI_TURN_FUNC_DOC_FILE_MAPPING

    def cases(self, category: str, number: int | None) -> list[Case]:
        """Return the first cases of a category, each with its ``category`` and ``ground_truth``."""
        name = f"BFCL_v4_{category}.json"
        cases = self._read(name)[:number]
        truths = {}
        if category != "irrelevance":
            truths = {
                one["id"]: one["ground_truth"] for one in self._read(f"possible_answer/{name}")
            }
        for case in cases:
            case["category"], case["ground_truth"] = category, truths.get(case["id"], [])
            for name in case.get("involved_classes", ()):
                path = f"multi_turn_func_doc/{self._documented[name]}"
                case.setdefault("function", []).extend(self._read(path))
            for function in case["function"]:
                function["description"] += HINT
        return cases

    def _read(self, name: str) -> list[Case]:
        with zipfile.ZipFile(self._wheel) as wheel:
            text = wheel.read(f"bfcl_eval/data/{name}").decode()
        return [json.loads(line) for line in text.splitlines() if line.strip()]

    def tools(self, case: Case) -> list[dict[str, Any]]:
        """Return the functions of a case in OpenAI's form."""
        functions = copy.deepcopy(case["function"])
        for function in functions:
            function["name"] = function["name"].replace(".", "_")
            function["parameters"]["type"] = "object"
            for schema in function["parameters"]["properties"].values():
                self._translate(schema)
        return [{"type": "function", "function": function} for function in functions]

    def _translate(self, schema: dict[str, Any]) -> None:
        kind = schema.get("type")
        if kind == "float":
            schema["format"] = "float"
            if "description" in schema:
                schema["description"] += " This is a float type value."
        schema["type"] = self._types.get(kind, "string")
        inner = [*schema.get("properties", {}).values(), schema.get("items")]
        for one in inner:
            if isinstance(one, dict):
                self._translate(one)

    def system(self, case: Case) -> str:
        """Return the system prompt of BFCL's prompt mode, in its default form."""
        prompts = self._prompts
        parts: dict[str, str] = prompts.PROMPT_STYLE_TEMPLATES["classic"]
        functions = json.dumps(case["function"], indent=4)
        return prompts.PROMPT_TEMPLATE_MAPPING["plaintext"].format(
            persona=parts["persona"],
            task=parts["task"],
            tool_call_format=parts["tool_call_no_tag"].format(
                output_format=prompts.OUTPUT_FORMAT_MAPPING["python"], param_types=""
            ),
            multiturn_behavior=parts["multiturn_behavior"],
            available_tools=parts["available_tools"].format(format="json", functions=functions),
        )

    def is_right(self, case: Case, calls: Calls, mode: Mode) -> bool:
        """Return whether BFCL's checker accepts the calls; none are right if no function fits."""
        if case["category"] == "irrelevance":
            return not calls
        return bool(
            self._check(
                case["function"], calls, case["ground_truth"], self._python, case["category"], mode
            )["valid"]
        )

    def run(self, case: Case, call: str, session: str) -> list[str]:
        """Call a function of a multi-turn case; its state is stored by the session's name."""
        given = case["initial_config"], case["involved_classes"], session, case["id"]
        with _importable(self._wheel):
            module = import_module("bfcl_eval.eval_checker.multi_turn_eval.multi_turn_utils")
            return module.execute_multi_turn_func_call([call], *given)[0]

    def is_done(self, case: Case, steps: list[list[list[str]]], session: str) -> bool:
        """Return whether the calls of each step of each turn have the effects of the right ones."""
        given = case["ground_truth"], case, case["category"], session
        with _importable(self._wheel):
            module = import_module("bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker")
            return bool(module.multi_turn_checker(steps, *given)["valid"])


@contextmanager
def _importable(wheel: Path) -> Iterator[None]:
    sys.path.insert(0, str(wheel))
    try:
        yield
    finally:
        sys.path.remove(str(wheel))


class _Talk:
    """A conversation with a server, and what it cost."""

    def __init__(self, post: Post) -> None:
        self._post = post
        self.prefilled = self.generated = self.calls = 0
        self.answers: list[str] = []

    def __call__(self, messages: list[Any], tools: list[Any] | None) -> dict[str, Any]:
        """Request the next message; return its choice."""
        body: dict[str, Any] = {"messages": messages, "temperature": 0, "max_tokens": TOKENS}
        reply = self._post(body if tools is None else {**body, "tools": tools})
        usage = reply.get("usage") or {}
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
        self.prefilled += usage.get("prompt_tokens", 0) - cached
        self.generated += usage.get("completion_tokens", 0)
        return reply["choices"][0]

    def hear(self, text: str, calls: Calls | None) -> None:
        """Record a message: its calls, or else its text."""
        self.calls += len(calls or ())
        self.answers.append(json.dumps(calls, ensure_ascii=False) if calls else text)


def ask(benchmark: Benchmark, case: Case, post: Post, mode: Mode, by: str, model: str) -> Row:
    """Send a case to a server, and judge its calls."""
    began, error, talk = time.monotonic(), "", _Talk(post)
    hold = _hold_turns if case["category"] == MULTI_TURN else _hold_turn
    try:
        result = hold(benchmark, case, talk, mode)
    except EngineError as refused:
        result, error = "error", str(refused)
    return Row(
        by, model, DISTRIBUTIONS["bfcl-eval"].version, case["id"], case["category"], "en",
        package=True, unanswerable=case["category"] == "irrelevance", result=result, first=None,
        answers=talk.answers, calls=talk.calls, prefilled=talk.prefilled,
        generated=talk.generated, seconds=round(time.monotonic() - began, 3),
        printed_call=not talk.calls and any(map(is_call, talk.answers)), error=error,
    )  # fmt: skip


def _hold_turn(benchmark: Benchmark, case: Case, talk: _Talk, mode: Mode) -> Result:
    messages, tools = copy.deepcopy(case["question"][0]), None
    if mode == "tools":
        tools = benchmark.tools(case)
    elif messages[0]["role"] == "system":
        messages[0]["content"] = benchmark.system(case) + "\n\n" + messages[0]["content"]
    else:
        messages.insert(0, {"role": "system", "content": benchmark.system(case)})
    choice = talk(messages, tools)
    text = choice["message"].get("content") or ""
    calls = python_calls(text) if mode == "prompt" else wire_calls(choice["message"])
    talk.hear(text, calls)
    return _result(benchmark, case, calls, mode, cut=choice["finish_reason"] == "length")


_sessions = itertools.count()


def _hold_turns(benchmark: Benchmark, case: Case, talk: _Talk, mode: Mode) -> Result:
    """Hold a conversation of several turns; each ends with a message that calls nothing."""
    session, tools = f"session{next(_sessions)}", benchmark.tools(case)
    names = {one["function"]["name"] for one in tools}
    messages: list[dict[str, Any]] = []
    turns: list[list[list[str]]] = []
    for question in case["question"]:
        messages += question
        turns.append([])
        while len(turns[-1]) <= STEPS:
            message = talk(messages, tools)["message"]
            text, calls = message.get("content") or "", wire_calls(message)
            talk.hear(text, calls)
            messages.append({"role": "assistant", "content": text})
            if not calls:
                break
            messages[-1]["tool_calls"] = message["tool_calls"]
            turns[-1].append([])
            for call, one in zip(message["tool_calls"], calls, strict=True):
                written = source(*next(iter(one.items())), names)
                found = "Error during execution: there is no such function"
                if written is not None:
                    turns[-1][-1].append(written)
                    (found,) = benchmark.run(case, written, session)
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": found})
        else:
            return "limit"
    if benchmark.is_done(case, turns, session):
        return "right"
    return "wrong" if any(turns) else "declined"


def source(name: str, arguments: dict[str, Any], names: Collection[str]) -> str | None:
    """Format a call as Python; None if it is unsafe for the wheel, which evaluates it."""
    if name not in names or not all(one.isidentifier() for one in arguments):
        return None
    return f"{name}({','.join(f'{one}={value!r}' for one, value in arguments.items())})"


def _result(
    benchmark: Benchmark, case: Case, calls: Calls | None, mode: Mode, *, cut: bool
) -> Result:
    if calls is None:
        return "wrong"
    if benchmark.is_right(case, calls, mode):
        return "right"
    if calls:
        return "wrong"
    return "limit" if cut else "declined"


def wire_calls(message: dict[str, Any]) -> Calls | None:
    """Return the calls of a message; None if the arguments of one are not an object."""
    calls: Calls = []
    for call in message.get("tool_calls") or ():
        try:
            arguments = json.loads(call["function"]["arguments"])
        except ValueError:
            return None
        if not isinstance(arguments, dict):
            return None
        calls.append({call["function"]["name"]: arguments})
    return calls


def python_calls(text: str) -> Calls:
    """Parse calls that are written as Python, bare or in a list; prose has none.

    BFCL fails a fence that names its language. It is passed over here: small models write it often,
    and a peer is to be compared at its best.
    """
    text = re.sub(r"^python\n", "", text.strip("`\n ")).strip()
    text = "[" * (not text.startswith("[")) + text + "]" * (not text.endswith("]"))
    try:
        parsed = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return []
    calls: Calls = []
    for one in parsed.elts if isinstance(parsed, ast.List) else ():
        if not isinstance(one, ast.Call):
            return []
        calls.append({ast.unparse(one.func): {x.arg or "": _value(x.value) for x in one.keywords}})
    return calls


def _value(node: ast.expr) -> Any:
    """Evaluate a value as BFCL does: what is not a literal becomes its source."""
    try:
        return ast.literal_eval(node)
    except ValueError:
        return ast.unparse(node)


# ------------------------------------------------------------------------------------ servers


@contextmanager
def server_of(model: str, threads: int | None) -> Iterator[Post]:
    """Run `triplepoint serve`'s application in this process, with a model."""
    from starlette.testclient import TestClient

    from triplepoint.runtime.serve.app.application import build_app
    from triplepoint.runtime.serve.settings import ServerSettings

    settings = ServerSettings({"model": model}, trace="off")
    app = build_app(settings, lambda name: Engine.load(name, threads=threads))
    with TestClient(app, base_url="http://127.0.0.1") as client:
        while client.get("/health").status_code == 503:  # it loads
            time.sleep(0.05)

        def post(body: dict[str, Any]) -> dict[str, Any]:
            answer = client.post("/v1/chat/completions", json=body)
            if answer.status_code != 200:
                raise EngineError(f"{answer.status_code}: {answer.text[:300]}")
            return answer.json()

        yield post


def remote(url: str) -> tuple[Post, str]:
    """Return a client of a server that already runs, and the name of its first model."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def send(path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(url.rstrip("/") + path, data, headers)
        try:
            with opener.open(request, timeout=TIMEOUT_S) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise EngineError(
                f"{error.code}: {error.read()[:300].decode(errors='replace')}"
            ) from None

    model = Path(send("/v1/models")["data"][0]["id"]).name.removesuffix(".gguf")
    return lambda body: send("/v1/chat/completions", {"model": model, **body}), model


# ------------------------------------------------------------------------------------ command


def ask_all(
    benchmark: Benchmark,
    cases: Sequence[Case],
    post: Post,
    mode: Mode,
    by: str,
    model: str,
    out: Path | None,
    say: Callable[[str], object] = print,
) -> list[Row]:
    """Ask each case once that has no row in `out` yet; return the rows of all cases."""
    known, rows = resume(out), list[Row]()
    for case in cases:
        row = known.get((by, model, DISTRIBUTIONS["bfcl-eval"].version, case["id"]))
        if row is None:
            row = ask(benchmark, case, post, mode, by, model)
            append(row, out, say)
        rows.append(row)
    return rows


def means(rows: Sequence[Row]) -> str:
    """Format the mean rate of single-turn call categories, and the rate of irrelevance."""
    rates: dict[bool, list[float]] = {False: [], True: []}
    for category in sorted({row.kind for row in rows} - {MULTI_TURN}):
        mine = [row for row in rows if row.kind == category and row.result != "error"]
        right = sum(row.result == "right" for row in mine)
        rates[category == "irrelevance"].append(right / max(len(mine), 1))
    shown = {
        name: f"{sum(part) / len(part):.1%}" if part else "not asked"
        for name, part in (("calls", rates[False]), ("irrelevance", rates[True]))
    }
    return f"mean of call categories {shown['calls']}; irrelevance {shown['irrelevance']}"


def main(argv: list[str] | None = None) -> int:
    """Ask, and report."""
    parser = argparse.ArgumentParser(prog="labs.harness.bfcl", description=__doc__)
    parser.add_argument("model", metavar="MODEL.gguf|URL")
    parser.add_argument("--trees", type=Path, required=True, metavar="FOLDER", help="of downloads")
    parser.add_argument("--category", default=",".join(CATEGORIES), metavar="A,B")
    parser.add_argument("--n", type=int, metavar="N", help="ask the first N of each category")
    parser.add_argument("--prompt", action="store_true", help="BFCL's prompt mode, without tools")
    parser.add_argument("--out", type=Path, metavar="FILE", help="rows; go on where they end")
    parser.add_argument("--threads", type=int, metavar="N", help="of the engine")
    args = parser.parse_args(argv)
    categories = args.category.split(",")
    if unknown := {*categories} - {*CATEGORIES, MULTI_TURN}:
        there = ", ".join((*CATEGORIES, MULTI_TURN))
        parser.error(f"no category {', '.join(sorted(unknown))}; there are {there}")
    if args.prompt and MULTI_TURN in categories:
        parser.error(f"{MULTI_TURN} is asked with tools alone")
    benchmark = Benchmark(download("bfcl-eval", args.trees / "downloads"))
    cases = [case for category in categories for case in benchmark.cases(category, args.n)]
    mode: Mode = "prompt" if args.prompt else "tools"
    by = f"bfcl-{mode}"
    if args.model.startswith(("http://", "https://")):
        by += f"@{urlsplit(args.model).netloc}"
        post, model = remote(args.model)
        rows = ask_all(benchmark, cases, post, mode, by, model, args.out)
    else:
        model = Path(args.model).stem
        with server_of(args.model, args.threads) as post:
            rows = ask_all(benchmark, cases, post, mode, by, model, args.out)
    print(f"\n{by}, {model}, bfcl-eval {DISTRIBUTIONS['bfcl-eval'].version}")
    print("\n".join([*report(rows), means(rows)]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
