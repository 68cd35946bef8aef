"""Addresses and names, replaced so that a report can be given away: the same one always by the same mask."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
from collections.abc import Callable, Iterable
from typing import Any

MASK = re.compile(r"\b(?:ip|host|user|mail|mac|table)-[0-9a-f]{10}\b")
"""What a mask looks like."""
PUBLIC_NAMES = frozenset({"", "root", "HwHiAiUser", "nobody", "localhost"})
"""Names that every machine has."""

_MAIL = re.compile(r"[\w.+-]+@[\w.-]+")
_HOME = re.compile(r"(?<=/home/)[^/\s:\"',;]+")
_MAC = re.compile(r"(?<![0-9A-Fa-f:])(?:[0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}(?![0-9A-Fa-f:])")
# A group that is glued to a word before or after it is none.
_COLONS = re.compile(
    r"(?P<word>[0-9A-Za-z])?(?P<run>(?:(?<![0-9A-Za-z])[0-9A-Fa-f]+)?:(?:[0-9A-Fa-f.]*:)*(?:[0-9A-Fa-f.]+(?![0-9A-Za-z]))?)"
    r"(?P<zone>%[0-9A-Za-z_.-]+)?"
)
# More than four numbers are an address with a number behind it, as in the name of a log, unless they are a known version.
_IPV4 = re.compile(r"(?<![\d.])\d{1,3}(?:\.\d{1,3}){3,}(?!\d)")

Replace = Callable[[re.Match[str]], "str | None"]
"""What a match becomes; None: nothing to hide."""


class Anonymizer:
    """Replaces addresses by their form, and host and user names because they are known.

    Args:
        key: makes the masks. With a random one nobody can find an address by trying all; with the same one on several nodes
            their reports use the same masks.
        hosts: names of machines, in any case.
        users: names of people, as they are.
        versions: texts that look like addresses and are none, as 24.1.0.3 and 7.9.0.1.205.
    """

    def __init__(self, key: bytes, hosts: Iterable[str] = (), users: Iterable[str] = (), versions: Iterable[str] = ()):
        self._key = key
        self._versions = frozenset(versions)
        stages: list[tuple[re.Pattern[str] | None, Replace]] = [
            (_MAIL, lambda match: self.mask("mail", match.group().lower())),
            (_HOME, lambda match: None if match.group() in PUBLIC_NAMES else self.mask("user", match.group())),
            (_any_of(hosts, re.IGNORECASE), lambda match: self.mask("host", match.group().lower())),
            (_any_of(users), lambda match: self.mask("user", match.group())),
            (_MAC, lambda match: self.mask("mac", match.group().lower())),
            (_COLONS, self._colons),
            (_IPV4, self._ipv4),
        ]
        self._stages = [(pattern, replace) for pattern, replace in stages if pattern is not None]

    @property
    def key_id(self) -> str:
        """Tells whether two reports were made with the same key, and nothing else."""
        return hmac.new(self._key, b"key", hashlib.sha256).hexdigest()[:10]

    def mask(self, kind: str, value: str) -> str:
        """The mask of a value: `ip-3f0a9c41d2`."""
        return f"{kind}-{hmac.new(self._key, f'{kind}:{value}'.encode(), hashlib.sha256).hexdigest()[:10]}"

    def text(self, text: str) -> str:
        """A text without addresses and names. Loopback addresses and netmasks stay: they are everybody's."""
        # Odd parts are masks: a later stage does not look into them.
        parts = [text.encode("utf-8", "replace").decode()]
        for pattern, replace in self._stages:
            parts = [
                part
                for i, given in enumerate(parts)
                for part in ([given] if i % 2 else _replaced(given, pattern, replace))
            ]
        return "".join(parts)

    def tree(self, value: Any) -> Any:
        """As `text`, for every text among lists and values of mappings; keys stay."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {key: self.tree(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.tree(item) for item in value]
        return value

    def _ipv4(self, match: re.Match[str]) -> str | None:
        found = match.group()
        everybodys = found.startswith(("127.", "255.")) or found == "0.0.0.0"
        return None if everybodys or found in self._versions else self.mask("ip", found)

    def _colons(self, match: re.Match[str]) -> str | None:
        """A run of hexadecimal figures and colons: an address, perhaps with a colon before and after it; a time; a bus id."""
        run, zone, word = match["run"], match["zone"] or "", match["word"] or ""
        if word and re.fullmatch(r"::[0-9A-Fa-f]*", run):
            return None  # C++: std::add
        head = ":" if run.startswith(":") and (not run.startswith("::") or run.startswith(":::")) else ""
        body = run[len(head) :]
        kept = body.rstrip(".")
        kept = kept.rstrip(":") + ("::" if kept.endswith("::") else "")
        tail = body[len(kept) :]
        address = _address(kept)
        if address is not None and (address.is_loopback or address.is_unspecified):
            return None
        # Too many groups for one: an address with a port, or with a word of hexadecimal letters before it.
        if address is None and kept.count(":") < 5 and ("::" not in kept or not kept.strip(":.")):
            return None
        return f"{word}{head}{self.mask('ip', str(address or kept.lower()))}{tail if not zone else ''}"


def _replaced(text: str, pattern: re.Pattern[str], replace: Replace) -> list[str]:
    """Text, mask, text, mask, ..., text."""
    parts, start = [], 0
    for match in pattern.finditer(text):
        mask = replace(match)
        if mask is not None:
            parts += [text[start : match.start()], mask]
            start = match.end()
    return [*parts, text[start:]]


def _any_of(names: Iterable[str], flags: int = 0) -> re.Pattern[str] | None:
    """Longest first, so that node1.cluster goes before node1. A number is the id of somebody, and no name."""
    known = sorted({name for name in names if name not in PUBLIC_NAMES and not name.isdigit()}, key=len, reverse=True)
    words = "|".join(re.escape(name) for name in known)
    return re.compile(rf"(?<![A-Za-z0-9])(?:{words})(?![A-Za-z0-9])", flags) if known else None


def _address(text: str) -> ipaddress.IPv6Address | None:
    try:
        return ipaddress.IPv6Address(text)
    except ValueError:
        return None
