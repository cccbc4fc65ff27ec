"""Tables of an office: invoices, orders, customers, tickets, staff; German and English forms."""

from __future__ import annotations

import json
import random
from datetime import date, timedelta

_CUSTOMERS = (
    ("C101", "Weber & Söhne", "Kassel", "DE"),
    ("C102", "Ito Trading", "Osaka", "JP"),
    ("C103", "Silva Irmãos", "Porto", "PT"),
    ("C104", "Northgate Dental", "Leeds", "GB"),
    ("C105", "Bäckerei Huth", "Ulm", "DE"),
    ("C106", "Ferreira Lda", "Braga", "PT"),
    ("C107", "Moss & Pine", "York", "GB"),
    ("C108", "Atelier Colin", "Lyon", "FR"),
)
_ITEMS = (("desk", 189.0), ("lamp", 24.5), ("chair", 79.9), ("shelf", 64.0), ("rug", 119.0))
_TOPICS = ("delivery", "invoice", "damage", "login", "delivery")
_PEOPLE = ("Ana", "Ben", "Chloe", "Deniz")


def office() -> dict[str, bytes]:
    """Build eight files: three csv (one German), a tsv, JSON lines, ini, and two texts."""
    files = {
        "customers.csv": _table(",", ("id", "name", "city", "country"), _CUSTOMERS),
        "invoices.csv": _invoices(),
        "orders.tsv": _orders(),
        "umsatz_2025.csv": _revenue(),
        "tickets.jsonl": _tickets(),
        "payroll/readme.txt": "Salaries are kept by the tax office since May 2025.\nAsk Deniz.\n",
        "export.ini": (
            "[invoices]\nseparator = ,\nencoding = utf-8\nkeep_days = 400\n\n"
            "[orders]\nseparator = tab\nencoding = latin-1\nkeep_days = 90\n"
        ),
        "README.txt": (
            "Exports of the shop, made on the first of each month.\n"
            "invoices.csv: amounts in euros, net. state is paid, open or void.\n"
            "orders.tsv: one row per item. Returns have a negative quantity.\n"
            "Questions: Chloe (ext. 417).\n"
        ),
    }
    return {path: text.encode() for path, text in files.items()}


def _table(mark: str, head: tuple[str, ...], rows: object) -> str:
    assert isinstance(rows, list | tuple)
    return "\n".join(mark.join(map(str, row)) for row in (head, *rows)) + "\n"


def _invoices() -> str:
    rng = random.Random(61)
    rows = []
    for number in range(1, 241):
        day = date(2025, 1, 2) + timedelta(days=int(number * 1.5))
        state = rng.choice(("paid", "paid", "paid", "paid", "open", "void"))
        amount = rng.randrange(1_500, 290_000) / 100
        customer = _CUSTOMERS[rng.randrange(8)][0]
        rows.append((f"R-{number:04}", customer, day, f"{amount:.2f}", state))
    return _table(",", ("invoice", "customer", "date", "amount", "state"), rows)


def _orders() -> str:
    rng = random.Random(62)
    rows = []
    for number in range(1, 1501):
        item, price = rng.choice(_ITEMS)
        quantity = rng.choice((1, 1, 2, 2, 3, 4, 6, -1))
        day = date(2025, 1, 1) + timedelta(days=number // 5)
        rows.append((20_000 + number, day, _CUSTOMERS[rng.randrange(8)][0], item, quantity, price))
    return _table("\t", ("order", "date", "customer", "item", "quantity", "price"), rows)


def _revenue() -> str:
    rng = random.Random(63)
    months = "Januar Februar März April Mai Juni Juli August September Oktober November Dezember"
    rows = []
    for month in months.split():
        online, store = rng.randrange(18_000, 64_000), rng.randrange(9_000, 31_000)
        sums = (f"{euros:,}".replace(",", ".") for euros in (online, store))
        rows.append((month, *(f"{one},50" for one in sums)))
    return _table(";", ("Monat", "Online", "Laden"), rows)


def _tickets() -> str:
    rng = random.Random(64)
    lines = []
    for number in range(1, 301):
        one: dict[str, object] = {"ticket": 7_000 + number, "topic": rng.choice(_TOPICS)}
        one |= {"owner": rng.choice(_PEOPLE), "hours": rng.randrange(1, 90) / 2}
        one["closed"] = rng.random() < 0.8
        lines.append(json.dumps(one))
    return "\n".join(lines) + "\n"
