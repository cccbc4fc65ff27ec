"""A server that speaks the Model Context Protocol by hand and misbehaves on request.

Run as a program: ``python mcp_hostile.py MODE``. The modes ``dies`` and ``noise`` are bad from
the start; with ``ok`` each tool is bad in its own way; a mode that is JSON is what it answers to
the question for its tools.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Any

TOOLS = (
    *("echo", "fail", "crash", "hang", "long_line", "flood", "garbage", "image", "child"),
    *("result", "raw"),
)


def send(message: dict[str, Any]) -> None:
    """Write one message."""
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def listed() -> dict[str, Any]:
    """The tools; the list is changed each time it is asked for."""
    schema = {
        "type": "object",
        "title": "Arguments",
        "properties": {"text": {"type": "string", "title": "Text"}, "times": {"type": "integer"}},
        "required": [],
        "additionalProperties": False,
    }
    return {"tools": [{"name": n, "description": f"Do  {n}", "inputSchema": schema} for n in TOOLS]}


def call(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Do what the tool's name says."""
    text = arguments.get("text", "")
    if name == "crash":
        print("out of luck", file=sys.stderr)
        os._exit(3)
    if name == "hang":
        time.sleep(60)
    if name == "long_line":
        while True:
            sys.stdout.write("x" * 65536)
    if name == "flood":
        note = {"method": "notifications/message", "params": {"level": "info", "data": "x" * 60000}}
        while True:
            send(note)
    if name == "garbage":
        sys.stdout.write("this is not JSON\n{]\n\n")
    if name == "image":
        return {"content": [{"type": "image", "data": "AAAA", "mimeType": "image/png"}]}
    if name == "result":  # the text is the result
        return json.loads(text)
    if name == "child":
        text = str(subprocess.Popen(["sleep", "60"]).pid)
    content = [{"type": "text", "text": f"{name}: {text}"}]
    return {"content": content, "isError": name == "fail"}


def main(mode: str) -> None:
    """Answer until the input ends."""
    if mode == "dies":
        print("looking for a license\nno license found", file=sys.stderr)
        sys.exit(7)
    if mode == "noise":
        print("Welcome to the server!")
    for line in sys.stdin:
        request = json.loads(line)
        method, params = request.get("method"), request.get("params", {})
        if method == "initialize":
            info = {"name": "hostile", "version": "1"}
            version = params["protocolVersion"]
            result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
        elif method == "tools/list":
            result = listed() if mode[0] not in '{["' else json.loads(mode)
        elif method == "tools/call":
            send({"method": "notifications/tools/list_changed"})
            if params["name"] == "raw":  # the letters of the text are the bytes of the reply
                line = params["arguments"]["text"].replace("ID", str(request["id"]))
                sys.stdout.buffer.write(line.encode("latin-1") + b"\n")
                sys.stdout.flush()
                continue
            result = call(params["name"], params.get("arguments") or {})
        else:
            continue
        send({"id": request["id"], "result": result})


if __name__ == "__main__":
    main(sys.argv[1])
