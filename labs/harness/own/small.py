"""A folder of a few lines a file: what stands on a small computer at home."""

from __future__ import annotations

_FILES = {
    "backup.log": """\
2026-02-07 03:00:01 start rsync /home -> /mnt/usb/home
2026-02-07 03:04:40 done, 1843 files, 212 MB
2026-02-08 03:00:01 start rsync /home -> /mnt/usb/home
2026-02-08 03:05:12 done, 1851 files, 214 MB
2026-02-09 03:00:02 start rsync /home -> /mnt/usb/home
2026-02-09 03:00:09 FATAL /mnt/usb is not mounted, nothing copied
2026-02-10 03:00:01 start rsync /home -> /mnt/usb/home
2026-02-10 03:07:55 done, 1902 files, 240 MB
""",
    "wifi.conf": """\
country=NL
update_config=1

network={
    ssid="Zolderkamer"
    key_mgmt=WPA-PSK
    priority=10
}
network={
    ssid="Tuinhuis-2G"
    key_mgmt=WPA-PSK
    priority=3
}
""",
    "thermostat.ini": """\
[sensor]
pin = 17
interval_seconds = 45

[heating]
day_temperature = 20.5
night_temperature = 16
summer_off = 05-15

[mqtt]
broker = 192.168.178.40
port = 1884
topic = house/attic
""",
    "todo.txt": """\
- replace the SD card (the old one has 3 bad blocks)
- buy a case with a fan
- ask Maarten about the antenna
- move pihole to the new box
""",
    "readme.md": """\
# Attic pi

The board is a Raspberry Pi 3B+. It lives behind the boiler.
The thermostat script was written by Joke in 2024 and runs from cron every five minutes.
If the heating does not start, check the relay on pin 17 first.
""",
}


def pi() -> dict[str, bytes]:
    """Five files, none longer than fourteen lines."""
    return {path: text.encode() for path, text in _FILES.items()}
