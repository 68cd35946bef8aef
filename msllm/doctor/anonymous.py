"""Addresses and names, replaced so that a report can be given away: the same one always by the same mask."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
from collections.abc import Iterable
from typing import Any

MASK = re.compile(r"\b(?:ip|host|user|mail|mac|table)-[0-9a-f]{10}\b")
"""What a mask looks like."""
PUBLIC_NAMES = frozenset({"", "root", "HwHiAiUser", "nobody", "localhost"})
"""Names that every machine has."""

_MAIL = r"(?P<mail>[\w.+-]+@[\w.-]+)"
_HOME = r"(?P<home>(?<=/home/)[^/\s:\"',;]+)"
_MAC = r"(?P<mac>(?<![0-9A-Fa-f:])(?:[0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}(?![0-9A-Fa-f:]))"
_IPV6 = r"(?P<ipv6>(?<![0-9A-Za-z:.])[0-9A-Fa-f]*:[0-9A-Fa-f:.]*(?:%[0-9A-Za-z_.-]+)?)"
_IPV4 = r"(?P<ipv4>(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?!\d|\.\d))"


class Anonymizer:
    """Replaces addresses by their form, and host and user names because they are known.

    Args:
        key: makes the masks. With a random one nobody can find an address by trying all; with the same one on several nodes
            their reports use the same masks.
        hosts: names of machines, in any case.
        users: names of people, as they are.
        versions: texts that look like addresses and are none, as 24.1.0.3.
    """

    def __init__(self, key: bytes, hosts: Iterable[str] = (), users: Iterable[str] = (), versions: Iterable[str] = ()):
        self._key = key
        self._versions = frozenset(versions)
        names = {"host": _without_public(hosts), "user": _without_public(users)}
        known = [f"(?P<{kind}>{_any_of(found, kind == 'host')})" for kind, found in names.items() if found]
        inner = [*known, _IPV4]
        self._inner = re.compile("|".join(inner))
        self._pattern = re.compile("|".join([_MAIL, _HOME, *known, _MAC, _IPV6, _IPV4]))

    @property
    def key_id(self) -> str:
        """Tells whether two reports were made with the same key, and nothing else."""
        return hmac.new(self._key, b"key", hashlib.sha256).hexdigest()[:10]

    def mask(self, kind: str, value: str) -> str:
        """The mask of a value: `ip-3f0a9c41d2`."""
        return f"{kind}-{hmac.new(self._key, f'{kind}:{value}'.encode(), hashlib.sha256).hexdigest()[:10]}"

    def text(self, text: str) -> str:
        """A text without addresses and names. Loopback addresses and netmasks stay: they are everybody's."""
        return self._pattern.sub(self._replace, text)

    def tree(self, value: Any) -> Any:
        """As `text`, for every text among lists and values of mappings; keys stay."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {key: self.tree(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.tree(item) for item in value]
        return value

    def _replace(self, match: re.Match[str]) -> str:
        kind, found = str(match.lastgroup), match.group()
        if kind == "ipv4":
            return found if found in self._versions or _is_everybodys(found) else self.mask("ip", found)
        if kind == "ipv6":
            address = _address(found.partition("%")[0].rstrip(":.") if not found.endswith("::") else found)
            if address is None:  # a time, a bus id, or a name or an IPv4 address beside a colon
                return self._inner.sub(self._replace, found)
            return found if address.is_loopback or address.is_unspecified else self.mask("ip", str(address))
        if kind == "home":
            return found if found in PUBLIC_NAMES else self.mask("user", found)
        if kind == "mail":
            return self.mask("mail", found.lower())
        return self.mask(kind, found.lower() if kind in ("host", "mac") else found)


def _without_public(names: Iterable[str]) -> list[str]:
    """Longest first, so that node1.cluster goes before node1. A number is the id of somebody, and no name."""
    return sorted({name for name in names if name not in PUBLIC_NAMES and not name.isdigit()}, key=len, reverse=True)


def _any_of(names: list[str], any_case: bool) -> str:
    words = "|".join(re.escape(name) for name in names)
    return rf"(?<![A-Za-z0-9]){f'(?i:{words})' if any_case else f'(?:{words})'}(?![A-Za-z0-9])"


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _is_everybodys(address: str) -> bool:
    return address.startswith(("127.", "255.")) or address == "0.0.0.0"
