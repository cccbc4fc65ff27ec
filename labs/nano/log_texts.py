"""Texts of logs, of failures and of everything else."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from .marks import holds_mark
from .words import Lexicon

Slots = Mapping[str, Callable[[], str]]

# {w} a word, {v} a value, {n} a number, {h} a host, {p} an absolute path, {i} an identifier
FAILURES = (
    "connection to {h}:{n} refused",
    "Connection refused: {h}:{n}",
    "cannot open {p}: Permission denied",
    "{p}: No such file or directory",
    "disk full on {p}",
    "No space left on device: {p}",
    "timeout after {n} ms waiting for {w}",
    "{w} timed out after {n}s",
    "failed to {w} {w}: {w} {w}",
    "failed to load {i} from {p}",
    "Failed to connect to {w} at {h}",
    "could not {w} {i}: {v}",
    "unable to {w} the {w}",
    "out of memory in {i}",
    "invalid {w} '{w}' in {i}",
    "unexpected {w} at line {n}",
    "{w} {n} not found",
    "user {w} is not allowed to {w}",
    "{i} returned {n}",
    "{i}: {w} {w} {w}",
    "HTTP {n} from {h}",
    "database {w} is locked",
    "certificate for {h} has expired",
    "{w} process exited with code {n}",
    "segmentation fault in {i}",
    "lost {w} with {n} {w} pending",
    "missing key '{w}' in {p}",
    "too many open {w}: {n}",
    "authentication failed for {w}@{h}",
    "checksum mismatch: {v} != {v}",
    "could not resolve host {h}",
    "no such table: {w}",
    "permission denied for {w} {w}",
    'duplicate key value violates unique constraint "{i}"',
    "address already in use: {h}:{n}",
    "{w} refused: quota of {n} {w} exceeded",
    "cannot import name '{i}' from '{w}'",
    "module '{w}' has no attribute '{i}'",
    "expected {n} arguments, got {n}",
    "undefined reference to `{i}'",
    "'{i}' was not declared in this scope",
    "rate limit exceeded for {w}, retry in {n}s",
    "upstream {h} closed the connection",
    "{w}/{w}:{v}: image not found",
    "failed after {n} attempts: {w} {w}",
    "test {i} failed: expected {v}, got {v}",
    "{w} {w} is full ({n} of {n})",
    "bad gateway: {w} answered {n}",
    "corrupt {w} at offset {n} in {p}",
    "replica {h} is {n} s behind",
    "token expired at {v}",
    "{w} version {v} is not supported, need {v}",
    "exit status {n}",
    "killed by signal {n}",
    "job {v} aborted: {w} {w} {w}",
    "broken pipe while sending {n} bytes to {h}",
    "request {v} failed with status {n}",
    "assertion failed: {i} == {n}",
    "cannot allocate {n} bytes for {i}",
    "payment {v} declined: {w} {w}",
)
EVENTS = (
    "{w} started",
    "started {w} on {h}:{n}",
    "{w} {w} finished in {n} ms",
    "listening on {h}:{n}",
    "loaded {n} {w} from {p}",
    "user {w} logged in",
    "GET /{w}/{w} {n}",
    "POST /{w} {n} {n}ms",
    "connected to {w} at {h}",
    "cache {w} hit {n}",
    "retry {n} of {n}",
    "{i}={v}",
    "{w}: {w} {w} {v}",
    "{w} {w} {w}",
    "{w} {w} {w} {w} {w}",
    "opening {p}",
    "wrote {n} bytes to {p}",
    "heartbeat ok",
    "shutting down {w}",
    "slow {w}: {n} ms",
    "queue {w} has {n} {w}",
    '{h} - - "GET /{w} HTTP/1.1" {n} {n}',
    "accepted connection from {h}:{n}",
    "request {v} done in {n} ms",
    "reading configuration from {p}",
    "{w} version {v} starting",
    "job {v} queued by {w}",
    "scheduled {w} every {n} s",
    "using {w} {w} with {n} threads",
    "sent {n} messages to {w}",
    "{i} took {n} ms",
    "set {i} to {v}",
    "worker {n} is ready",
    "checkpoint {n} written to {p}",
    "compiled {n} files",
    "test {i} passed",
    "session {v} opened for {w}",
    "disk {p} at {n}%",
    "pulled image {w}/{w}:{v}",
    "DELETE FROM {w} WHERE id = {n}",
    "SELECT {w} FROM {w} LIMIT {n}",
    "{w}={n} {w}={n} {w}={v}",
    "from {h}: {w} {w} ok",
    "rotated {p}",
    "backup of {w} finished",
    "TODO: {w} the {w}",
    "C:\\{w}\\{w} {w}",
    "{w} -> {w}",
    "{i} <{w}> & {w}",
    "{w} > {n}, {w} < {n}",
    "$ {w} --{w} {v}",
    "+ {w} {w}",
    "~{n} {w} left",
    "done",
)
HARMLESS = (  # lines that speak of errors and report none
    "0 errors, {n} {w}",
    "no errors found in {p}",
    "error_rate=0.{n}",
    "error handler {i} registered",
    "errors: 0",
    "on_error={w}",
    "finished without error",
    "previous error cleared",
    "failed=0 ok={n}",
    "0 failed, {n} passed",
    "failures: 0",
    "failover to {h} ready",
    "error log is {p}",
    "loaded module fail2ban",
    "no critical {w} pending",
    "exception handler {i} registered",
    "abort_on_{w}={w}",
    "{w} recovered from error {n}",
    "max_fails={n}",
    "{n} {w}, 0 errors, 0 warnings",
    "completed with 0 errors",
    "done: {n} ok, 0 failed",
    "Errors: 0, Warnings: {n}",
    "errors=0 {w}={n}",
    "no failures",
    "retry {n} succeeded after a failed attempt",
    "log_level=error",
    "error_log {p} warn;",
    "fail_timeout={n}s",
    "killed=0 running={n}",
    "exception reporting is on",
    "error budget of {w} at {n}%",
    "panic_on_oops=0",
    "error page for {h} loaded",
    "fatal: 0, errors: 0, {w}: {n}",
    "{w} failed: 0, {w}: {n}",
    "clearing error counters of {w}",
    "install liberror-perl:all <none> {n}",
    "status installed libgpg-error0:amd64 {v}",
    "status unpacked lib{w}-error-dev:amd64 {n}",
    "Setting up python3-{w}-exceptions ({n})",
    "added error-stack-parser@{n}",
    "downloaded errorprone-{n}.jar",
    "GET /error.html 200 {n}",
    "GET /{w}/exceptions.json 304 {n}",
    "fail2ban.actions [{n}]: NOTICE [sshd] Unban {h}",
    "fail2ban.filter [{n}]: INFO [sshd] Found {h}",
    "compiling {w}/error.rs",
    "test errors::{i} ... ok",
    "tests/test_errors.py::{i} PASSED",
    "tests/test_{w}.py::test_it_fails_for_{w} PASSED",
    "watching {p}/errors.log",
    "emergency contact {w} saved",
    "criteria of {w} updated",
    "exception list {w} loaded from {p}",
    "failsafe of {w} is off",
    "abort signal handler {i} ready",
    "uploaded error-codes-{w}.csv",
    "error correction of {w} is on",
)


_SLOT = re.compile(r"\{[a-zA-Z^~][a-z0-9]*\}")


def fill(words: Lexicon, pattern: str, more: Slots | None = None) -> str:
    """Fill every slot of `pattern` anew; `more` names rare slots."""
    makers: dict[str, Callable[[], str]] = {
        "{w}": words.word,
        "{v}": words.value,
        "{n}": words.number,
        "{h}": words.host,
        "{p}": words.absolute_path,
        "{i}": words.identifier,
        **(more or {}),
    }
    return _SLOT.sub(lambda slot: makers[slot[0]]() if slot[0] in makers else slot[0], pattern)


def failure(words: Lexicon, stock: Sequence[str] = ()) -> str:
    """Return an error's text; sometimes it begins like one of the harmless texts in `stock`."""
    if stock and words.rng.random() < 0.3:
        start = words.rng.choice(stock).split(" ")
        return " ".join([*start[: words.rng.randint(1, 3)], failure(words)])
    roll = words.rng.random()
    if roll < 0.55:
        text = fill(words, words.rng.choice(FAILURES))
    elif roll < 0.8:
        text = words.phrase(2, 7)
    elif roll < 0.88:
        text = f"{words.word()} {words.alike()}"
    else:
        text = f"{words.phrase(1, 3)} {words.value()} {words.phrase(1, 2)}"
    return text[0].upper() + text[1:] if words.rng.random() < 0.4 else text


def event(words: Lexicon) -> str:
    """Return a line without an error; while `words.talks_of_errors`, some name one."""
    roll = words.rng.random()
    if words.talks_of_errors and roll < 0.12:
        return _cased(words, fill(words, words.rng.choice(HARMLESS)))
    while True:
        if roll < 0.68:
            text = fill(words, words.rng.choice(EVENTS))
        elif roll < 0.78:
            text = words.sentence()
        else:
            text = words.phrase(2, 6)
        if not holds_mark(text):
            return _cased(words, text)


def _cased(words: Lexicon, text: str) -> str:
    return text[0].upper() + text[1:] if words.rng.random() < 0.4 else text
