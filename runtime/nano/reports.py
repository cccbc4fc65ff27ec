"""What programs print when something goes wrong, in the layouts that real machines have.

Each report is written as lines with slots (`log_texts.fill`). What an answer repeats stands between
`«` and `»`; `?` begins a line that only the second, weaker search finds. `*` stands for harmless
lines of the same program, which `~` gives. A report whose message no search shows begins with `@`:
there the lines behind the hit are read.
"""

from __future__ import annotations

from collections.abc import Callable

from .log_texts import HARMLESS, Slots, event, failure, fill
from .logs import EXCEPTIONS, Log
from .words import Lexicon

PYTHON = """\
*
Traceback (most recent call last):
  File "{p}.py", line {n}, in {w}
    {w} = {i}({w}, {n})
          {^}
  File "{p}.py", line {n}, in {i}
    return {w}[{w}] * {w}
           {~}
«{e}: {m}»
~{event}"""
CHAINED = """\
Traceback (most recent call last):
  File "{p}.py", line {n}, in {i}
    {w} = {w}.{w}({w})
«{e}: {m}»

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "{p}.py", line {n}, in <module>
    {i}()
    {~}
{e}: {w} {w} {w}"""
LIBRARY = """\
@*
Traceback (most recent call last):
  File "{p}.py", line {n}, in <module>
    {w}.{w}()
  File "{p}.py", line {n}, in {w}
    raise {C}({w})
«{C}: {w} {w} {v}»
~{event}"""
PYTEST = """\
============================= test session starts ==============================
platform linux -- Python 3.1{d}.{d}, pytest-8.{d}.{d}, pluggy-1.{d}.{d}
rootdir: {p}
plugins: {w}-{d}.{d}.{d}, {w}-{d}.{d}.{d}
collected {n} items

*
tests/test_{w}.py ..F...                                                 [ {d}{d}%]

=================================== FAILURES ===================================
________________________________ test_{w}_{w} _________________________________

    def test_{w}_{w}({w}):
        {w} = {i}({n})
>       assert {w} == {n}
E       assert {n} == {n}
E        +  where {n} = {i}({n})

tests/test_{w}.py:{n}: AssertionError
----------------------------- Captured stdout call -----------------------------
{event}
=========================== short test summary info ============================
FAILED «tests/test_{w}.py::test_{w}_{w} - assert {n} == {n}»
========================= 1 failed, {n} passed in {d}.{d}{d}s =========================
~tests/test_{w}.py .......                                                [ {d}{d}%]"""
PYTEST_ERROR = """\
=================================== FAILURES ===================================
____________________________ {C}.test_{w} _____________________________

    def test_{w}(self):
>       {w} = {i}('{w}')

tests/{w}/test_{w}.py:{n}:
_ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _
>       raise {e}("{m}")
E       {e}: {m}

{w}/{w}.py:{n}: {e}
=========================== short test summary info ============================
FAILED «tests/{w}/test_{w}.py::{C}::test_{w} - {e}: {m}»
FAILED tests/{w}/test_{w}.py::{C}::test_{w} - {e}: {m}
========================= 2 failed, {n} passed in {d}.{d}{d}s ========================="""
UNITTEST = """\
..F....
======================================================================
FAIL: test_{w} (test_{w}.{C}.test_{w})
----------------------------------------------------------------------
Traceback (most recent call last):
  File "{p}.py", line {n}, in test_{w}
    self.assertEqual({w}, {n})
    {~}
«AssertionError: {n} != {n}»

----------------------------------------------------------------------
Ran {n} tests in {d}.{n}s

FAILED (failures=1)"""
SYSLOG_OOM = """\
*
{M} {D} {T} {H} kernel: [{n}.{n}] «Out of memory: Killed process {n} ({w}) total-vm:{n}kB, anon-rss:{n}kB»
~{M} {D} {T} {H} {w}[{n}]: {event}"""
SYSLOG = """\
*
{M} {D} {T} {H} {w}[{n}]: «{F}»
~{M} {D} {T} {H} {w}[{n}]: {event}"""
SYSLOG_ISO = """\
*
{I}+00:00 {H} {w}[{n}]: error: «{m}»
~{I}+00:00 {H} {w}[{n}]: {event}"""
SYSTEMD = """\
*
{M} {D} {T} {H} systemd[1]: Starting {w}.service - {W} {w} {w}...
{M} {D} {T} {H} {w}[{n}]: {event}
{M} {D} {T} {H} systemd[1]: {w}.service: «Main process exited, code=exited, status={d}/FAILURE»
{M} {D} {T} {H} systemd[1]: {w}.service: Failed with result 'exit-code'.
{M} {D} {T} {H} systemd[1]: Failed to start {w}.service - {W} {w} {w}.
~{M} {D} {T} {H} systemd[1]: Started {w}.service - {W} {w}."""
SYSTEMD_FAILED = """\
*
{M} {D} {T} {H} systemd[1]: «Failed to start {w}.service - {W} {w}.»
{M} {D} {T} {H} systemd[1]: {w}.service: Triggering OnFailure= dependencies.
~{M} {D} {T} {H} systemd[1]: Reached target {w}.target - {W}."""
JOURNAL = """\
*
{M} {D} {T} {H} {w}[{n}]: {e2}: «{m}»
~{M} {D} {T} {H} {w}[{n}]: {event}"""
STATUS = """\
× {w}.service - {W} {w}
     Loaded: loaded (/etc/systemd/system/{w}.service; enabled; preset: enabled)
     Active: failed (Result: exit-code) since {I}; {d}min ago
    Process: {n} ExecStart={p} (code=exited, status={d}/FAILURE)
   Main PID: {n} (code=exited, status={d}/FAILURE)

{M} {D} {T} {H} {w}[{n}]: {event}
{M} {D} {T} {H} {w}[{n}]: {e2}: «{m}»
{M} {D} {T} {H} systemd[1]: {w}.service: Failed with result 'exit-code'."""
DMESG = """\
*
[{n}.{n}] «{w}[{n}]: segfault at {x} ip {x} sp {x} error {d} in {w}[{x}]»
~[{n}.{n}] {w} {w}: {event}"""
NGINX = """\
*
{Y}/{D2}/{D2} {T} [{l}] {n}#{d}: *{n} «{N}, client: {h}, server: {H}, request: "GET /{w} HTTP/1.1"»
~{Y}/{D2}/{D2} {T} [notice] {n}#{d}: {event}"""
APACHE = """\
*
[Mon {M} {D2} {T}.{n} {Y}] [{w}:error] [pid {n}:tid {n}] [client {h}:{n}] «AH0{n}: {m}»
~[Mon {M} {D2} {T}.{n} {Y}] [{w}:notice] [pid {n}:tid {n}] AH0{n}: {event}"""
JSON = """\
*
{"ts":"{I}Z","level":"error","logger":"{w}","msg":"«{m}»","{w}":{n}}
~{"ts":"{I}Z","level":"info","logger":"{w}","msg":"{event}"}"""
JSON_2 = """\
*
{"level":"fatal","time":{n}{n},"pid":{n},"msg":"«{m}»"}
~{"level":"{c}","time":{n}{n},"pid":{n},"msg":"{event}"}"""
JSON_3 = """\
*
{"severity": "ERROR", "message": "«{m}»", "timestamp": "{I}Z", "{w}": "{w}"}
~{"severity": "INFO", "message": "{event}", "timestamp": "{I}Z"}"""
NPM = """\
> {w}@{d}.{d}.{d} build
> {w} {w}

*
npm ERR! «code {K}»
npm ERR! {m}
npm ERR!
npm ERR! A complete log of this run can be found in: {p}.log
~{event}"""
NPM_NEW = """\
*
npm error «code {K}»
npm error {m}
npm error A complete log of this run can be found in: {p}.log
~npm warn deprecated {w}@{d}.{d}.{d}: {w} {w}"""
NODE = """\
*
{e}: «{m}»
    at {C}.{w} ({p}.js:{n}:{d})
    at {C}._compile (node:internal/modules/cjs/loader:{n}:{d})
    at node:internal/main/run_main_module:{d}:{d}

Node.js v2{d}.{d}.{d}
~{event}"""
PIP = """\
Collecting {w}=={d}.{d}.{d}
  Downloading {w}-{d}.{d}.{d}-py3-none-any.whl ({n} kB)
*
ERROR: «Could not find a version that satisfies the requirement {w}=={d}.{d}.{d} (from versions: {d}.{d}, {d}.{d})»
ERROR: No matching distribution found for {w}=={d}.{d}.{d}
~Requirement already satisfied: {w} in {p} ({d}.{d}.{d})"""
PIP_BUILD = """\
*
  Preparing metadata (pyproject.toml) ... {event}
  error: «{m}»
  × python setup.py egg_info did not run successfully.
  │ exit code: 1
  ╰─> [{d} lines of output]
~Collecting {w}>={d}.{d}"""
DOCKER = """\
#1 [internal] load build definition from Dockerfile
*
#{d} [{d}/{d}] RUN {w} {w} {w}
#{d} {d}.{n} {event}
#{d} ERROR: «process "/bin/sh -c {w} {w} {w}" did not complete successfully: exit code: {d}»
------
 > [{d}/{d}] RUN {w} {w} {w}:
~#{d} {d}.{n} {event}"""
COMPOSE = """\
*
{w}-1  | {e2}: «{m}»
{w}-1 exited with code {d}
~{w}-1  | {event}"""
COMPOSE_2 = """\
*
{w}_1  | {I}Z ERROR «{m}»
~{w}_1  | {I}Z INFO {event}"""
GCC = """\
*
{w}/{w}.c: In function '{i}':
{w}/{w}.c:{n}:{d}: error: «'{i}' undeclared (first use in this function)»
  {n} |     {i}({w});
      |     {^}
make: *** [Makefile:{n}: {w}.o] Error 1
~gcc -O2 -Wall -c {w}/{w}.c -o {w}/{w}.o"""
GCC_2 = """\
*
{w}/{w}.cpp:{n}:{d}: {fe}: «{m}»
  {n} | {w} {w} = {i}({w});
      |      {~}
make[{d}]: *** [{w}/Makefile:{n}: all] Error 2
~[ {d}{d}%] Building CXX object {w}/CMakeFiles/{w}.dir/{w}.cpp.o"""
LINKER = """\
*
/usr/bin/ld: {w}.o: in function `{i}': «undefined reference to `{i}'»
collect2: error: ld returned 1 exit status
~[{n}/{n}] Linking CXX executable {w}"""
RUSTC = """\
*
error[E0{n}]: «{m}»
  --> src/{w}.rs:{n}:{d}
   |
{n} |     let {w} = {i}({w});
   |             {^}
   |
error: could not compile `{w}` (bin "{w}") due to 1 previous error
~   Compiling {w} v{d}.{d}.{d}"""
CARGO_TEST = """\
running {n} tests
*
---- tests::{i} stdout ----
thread 'tests::{i}' panicked at src/{w}.rs:{n}:{d}:
«assertion `left == right` failed»
  left: {n}
 right: {n}

test result: FAILED. {n} passed; 1 failed; 0 ignored
~test tests::{i} ... ok"""
TSC = """\
*
src/{w}/{w}.ts({n},{d}): error TS{n}: «{m}»
~{w} {w} {event}"""
TSC_2 = """\
src/{w}.ts:{n}:{d} - error TS{n}: «{m}»

{n}   const {w} = {w}.{w};
            {~}

Found 1 error in src/{w}.ts:{n}"""
GO_PANIC = """\
*
panic: «{m}»

goroutine {d} [running]:
main.{w}(...)
	{p}.go:{n}
exit status 2
~{Y}/{D2}/{D2} {T} {event}"""
GO_BUILD = """\
*
--- FAIL: «Test{W} (0.{d}{d}s)»
    {w}_test.go:{n}: got {v}, want {v}
FAIL
FAIL	{H}/{w}	0.{n}s
~ok  	{H}/{w}	0.{n}s"""
JAVA = """\
*
{Y}-{D2}-{D2} {T}.{n} ERROR [{w}] c.{w}.{C} - «{m}»
{w}.{w}.{C}Exception: {m}
	at {w}.{w}.{C}.{w}({C}.java:{n})
	at java.base/java.lang.Thread.run(Thread.java:{n})
~{Y}-{D2}-{D2} {T}.{n} {c2} [{w}] c.{w}.{C} - {event}"""
JAVA_PLAIN = """\
*
Exception in thread "{w}" «java.{w}.{C}Exception: {m}»
	at {w}.{w}.{C}.{w}({C}.java:{n})
Caused by: java.io.{C}Exception: {m}
	... {n} more
~{event}"""
POSTGRES = """\
*
{Y}-{D2}-{D2} {T}.{n} UTC [{n}] {pe}:  «{m}»
{Y}-{D2}-{D2} {T}.{n} UTC [{n}] STATEMENT:  SELECT {w} FROM {w} WHERE {w} = {n};
~{Y}-{D2}-{D2} {T}.{n} UTC [{n}] LOG:  {event}"""
MYSQL = """\
*
{I}Z {d} [ERROR] [MY-0{n}] [{W}] «{m}»
~{I}Z {d} [System] [MY-0{n}] [{W}] {event}"""
GIT = """\
*
fatal: «{m}»
~{event}"""
APT = """\
*
E: «{m}»
~Get:{d} http://{h} {w}/{w} amd64 {w} [{n} kB]"""
TERRAFORM = """\
*
╷
│ Error: «{m}»
│
│   on {w}.tf line {n}, in resource "{w}" "{w}":
╵
~{w}.{w}: {event}"""
ACTIONS = """\
{I}Z ##[group]Run {w} {w}
*
{I}Z ##[error]«{m}»
~{I}Z {event}"""
KUBE = """\
LAST SEEN   TYPE      REASON      OBJECT       MESSAGE
*
{d}m          Warning   Failed      pod/{w}-{n}   «Error: {m}»
~{d}m          Normal    Pulled      pod/{w}-{n}   {event}"""
ABORTED = """\
*
{T} «{A}»
~{T} {event}"""
LEVELS = """\
*
{I}Z [{E}] {w}: «{m}»
~{I}Z [{c2}] {w}: {event}"""
LOGFMT = """\
*
ts={I}Z level={e3} component={w} err="«{m}»"
~ts={I}Z level={c} component={w} msg="{event}\""""
NO_LEVEL = """\
*
?{T} «{S}»
~{T} {event}"""
NO_LEVEL_2 = """\
*
?«{S}»
~{event}"""
NO_LEVEL_3 = """\
*
?{M} {D} {T} {H} {w}[{n}]: «{S}»
~{M} {D} {T} {H} {w}[{n}]: {event}"""
BACKUP = """\
== {w} {w} {Y}-{D2}-{D2} ==
*
?{w}: «{S}»
~{w}: {event}"""

REPORTS = (
    *(PYTHON, PYTHON, CHAINED, LIBRARY, PYTEST, PYTEST, PYTEST_ERROR, UNITTEST, SYSLOG_OOM),
    *(SYSLOG_OOM, SYSLOG, SYSLOG, SYSLOG_ISO, SYSTEMD, SYSTEMD_FAILED, JOURNAL, STATUS, DMESG),
    *(NGINX, NGINX, APACHE, JSON, JSON_2, JSON_3, NPM, NPM_NEW, NODE, PIP, PIP_BUILD, DOCKER),
    *(COMPOSE, COMPOSE_2, GCC, GCC_2, LINKER, RUSTC, CARGO_TEST, TSC, TSC_2, GO_PANIC, GO_BUILD),
    *(JAVA, JAVA_PLAIN, POSTGRES, MYSQL, GIT, APT, TERRAFORM, ACTIONS, KUBE, ABORTED, LEVELS),
    *(LOGFMT, NO_LEVEL, NO_LEVEL, NO_LEVEL_2, NO_LEVEL_3, BACKUP),
)

FAILED = (  # hold a word that the first search is for
    "Failed to {w} {w}: {m}", "Failed password for {w} from {h} port {n} ssh2", "{w} failed: {m}",
    "{m}: operation failed", "({w}) CMD failed: {m}", "Backup of {w} failed: {m}",
    "segfault at {x} ip {x}", "{C}Error: {m}", "{w} failed with exit code {d}",
    "Fatal error in {w}: {m}", "{w} panicked: {m}", "Job {w} aborted: {m}",
)  # fmt: skip
ABORTS = (
    "Aborted (core dumped)", "Segmentation fault (core dumped)", "Killed", "{w} killed by signal {d}",
    "{w} FAILED: {m}", "aborting: {m}", "Out of memory: {m}", "oom-killer: killed {w} ({n})",
    "Exception: {m}", "{w} failed, {m}", "Build failed: {m}", "Deployment of {w} failed",
)  # fmt: skip
SILENT = (  # no word of the first search; one of the second
    "cannot open {p}: Permission denied", "connection to {h}:{n} refused", "could not {w} the {w}",
    "connect to {h} port {n}: Connection refused", "{p}: No such file or directory", "{w} not found",
    "{w} timed out after {n} s", "unable to {w} {w} on {h}", "permission denied for {w}",
    "rsync: {w} {w}: Connection timed out ({n})", "could not resolve {h}", "disk is full, cannot write {p}",
    "{w}: command not found", "lost connection to {h}", "certificate of {h} has expired",
    "{w} exited with code {d}", "login of {w} denied", "invalid {w} in {p}", "can't {w} {w}: {w} {w}",
    "{h} is unreachable", "request to {h} rejected: {w} {w}", "checksum of {p} is corrupt",
)  # fmt: skip
NGINX_SAYS = (
    "connect() failed (111: Connection refused) while connecting to upstream",
    'open() "{p}" failed (2: No such file or directory)',
    "upstream timed out (110: Connection timed out) while reading response header from upstream",
    "no live upstreams while connecting to upstream", "{m}",
)  # fmt: skip


def message(words: Lexicon) -> str:
    """What went wrong, without a word that marks an error by itself more often than not."""
    while '"' in (text := failure(words)) or "\\" in text:
        pass
    return text


def _more(words: Lexicon) -> Slots:
    """Slots of reports that other texts do not have."""
    rng = words.rng
    month = rng.choice("Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split())
    day, year = rng.randint(1, 28), rng.randint(2019, 2027)
    host, seconds = words.word() + rng.choice(("", f"-{rng.randrange(20)}")), rng.randrange(80_000)
    clock = [seconds]

    def time() -> str:
        clock[0] = min(clock[0] + rng.randrange(40), 86_399)
        minutes, second = divmod(clock[0], 60)
        return f"{minutes // 60:02d}:{minutes % 60:02d}:{second:02d}"

    same = {slot: make() for slot, make in (
        ("{e}", lambda: rng.choice(EXCEPTIONS.split())), ("{m}", lambda: message(words)),
        ("{C}", lambda: words.word().capitalize() + words.word().capitalize()),
    )}  # fmt: skip

    def one(texts: tuple[str, ...]) -> Callable[[], str]:
        return lambda: fill(words, rng.choice(texts), slots)

    slots: Slots = {
        "{^}": lambda: "^" * rng.randint(3, 30),
        "{~}": lambda: "~" * rng.randint(2, 9) + "^" * rng.randint(1, 20),
        "{e2}": lambda: rng.choice(("error", "Error", "fatal", "ERROR", "panic", "FATAL")),
        "{e3}": lambda: rng.choice(("error", "fatal", "err", "critical")),
        "{E}": lambda: rng.choice(("ERROR", "error", "ERR", "FATAL", "CRIT", "SEVERE", "Error")),
        "{pe}": lambda: rng.choice(("ERROR", "ERROR", "FATAL", "PANIC")),
        "{fe}": lambda: rng.choice(("error", "error", "fatal error")),
        "{c}": lambda: rng.choice(("info", "info", "debug", "warn")),
        "{c2}": lambda: rng.choice(("INFO", "INFO", "DEBUG", "WARN")),
        "{l}": lambda: rng.choice(("error", "error", "crit", "emerg", "alert")),
        "{e}": lambda: same["{e}"],
        "{m}": lambda: same["{m}"],
        "{C}": lambda: same["{C}"],
        "{W}": lambda: words.word().capitalize(),
        "{K}": lambda: rng.choice(("ELIFECYCLE", "ENOENT", "ERESOLVE", "EACCES", "E404", "EINTEGRITY")),
        "{d}": lambda: str(rng.randrange(10)),
        "{x}": lambda: "".join(rng.choices("0123456789abcdef", k=rng.choice((4, 8, 12)))),
        "{M}": lambda: month,
        "{D}": lambda: f"{day:2d}",
        "{D2}": lambda: f"{day:02d}",
        "{Y}": lambda: str(year),
        "{H}": lambda: host,
        "{T}": time,
        "{I}": lambda: f"{year}-{day % 12 + 1:02d}-{day:02d}T{time()}",
        "{event}": lambda: _calm(words),
        "{F}": one(FAILED),
        "{A}": one(ABORTS),
        "{S}": one(SILENT),
        "{N}": one(NGINX_SAYS),
    }  # fmt: skip
    return slots


def _calm(words: Lexicon) -> str:
    while '"' in (text := event(words)) and words.rng.random() < 0.9:
        pass
    return text


def make_report(words: Lexicon, size: int) -> Log:
    """A report of about `size` lines: one failure among what the program says otherwise."""
    if words.pool or words.rng.random() < 0.33:
        return _write(words, size)
    with words.few(words.rng.randint(4, 30)):
        return _write(words, size)


def _write(words: Lexicon, size: int) -> Log:
    rng = words.rng
    pattern = rng.choice(REPORTS)
    words.talks_of_errors = rng.random() < 0.1
    slots = _more(words)
    log = Log(hidden=pattern.startswith("@"))
    rows = pattern.removeprefix("@").split("\n")
    spare = [row[1:] for row in rows if row.startswith("~")]
    fixed = [row for row in rows if not row.startswith("~")]
    count = max(0, size - len(fixed)) if "*" in fixed else 0
    before = rng.randint(0, count)
    for row in fixed:
        if row == "*":
            log.lines += _spare(words, spare, before, slots)
            continue
        log.weak = log.weak or row.startswith("?")
        text = fill(words, row.removeprefix("?"), slots)
        if "«" in text:
            log.errors.append(text[text.index("«") + 1 : text.rindex("»")])
            text = text.replace("«", "").replace("»", "")
            log.places.append(len(log.lines) + 1)
            log.rows.append(text)
        log.lines.append(text)
    log.lines += _spare(words, spare, count - before, slots)
    return log


def _spare(words: Lexicon, spare: list[str], count: int, slots: Slots) -> list[str]:
    """Lines that say nothing of a failure; many of a long run are the same."""
    rng = words.rng
    if not spare:
        return []
    made = [fill(words, rng.choice(spare), slots) for _ in range(min(count, 25))]
    if count > 25:
        made = rng.choices(made, k=count)
    if count and rng.random() < 0.2:
        made[rng.randrange(count)] = fill(words, rng.choice(HARMLESS))
    return made
