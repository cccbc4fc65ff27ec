"""`bfcl`: cases of a wheel as requests, and calls of a server as the wheel's checker has them."""

from __future__ import annotations

import json
import os
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.serving import SETTINGS, Server

from labs.harness import bfcl
from labs.harness.bfcl import (
    CATEGORIES,
    MULTI_TURN,
    Benchmark,
    Mode,
    Post,
    python_calls,
    source,
    wire_calls,
)
from labs.harness.runner import Row, read
from labs.harness.trees import VARIABLE, download
from triplepoint import Engine
from triplepoint.errors import EngineError

FUNCTION = {
    "name": "math.area",
    "description": "An area.",
    "parameters": {
        "type": "dict",
        "properties": {
            "base": {"type": "float", "description": "Base."},
            "sides": {"type": "tuple", "items": {"type": "dict", "properties": {"a": {}}}},
        },
        "required": ["base"],
    },
}
QUESTION = [[{"role": "user", "content": "The area?"}]]
CHECKER = """
from bfcl_eval.constants.model_config import MODEL_CONFIG_MAPPING
def ast_checker(functions, calls, truth, language, category, mode):
    dots = MODEL_CONFIG_MAPPING[mode].underscore_to_dot
    names = [name.replace(".", "_") if dots else name for one in truth for name in one]
    return {"valid": [name for one in calls for name in one] == names}
"""
MODULES = {
    "eval_checker/ast_eval/ast_checker": CHECKER,
    "constants/executable_backend_config": (
        "MULTI_TURN_FUNC_DOC_FILE_MAPPING = {'Door': 'door.json'}\n"
    ),
    "eval_checker/multi_turn_eval/multi_turn_utils": (
        "def execute_multi_turn_func_call(calls, config, classes, session, case):\n"
        "    return [f'{one} was {config[classes[0]]}' for one in calls], {}\n"
    ),
    "eval_checker/multi_turn_eval/multi_turn_checker": (
        "def multi_turn_checker(steps, truth, case, category, session):\n"
        "    return {'valid': [[x for step in turn for x in step] for turn in steps] == truth}\n"
    ),
    "constants/enums": "class Language:\n    PYTHON = 'python'\n",
    "constants/type_mappings": (
        "GORILLA_TO_OPENAPI = {'dict': 'object', 'float': 'number', 'tuple': 'array'}\n"
    ),
    "constants/default_prompts": (
        "OUTPUT_FORMAT_MAPPING = {'python': '[f(x=1)]'}\n"
        "PROMPT_TEMPLATE_MAPPING = {'plaintext': '{persona}{task} {tool_call_format} "
        "{multiturn_behavior} {available_tools}'}\n"
        "PROMPT_STYLE_TEMPLATES = {'classic': {'persona': 'P.', 'task': 'T.', 'tool_call_no_tag': "
        "'As {output_format}.{param_types}', 'multiturn_behavior': 'M.', "
        "'available_tools': '{format}: {functions}'}}\n"
    ),
}


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    """Another test has another wheel."""
    yield
    for name in [one for one in sys.modules if one.partition(".")[0] == "bfcl_eval"]:
        del sys.modules[name]


@pytest.fixture
def benchmark(tmp_path: Path) -> Benchmark:
    """A wheel with two cases that want a call and one that wants none."""
    path = tmp_path / "bfcl.whl"
    truth = [{"id": f"simple_python_{n}", "ground_truth": [{"math.area": {}}]} for n in (0, 1)]
    data = {
        "simple_python": [
            {"id": one["id"], "question": QUESTION, "function": [FUNCTION]} for one in truth
        ],
        "possible_answer/simple_python": truth,
        "multi_turn_base": [
            {
                "id": "multi_turn_base_0",
                "question": QUESTION * 2,
                "initial_config": {"Door": "shut"},
                "involved_classes": ["Door"],
            }
        ],
        "possible_answer/multi_turn_base": [
            {"id": "multi_turn_base_0", "ground_truth": [["math_area(base=2.0)"], []]}
        ],
        "irrelevance": [{"id": "irrelevance_0", "question": QUESTION, "function": [FUNCTION]}],
    }
    with zipfile.ZipFile(path, "w") as wheel:
        for folder in (
            "",
            "constants/",
            *(f"eval_checker/{x}" for x in ("", "ast_eval/", "multi_turn_eval/")),
        ):
            wheel.writestr(f"bfcl_eval/{folder}__init__.py", "")
        for name, source in MODULES.items():
            wheel.writestr(f"bfcl_eval/{name}.py", source)
        for name, lines in data.items():
            folder, _, stem = name.rpartition("/")
            file = f"bfcl_eval/data/{folder}/BFCL_v4_{stem}.json".replace("//", "/")
            wheel.writestr(file, "\n".join(map(json.dumps, lines)))
        wheel.writestr("bfcl_eval/data/multi_turn_func_doc/door.json", json.dumps(FUNCTION))
    made = Benchmark(path)
    assert str(path) not in sys.path
    return made


def reply(content: str | None = None, *calls: str, finish: str = "stop") -> dict[str, Any]:
    """A chat completion with calls of these names."""
    made = [
        {"id": "c1", "type": "function", "function": {"name": one, "arguments": '{"base": 2.0}'}}
        for one in calls
    ]
    usage = {
        "prompt_tokens": 90,
        "completion_tokens": 7,
        "prompt_tokens_details": {"cached_tokens": 20},
    }
    message = {"content": content, "tool_calls": made or None}
    return {"choices": [{"message": message, "finish_reason": finish}], "usage": usage}


class Scripted:
    """A server that answers everything in one way, and keeps what it was asked."""

    def __init__(self, answer: dict[str, Any] | EngineError) -> None:
        self.answer, self.bodies = answer, list[dict[str, Any]]()

    def __call__(self, body: dict[str, Any]) -> dict[str, Any]:
        self.bodies.append(body)
        if isinstance(self.answer, EngineError):
            raise self.answer
        return self.answer


def ask(benchmark: Benchmark, category: str, post: Post, mode: Mode = "tools") -> Row:
    """The row of the first case of a category."""
    (case,) = benchmark.cases(category, 1)
    return bfcl.ask(benchmark, case, post, mode, f"bfcl-{mode}", "m")


def test_functions_become_tools(benchmark: Benchmark) -> None:
    """Names without dots, types of JSON schema at any depth; greedy, and nothing else is asked."""
    post = Scripted(reply(None, "math_area"))
    row = ask(benchmark, "simple_python", post)

    (body,) = post.bodies
    function = body["tools"][0]["function"]
    assert (body["temperature"], body["messages"]) == (0, QUESTION[0])
    assert function["name"] == "math_area"
    assert function["description"].endswith("Python 3 syntax.")
    assert function["parameters"] == {
        "type": "object",
        "properties": {
            "base": {
                "type": "number",
                "format": "float",
                "description": "Base. This is a float type value.",
            },
            "sides": {
                "type": "array",
                "items": {"type": "object", "properties": {"a": {"type": "string"}}},
            },
        },
        "required": ["base"],
    }
    assert (row.result, row.calls, row.prefilled, row.generated) == ("right", 1, 70, 7)
    assert row.answers == ['[{"math_area": {"base": 2.0}}]']


@pytest.mark.parametrize(
    ("category", "answer", "result"),
    [
        ("simple_python", reply(None, "other"), "wrong"),
        ("simple_python", reply("I cannot."), "declined"),
        ("simple_python", reply("An area is", finish="length"), "limit"),
        ("simple_python", EngineError("400: no"), "error"),
        ("irrelevance", reply("Nothing fits."), "right"),
        ("irrelevance", reply(None, "math_area"), "wrong"),
    ],
)
def test_what_came_of_a_case(
    benchmark: Benchmark, category: str, answer: dict[str, Any] | EngineError, result: str
) -> None:
    """No call is told apart from a wrong one; where nothing fits, any call is wrong."""
    row = ask(benchmark, category, Scripted(answer))
    assert (row.result, bool(row.error)) == (result, result == "error")


def test_arguments_that_are_no_object_are_wrong(benchmark: Benchmark) -> None:
    """Also where no call is wanted."""
    answer = reply(None, "math_area")
    answer["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] = "[1]"
    assert wire_calls(answer["choices"][0]["message"]) is None
    assert ask(benchmark, "irrelevance", Scripted(answer)).result == "wrong"


def test_the_prompt_mode(benchmark: Benchmark) -> None:
    """Functions in the system prompt under their own names, no tools; calls as Python."""
    post = Scripted(reply("```python\n[math.area(base=2.0)]\n```"))
    row = ask(benchmark, "simple_python", post, "prompt")

    (body,) = post.bodies
    assert "tools" not in body
    assert body["messages"][0]["content"].startswith("P.T. As [f(x=1)]. M. json: [\n    {")
    assert body["messages"][1:] == QUESTION[0]
    assert row.result == "right"


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("f(a=1), g.h(b=[-2, 'x'])", [{"f": {"a": 1}}, {"g.h": {"b": [-2, "x"]}}]),
        ("[f(a={'k': True}, b=x + 1)", [{"f": {"a": {"k": True}, "b": "x + 1"}}]),
        ("I cannot do that.", []),
        ("[1, f()]", []),
        ("[]", []),
    ],
)
def test_calls_as_python(text: str, calls: list[Any]) -> None:
    """What is no literal is its source; prose and other lists have no calls."""
    assert python_calls(text) == calls


def test_several_turns(benchmark: Benchmark) -> None:
    """Calls are made and their results told until one calls nothing; then comes the next turn."""
    called, done, bodies = reply(None, "math_area"), reply("Done."), list[dict[str, Any]]()

    def play(*script: dict[str, Any]) -> Row:
        rest = iter(script)

        def post(body: dict[str, Any]) -> dict[str, Any]:
            bodies.append({**body, "messages": list(body["messages"])})
            return next(rest)

        return ask(benchmark, MULTI_TURN, post)

    row = play(called, done, done)

    assert (row.result, row.calls, row.prefilled) == ("right", 1, 3 * 70)
    assert [len(body["messages"]) for body in bodies] == [1, 3, 5]
    assert bodies[1]["messages"][-1] == {
        "role": "tool",
        "tool_call_id": "c1",
        "content": "math_area(base=2.0) was shut",
    }
    assert play(done, done).result == "declined"
    assert play(called, called, done, done).result == "wrong"
    assert play(reply(None, "open"), done, done).result == "wrong"
    assert "no such function" in bodies[-2]["messages"][2]["content"]
    assert play(*[called] * 30).result == "limit"


def test_what_the_wheel_evaluates() -> None:
    """Functions of the case alone, and arguments that are values."""
    assert source("cd", {"folder": "a'b", "deep": None}, {"cd"}) == """cd(folder="a'b",deep=None)"""
    assert source("open", {"file": "x"}, {"cd"}) is None
    assert source("cd", {"a=print(1),b": 1}, {"cd"}) is None


def test_cases_are_not_asked_again(benchmark: Benchmark, tmp_path: Path) -> None:
    """Who comes back asks what is missing; means are of categories."""
    out, post = tmp_path / "rows.jsonl", Scripted(reply(None, "math_area"))
    cases = [*benchmark.cases("simple_python", None), *benchmark.cases("irrelevance", None)]
    for part in (cases[:1], cases):
        rows = bfcl.ask_all(benchmark, part, post, "tools", "b", "m", out, lambda _: None)

    assert len(post.bodies) == len(cases) == 3
    assert read(out) == rows
    assert bfcl.means(rows) == "mean of call categories 100.0%; irrelevance 0.0%"
    assert bfcl.means(rows[:2]).endswith("irrelevance not asked")


def test_a_real_server(benchmark: Benchmark) -> None:
    """The application of `triplepoint serve` takes the requests and answers with calls or text."""
    with bfcl.server_of("nano", 1) as post:
        row = ask(benchmark, "simple_python", post)
        with pytest.raises(EngineError, match="400"):
            post({"messages": "none"})

    assert row.error == ""
    assert row.prefilled > 0
    assert row.generated > 0


def test_a_server_elsewhere(benchmark: Benchmark) -> None:
    """By its URL; the model is named by the server, and what it refuses is an error with a text."""
    server = Server(SETTINGS, lambda _: Engine.load("nano", threads=1))
    try:
        server.wait()
        post, model = bfcl.remote(server.url + "/")
        row = ask(benchmark, "irrelevance", post)
        with pytest.raises(EngineError, match="400"):
            post({"messages": "none"})
    finally:
        server.close()

    assert model == "nano"
    assert row.error == ""
    assert row.generated > 0


def first(forms: list[Any]) -> Any:
    """The first of the forms that BFCL allows, at any depth; what may be left out is."""
    value = forms[0]
    if isinstance(value, dict):
        return {name: first(inner) for name, inner in value.items() if inner[0] != ""}
    if isinstance(value, list):
        return [first([one]) for one in value]
    return value


@pytest.mark.skipif(
    not Path(os.environ.get(VARIABLE, "?")).is_dir(),
    reason=f"{VARIABLE} names no folder of downloads",
)
@pytest.mark.parametrize("category", [one for one in CATEGORIES if one != "irrelevance"])
def test_the_checker_accepts_its_own_answers(category: str) -> None:
    """Of the pinned wheel, in both modes; one call too many is refused."""
    made = Benchmark(download("bfcl-eval", Path(os.environ[VARIABLE]) / "downloads"))
    cases = made.cases(category, 20)
    assert len(cases) == 20
    for case in cases:
        calls = [
            {name: first([arguments]) for name, arguments in one.items()}
            for one in case["ground_truth"]
        ]
        sent = [{name.replace(".", "_"): x for name, x in one.items()} for one in calls]
        assert made.is_right(case, sent, "tools"), case["id"]
        assert made.is_right(case, calls, "prompt"), case["id"]
        assert not made.is_right(case, [*calls, calls[0]], "prompt"), case["id"]
        assert made.tools(case)[0]["function"]["parameters"]["type"] == "object"
        assert json.dumps(case["function"], indent=4) in made.system(case)


@pytest.mark.skipif(
    not Path(os.environ.get(VARIABLE, "?")).is_dir(),
    reason=f"{VARIABLE} names no folder of downloads",
)
def test_the_functions_of_the_wheel_do_what_the_checker_wants() -> None:
    """Who makes the calls of the answers, as a server would, is right; without the last, wrong."""
    made = Benchmark(download("bfcl-eval", Path(os.environ[VARIABLE]) / "downloads"))
    cases = [one for one in made.cases(MULTI_TURN, 20) if "MathAPI" not in one["involved_classes"]]
    assert len(cases) > 10
    for case in cases:
        turns = [[[call] for call in turn] for turn in case["ground_truth"]]
        session = "session" + case["id"]
        for turn in turns:
            for (call,) in turn:
                assert "Error during execution" not in made.run(case, call, session)[0]
        assert made.is_done(case, turns, session), case["id"]
        assert not made.is_done(case, [*turns[:-1], []], session + "cut"), case["id"]
