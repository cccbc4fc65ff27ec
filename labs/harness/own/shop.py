"""Logs of a shop's server for a night: nginx, an application, syslog, the journal, a packed one."""

from __future__ import annotations

import gzip
import random
from collections.abc import Iterator
from datetime import datetime, timedelta

_START = datetime(2026, 3, 14)
_AGENTS = ("Mozilla/5.0 (X11; Linux x86_64)", "curl/8.5.0", "Googlebot/2.1", "okhttp/4.12.0")
_PATHS = ("/", "/cart", "/search?q=lamp", "/api/items", "/api/orders", "/static/app.css", "/login")
_WORKERS = ("worker-1", "worker-2", "worker-3", "worker-4")
_CALM = (
    ("INFO", "cart.service", "cart {n} saved in {ms} ms"),
    ("INFO", "payments.gateway", "authorized order {n} in {ms} ms"),
    ("DEBUG", "stock.cache", "hit for item {n}"),
    ("INFO", "mail.queue", "confirmation for order {n} queued"),
    ("WARN", "stock.cache", "item {n} is older than 600 s"),
)


def shop() -> dict[str, bytes]:
    """Build six logs, of 240 to 20,000 lines."""
    files = {
        "nginx/access.log": _access(),
        "nginx/error.log": _nginx_error(),
        "app/checkout.log": _checkout(),
        "syslog": _syslog(),
        "journal.txt": _journal(),
    }
    packed = gzip.compress("\n".join(_older()).encode() + b"\n", mtime=0)
    # The byte that names the system differs between versions of Python.
    made = {"app/checkout.log.1.gz": packed[:9] + b"\xff" + packed[10:]}
    return made | {path: ("\n".join(lines) + "\n").encode() for path, lines in files.items()}


def _times(rng: random.Random, number: int, hours: float) -> Iterator[datetime]:
    step = hours * 3600 / number
    for place in range(number):
        yield _START + timedelta(seconds=int(place * step + rng.random() * step))


def _access() -> list[str]:
    rng = random.Random(41)
    lines = []
    for place, when in enumerate(_times(rng, 20_000, 24)):
        host = f"10.{rng.randrange(4)}.{rng.randrange(16)}.{rng.randrange(2, 250)}"
        path, status = rng.choice(_PATHS), "200"
        roll = rng.random()
        if roll < 0.02:
            status = "404"
            path = rng.choice(("/wp-login.php", "/wp-login.php", "/old-catalog.pdf", "/.env"))
        elif roll < 0.028:
            status, path = "502", rng.choice(("/api/orders", "/api/orders", "/api/items"))
        elif roll < 0.03:
            status = "499"
        if place % 97 == 5:
            host, path, status = "185.220.101.47", "/login", "401"
        size, agent = rng.randrange(180, 42_000), rng.choice(_AGENTS)
        verb = "POST" if path == "/login" else "GET"
        stamp = when.strftime("%d/%b/%Y:%H:%M:%S +0000")
        lines.append(f'{host} - - [{stamp}] "{verb} {path} HTTP/1.1" {status} {size} "-" "{agent}"')
    return lines


def _nginx_error() -> list[str]:
    rng = random.Random(42)
    lines = []
    for place, when in enumerate(_times(rng, 240, 24)):
        head = f"{when:%Y/%m/%d %H:%M:%S} "
        client = f"client: 10.0.3.{rng.randrange(2, 250)}, server: shop.example.org"
        if place == 131:
            text = "[emerg] 2211#2211: bind() to 0.0.0.0:8443 failed (98: Address in use)"
        elif place == 203:
            text = '[crit] 2214#2214: *8841 pwrite() "/var/cache/9/31" failed (28: No space left)'
        elif place % 11 == 3:
            text = f"[warn] 2214#2214: *{4000 + place} an upstream response is buffered, {client}"
        else:
            port = rng.choice((8001, 8001, 8002))
            text = (
                f"[error] 2214#2214: *{4000 + place} connect() failed (111: Connection refused) "
                f"while connecting to upstream, {client}, upstream: http://127.0.0.1:{port}/"
            )
        lines.append(head + text)
    return lines


def _app_line(rng: random.Random, when: datetime, level: str, part: str, text: str) -> str:
    text = text.format(n=rng.randrange(10_000, 99_999), ms=rng.randrange(3, 900))
    stamp = f"{when:%Y-%m-%d %H:%M:%S},{rng.randrange(1000):03}"
    return f"{stamp} [{rng.choice(_WORKERS)}] {level:<5} {part} - {text}"


def _checkout() -> list[str]:
    rng = random.Random(43)
    faults = {
        411: (
            "FATAL",
            "payments.gateway",
            "no answer from pay.example.net in 30 s, order 70113",
        ),
        412: ("INFO", "payments.gateway", "circuit opened for 120 s"),
        1290: ("FATAL", "stock.sync", "warehouse feed of 2026-03-13 has 0 rows, old stock kept"),
        1291: ("WARN", "stock.sync", "next try in 900 s"),
        2044: ("FATAL", "mail.queue", "smtp relay mx2.example.org: 451 greylisted, 38 mails wait"),
        2650: ("FATAL", "payments.gateway", "certificate of pay.example.net expired 2026-03-13"),
    }
    lines = []
    for place, when in enumerate(_times(rng, 3_000, 20)):
        fault = faults.get(place) or rng.choice(_CALM)
        lines.append(_app_line(rng, when, *fault))
        if place == 2044:
            lines += ["    at mail.queue.flush(queue.py:88)", "    at mail.queue.run(queue.py:41)"]
    lines.insert(0, "2026-03-14 00:00:00,001 [main] INFO  boot - checkout 4.7.2 starts, pid 3127")
    return lines


def _older() -> list[str]:
    rng = random.Random(44)
    lines = []
    for place, when in enumerate(_times(rng, 800, 22)):
        fault = rng.choice(_CALM)
        if place == 655:
            fault = (
                "FATAL",
                "db.pool",
                "all 40 connections in use for 15 s, request dropped",
            )
        lines.append(_app_line(rng, when - timedelta(days=1), *fault))
    return lines


def _syslog() -> list[str]:
    rng = random.Random(45)
    calm = (
        "systemd[1]: Started Session {n} of user deploy.",
        "CRON[{n}]: (root) CMD (run-parts /etc/cron.hourly)",
        "dhclient[611]: DHCPACK of 10.0.3.7 from 10.0.3.1",
        "sshd[{n}]: Accepted publickey for deploy from 10.0.0.12 port {n} ssh2",
    )
    users = ("admin", "root", "oracle", "admin", "test", "admin")
    odd = {
        700: "kernel: [81231.4411] Out of memory: Killed process 4021 (imagemagick) vm:6144MB",
        1204: "smartd[544]: Device: /dev/sdb [SAT], 24 Currently unreadable (pending) sectors",
        1811: "ntpd[702]: time reset +3.418 s",
    }
    lines = []
    for place, when in enumerate(_times(rng, 2_500, 24)):
        text = rng.choice(calm).format(n=rng.randrange(1_000, 60_000))
        if place % 23 == 7:
            user = rng.choice(users)
            port = rng.randrange(30_000, 60_000)
            text = f"sshd[{rng.randrange(1_000, 60_000)}]: Failed password for invalid user {user} "
            text += f"from 185.220.101.47 port {port} ssh2"
        lines.append(f"{when:%b %d %H:%M:%S} shop01 {odd.get(place, text)}")
    return lines


def _journal() -> list[str]:
    rng = random.Random(46)
    units = ("postgresql", "redis", "shop-web", "node-exporter")
    odd = {
        120: "shop01 systemd[1]: redis.service: Main process exited, code=killed, status=9/KILL",
        121: "shop01 systemd[1]: redis.service: Scheduled restart job, restart counter is at 3.",
        533: 'shop01 postgres[812]: PANIC:  could not write to file "pg_wal/xlogtemp.812"',
        777: "shop01 systemd[1]: Failed to start certbot.service - renews certificates.",
    }
    lines = []
    for place, when in enumerate(_times(rng, 900, 24)):
        unit = rng.choice(units)
        text = f"shop01 {unit}[{rng.randrange(700, 900)}]: heartbeat ok, {rng.randrange(9, 99)} ms"
        lines.append(f"{when:%Y-%m-%dT%H:%M:%S}+0000 {odd.get(place, text)}")
    return lines
