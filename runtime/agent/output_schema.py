"""JSON schemas of output types, with patterns in place of string formats.

What pydantic calls ``date-time`` may be a type that refuses an offset, and ``time`` is read without
one. So patterns take the place of formats.
"""

from __future__ import annotations

import re
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

_DATE = (
    r"(?:[1-9]\d{3}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)"
    r"|02-(?:0[1-9]|1\d|2[0-8]))|(?:[1-9]\d(?:0[48]|[2468][048]|[13579][26])"
    r"|(?:[2468][048]|[13579][26])00)-02-29)"
)
_TIME = r"(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,6})?"
_OFFSET = r"(?:Z|[+-](?:0\d|1[0-4]):[0-5]\d)"
_ZONES = {"": f"{_OFFSET}?", " naive": "", " aware": _OFFSET}
_SECONDS = r"\d{1,5}(?:\.\d{1,6})?S"
_HOURS = rf"T(?:\d{{1,4}}H(?:\d{{1,4}}M)?(?:{_SECONDS})?|\d{{1,4}}M(?:{_SECONDS})?|{_SECONDS})"
_OCTET = r"(?:25[0-5]|2[0-4]\d|1\d{2}|[1-9]?\d)"
_IPV4 = rf"{_OCTET}(?:\.{_OCTET}){{3}}"
_NETWORK = rf"(?:{_OCTET}(?:\.0){{3}}/8|(?:{_OCTET}\.){{2}}0\.0/16|(?:{_OCTET}\.){{3}}0/24)"
_HEX = "[0-9a-f]"
_IPV6 = f"{_HEX}{{1,4}}(?::{_HEX}{{1,4}}){{7}}"
_UUID = f"{_HEX}{{8}}-{_HEX}{{4}}-x{_HEX}{{3}}-[89ab]{_HEX}{{3}}-{_HEX}{{12}}"
_HOST = r"(?:[a-z0-9]{1,20}(?:-[a-z0-9]{1,20})?\.){1,5}[a-z]{2,20}"
_PATH = "/[A-Za-z0-9._~!$&()*+,;=:@/-]*"
_FORMATS = {
    "date": _DATE,
    **{f"date-time{zone}": f"{_DATE}T{_TIME}{offset}" for zone, offset in _ZONES.items()},
    **{f"time{zone}": f"{_TIME}{offset}" for zone, offset in _ZONES.items()},
    "duration": rf"-?P(?:\d{{1,5}}D(?:{_HOURS})?|{_HOURS}|\d{{1,4}}W)",
    **{f"uuid{n}": _UUID.replace("-x", f"-{n}") for n in range(1, 9)},
    "email": rf"[A-Za-z0-9]+(?:[._+-][A-Za-z0-9]+)*@{_HOST}",
    **dict.fromkeys(("ipv4network", "ipvanynetwork"), _NETWORK),
    **dict.fromkeys(("ipv4interface", "ipvanyinterface"), rf"{_IPV4}/(?:[12]?\d|3[0-2])"),
    "ipvanyaddress": _IPV4,
    "ipv6": _IPV6,
    "ipv6network": f"(?:{_HEX}{{1,4}}:){{4}}:/64",
    "ipv6interface": rf"{_IPV6}/(?:[1-9]?\d|1[01]\d|12[0-8])",
    **dict.fromkeys(("base64", "base64url"), "(?:[A-Za-z0-9]{4})*"),
}
# Elsewhere \d is any script's digit.
_PATTERNS = {name: f"^{one}$".replace(r"\d", "[0-9]") for name, one in _FORMATS.items()}
_NAMES = {pattern: name.partition(" ")[0] for name, pattern in _PATTERNS.items()}


class OutputSchema(GenerateJsonSchema):
    """Generates the JSON schema of an output type."""

    def generate_inner(self, schema: Any) -> JsonSchemaValue:
        """Generate the schema of one part; replace its format by a pattern."""
        made = super().generate_inner(schema)
        if schema["type"] == "decimal" and isinstance(either := made.get("anyOf"), list):
            # The other one is any text; and no exponent beyond a float's.
            return {"minimum": -(10**15), "maximum": 10**15, **either[0]}
        name, zone = made.get("format"), schema.get("tz_constraint")
        name = f"{name} {'naive' if zone == 'naive' else 'aware'}" if zone is not None else name
        if name in _PATTERNS and "pattern" not in made:
            made["pattern"] = _PATTERNS[name]
            del made["format"]
        return made

    def url_schema(self, schema: Any) -> JsonSchemaValue:
        """Generate the schema of a URL."""
        schemes = "|".join(map(re.escape, schema.get("allowed_schemes") or ("https", "http")))
        host = "" if schemes == "file" else f"(?:[a-z0-9]+@)?{_HOST}(?::[1-9][0-9]{{0,3}})?"
        return {"type": "string", "pattern": f"^(?:{schemes})://{host}{_PATH}(?:[?]{_PATH[1:]})?$"}

    multi_host_url_schema = url_schema


def shown(schema: Any) -> Any:
    """Return the schema for the prompt, with format names in place of long patterns."""
    if isinstance(schema, list):
        return [shown(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    out = {key: shown(item) for key, item in schema.items()}
    if isinstance(pattern := out.get("pattern"), str) and pattern in _NAMES:
        out["format"] = _NAMES[out.pop("pattern")]
    return out
