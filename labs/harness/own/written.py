"""Folders whose texts come from a file next to this one; long content is generated here."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path

_HEAD = "==== "
_SERVICES = (
    "acpi avahi brltty cups dbus exim fetchd gdm hald irqd kdm lxd mdadm nfsd oidentd proxyd "
    "quagga rpcd sshd tftpd uucpd vdr www xrdp ypbind zabbix"
)


def _texts(name: str) -> dict[str, str]:
    """Read the files of ``NAME.txt``: each begins with a line of its path."""
    found: dict[str, list[str]] = {}
    path = ""
    for line in Path(__file__).with_name(f"{name}.txt").read_text("utf-8").splitlines(True):
        if line.startswith(_HEAD):
            path = line[len(_HEAD) :].strip()
            found[path] = []
        else:
            found[path].append(line)
    return {path: "".join(lines) for path, lines in found.items()}


def _bytes(files: Mapping[str, str]) -> dict[str, bytes]:
    return {path: text.encode() for path, text in files.items()}


def pi() -> dict[str, bytes]:
    """Build a small computer at home: five files, none longer than fourteen lines."""
    return _bytes(_texts("pi"))


def host() -> dict[str, bytes]:
    """Build a folder like /etc of a mail and file server; `services` is the long one."""
    rng = random.Random(51)
    services, port = ["# name  port/protocol"], 7
    for name in _SERVICES.split():
        for kind in ("", "-tls", "-admin", "-data"):
            port += rng.randrange(3, 60)
            services.append(f"{name + kind:<16} {port}/{rng.choice(('tcp', 'tcp', 'udp'))}")
    return _bytes(_texts("host") | {"services": "\n".join(services) + "\n"})


def kanban() -> dict[str, bytes]:
    """Build a small project with a long, ignored bundle and dependencies."""
    bundle = [f"var m{n}=function(t){{return t*{n}+port8750}};" for n in range(900)]
    files = _texts("kanban") | {"dist/board.js": "\n".join(bundle) + "\n// TODO generated\n"}
    for name in ("esbuild", "typescript", "ws", "csstype", "tslib"):
        text = f'{{"name": "{name}", "version": "1.2.{len(name)}", "port": 9229}}\n'
        files[f"node_modules/{name}/package.json"] = text
        files[f"node_modules/{name}/index.js"] = "// TODO upstream\nmodule.exports = {};\n" * 60
    return _bytes(files)


def werkstatt() -> dict[str, bytes]:
    """Build a workshop's notes, settings and a log, in German."""
    calm = ("Kompressor: Druck {n} bar", "Tor geöffnet, Karte {n}", "Heizung: Vorlauf {n} Grad")
    odd = {
        188: "SCHWERWIEGEND Sicherung: Zielplatte /mnt/platte2 ist voll, Abbruch nach 412 Dateien",
        301: "WARNUNG Kompressor: Öltemperatur 97 Grad",
    }
    return _bytes(_texts("werkstatt") | {"protokoll.log": _log(71, calm, odd)})


def clinica() -> dict[str, bytes]:
    """Build a clinic's notes, settings and a log, in Spanish."""
    calm = ("agenda: cita {n} confirmada", "laboratorio: resultado {n} recibido")
    odd = {
        97: "GRAVE laboratorio: lab.example.org rechaza la conexión, 14 resultados en espera",
        260: "AVISO impresora: cinta casi agotada",
    }
    calm += ("impresora: etiqueta {n}", "agenda: cita {n} anulada por el paciente")
    return _bytes(_texts("clinica") | {"registro.log": _log(72, calm, odd)})


def shipu() -> dict[str, bytes]:
    """Build a kitchen's notes, settings and a log, in Chinese."""
    calm = ("热水器:水温 {n} 度", "订单:第 {n} 号已出餐", "备份:复制了 {n} 个文件")
    odd = {
        144: "严重 备份:目录 /data/beifen 不可写,跳过 37 个文件",
        233: "警告 冷库:温度升到 -9 度",
    }
    return _bytes(_texts("shipu") | {"日志.log": _log(73, calm, odd)})


def _log(seed: int, calm: Sequence[str], odd: Mapping[int, str]) -> str:
    rng = random.Random(seed)
    lines = []
    for place in range(360):
        clock = f"2026-02-{1 + place // 15:02} {6 + place % 15:02}:{rng.randrange(60):02}"
        lines.append(f"{clock} {odd.get(place, rng.choice(calm).format(n=rng.randrange(20, 95)))}")
    return "\n".join(lines) + "\n"
