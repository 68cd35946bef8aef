"""A rank table as a picture: in the terminal, as SVG, as an HTML page. Pure text in, text out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import Any

from rank_tables.layout import Crossing, Strategy
from rank_tables.table import Device, RankTable, Server

CARD_WIDTH, CARD_HEIGHT, GAP = 58, 46, 6
CARDS_A_ROW = 8
SERVERS_A_ROW = 2
TITLE = 20
COLOURS = ("#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#edc948", "#76b7b2", "#ff9da7", "#9c755f")
"""One for each pipeline stage, and again from the first where there are more."""


@dataclass(frozen=True)
class Picture:
    """What is drawn."""

    name: str
    """Title: the file's name."""
    table: RankTable
    strategy: Strategy | None = None
    crossings: Sequence[Crossing] = ()

    def coordinate(self, rank: int) -> str | None:
        """`stage.data.tensor` of a rank; None without a strategy."""
        if self.strategy is None:
            return None
        place = self.strategy.coordinates[rank]
        return f"{place.stage}.{place.data}.{place.tensor}"

    def groups(self) -> list[tuple[str | None, list[Server]]]:
        """Servers by super pod or cluster, each with its title; one group without a title where there is none."""
        what = "super pod" if self.table.super_pods else "cluster"
        found: dict[str | None, list[Server]] = {}
        for server in self.table.servers:
            found.setdefault(self.table.group_of(server.server_id), []).append(server)
        return [(None if name is None else f"{what} {name}", servers) for name, servers in found.items()]

    def headline(self) -> str:
        """The size of it in one line."""
        servers = len(self.table.servers)
        each = len(self.table.servers[0].devices)
        word = "server" if servers == 1 else "servers"
        return f"{self.name}: version {self.table.version}, {servers} {word} x {each} devices = {self.table.size} ranks"

    def links(self) -> list[str]:
        """Which wires join what, as far as a table says."""
        lines = ["inside a server: the cards' own links (HCCS; PCIe between the halves of a 910A server)"]
        if self.table.super_pods:
            lines.append("inside a super pod: HCCS between servers, by super_device_id")
        if len(self.table.super_pods) > 1:
            lines.append("between super pods: RoCE, card to card over device_ip")
        elif len(self.table.servers) > 1 and not self.table.super_pods:
            lines.append("between servers: RoCE, card to card over device_ip")
        if self.table.clusters:
            lines.append("between clusters: over dpu_ip")
        return lines

    def to_dict(self) -> dict[str, Any]:
        """For --json: every rank with its place, and the crossing groups."""
        ranks: list[dict[str, Any]] = []
        for server, device in self.table.places():
            row: dict[str, Any] = {"rank": device.rank_id, "server_id": server.server_id, "device_id": device.device_id}
            row |= {"device_ip": device.device_ip, "group": self.table.group_of(server.server_id)}
            if self.strategy is not None:
                row |= asdict(self.strategy.coordinates[device.rank_id])
            ranks.append(row)
        shown = {"version": self.table.version, "servers": len(self.table.servers), "ranks": ranks}
        return shown if self.strategy is None else {**shown, "crossings": [asdict(found) for found in self.crossings]}


def terminal(picture: Picture, width: int) -> str:
    """Rows of cards, server by server, in so many columns where a single card fits."""
    lines = [picture.headline(), *(f"  {link}" for link in picture.links())]
    if picture.strategy is not None:
        degrees = picture.strategy
        lines.append(f"  pp.dp.tp: place of a rank in pipeline_stage {degrees.stages} x data_parallel {degrees.data} x "
                     f"model_parallel {degrees.tensor}")  # fmt: skip
    for title, servers in picture.groups():
        lines.append("")
        if title is not None:
            lines.append(title)
        for server in servers:
            lines.append(f"server {server.server_id}")
            lines += _rows(picture, server, width)
    return "\n".join(lines)


def _rows(picture: Picture, server: Server, columns_free: int) -> list[str]:
    columns = [_column(picture, device) for device in server.devices]
    width = max(len(cell) for column in columns for cell in column) + 2
    labels = ("device", "rank", "address", "pp.dp.tp")
    per_line = next((count for count in (8, 4, 2) if 10 + count * width <= columns_free), 1)
    lines = []
    for start in range(0, len(columns), per_line):
        part = columns[start : start + per_line]
        lines += [f"  {labels[row]:<8}" + "".join(f"{c[row]:>{width}}" for c in part) for row in range(len(part[0]))]
    return lines


def _column(picture: Picture, device: Device) -> list[str]:
    place = picture.coordinate(device.rank_id)
    return [str(device.device_id), str(device.rank_id), device.device_ip or "-", *([] if place is None else [place])]


def svg(picture: Picture) -> str:
    """Servers as boxes of cards under a bar for the network; colours are pipeline stages, red borders crossing groups."""
    crossing = {rank for found in picture.crossings for rank in found.ranks}
    rows_of_cards = max(-(-len(server.devices) // CARDS_A_ROW) for server in picture.table.servers)
    box_width = CARDS_A_ROW * (CARD_WIDTH + GAP) + GAP
    box_height = TITLE + rows_of_cards * (CARD_HEIGHT + GAP) + 2 * GAP
    width = SERVERS_A_ROW * (box_width + 4 * GAP) + 4 * GAP
    parts, top = [], 2 * TITLE
    several = len(picture.table.servers) > 1
    if several:
        parts.append(f'<rect class="switch" x="{2 * GAP}" y="{top}" width="{width - 4 * GAP}" height="14"/>')
        pods = len(picture.table.super_pods)
        wire = (
            "RoCE"
            if not pods
            else "HCCS of the super pod"
            if pods == 1
            else "HCCS inside a super pod, RoCE between them"
        )
        parts.append(_text(width / 2, top + 11, wire, "middle"))
        top += 14 + 2 * GAP
    bar = top - 2 * GAP
    for title, servers in picture.groups():
        rows = -(-len(servers) // SERVERS_A_ROW)
        head = TITLE if title is not None else 0
        if title is not None:
            height = rows * (box_height + 2 * GAP) + TITLE + GAP
            parts.append(f'<rect class="group" x="{2 * GAP}" y="{top}" width="{width - 4 * GAP}" height="{height}"/>')
            parts.append(_text(4 * GAP, top + 15, title))
        for position, server in enumerate(servers):
            x = 4 * GAP + position % SERVERS_A_ROW * (box_width + 4 * GAP)
            y = top + head + position // SERVERS_A_ROW * (box_height + 2 * GAP)
            if several:
                side = x - GAP
                parts.append(f'<path class="link" d="M{side} {bar} V{y + 10} H{x}"/>')
            parts += _server_box(picture, server, (x, y, box_width, box_height), crossing)
        top += head + rows * (box_height + 2 * GAP) + 2 * GAP
    legend = _legend(picture, top)
    height = top + TITLE * (1 + len(legend))
    title_text = _text(2 * GAP, TITLE, picture.headline(), "start", "title")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="sans-serif" font-size="11">\n<style>{_STYLE}</style>\n'
        + "\n".join([title_text, *parts, *legend])
        + "\n</svg>\n"
    )


_STYLE = (
    ".title{font-size:15px;font-weight:bold}.switch{fill:#ddd;stroke:#888}.link{fill:none;stroke:#888}"
    ".group{fill:none;stroke:#aaa;stroke-dasharray:4 3}.server{fill:#f7f7f7;stroke:#555}.bus{stroke:#555;stroke-width:2}"
    ".card{stroke:#333}.crossing{stroke:#d00;stroke-width:3}"
)


def _server_box(picture: Picture, server: Server, box: tuple[int, int, int, int], crossing: set[int]) -> list[str]:
    x, y, width, height = box
    parts = [f'<rect class="server" x="{x}" y="{y}" width="{width}" height="{height}" rx="4"/>']
    parts.append(_text(x + GAP, y + 14, f"server {server.server_id}"))
    for position, device in enumerate(server.devices):
        left = x + GAP + position % CARDS_A_ROW * (CARD_WIDTH + GAP)
        card_top = y + TITLE + position // CARDS_A_ROW * (CARD_HEIGHT + GAP)
        parts += _card(picture, server, device, (left, card_top), device.rank_id in crossing)
    bus = y + height - GAP - 2
    parts.append(f'<line class="bus" x1="{x + GAP}" y1="{bus}" x2="{x + width - GAP}" y2="{bus}"/>')
    return parts


def _card(picture: Picture, server: Server, device: Device, corner: tuple[int, int], crosses: bool) -> list[str]:
    left, top = corner
    stage = picture.strategy.coordinates[device.rank_id].stage if picture.strategy else 0
    colour = COLOURS[stage % len(COLOURS)]
    marks = "card crossing" if crosses else "card"
    facts = [f"server {server.server_id}", *(f"{key} {value}" for key, value in device.to_dict().items() if value)]
    place = picture.coordinate(device.rank_id)
    lines = [f"rank {device.rank_id}", f"device {device.device_id}", *([] if place is None else [place])]
    texts = [_text(left + CARD_WIDTH / 2, top + 13 + 14 * row, line, "middle") for row, line in enumerate(lines)]
    return [
        f"<g><title>{escape(chr(10).join(facts))}</title>",
        f'<rect class="{marks}" x="{left}" y="{top}" width="{CARD_WIDTH}" height="{CARD_HEIGHT}" rx="3" '
        f'fill="{colour}" fill-opacity="0.45"/>',
        *texts,
        "</g>",
    ]


def _legend(picture: Picture, top: int) -> list[str]:
    lines = picture.links()
    if picture.strategy is not None:
        lines.append(
            "third line of a card: pipeline stage . data-parallel . tensor-parallel place; colour: pipeline stage"
        )
    if picture.crossings:
        lines.append(f"red border: one of {len(picture.crossings)} tensor-parallel groups that leave their server")
    return [_text(2 * GAP, top + TITLE * (row + 1) - GAP, line) for row, line in enumerate(lines)]


def _text(x: float, y: float, text: str, anchor: str = "start", kind: str = "") -> str:
    style = f' class="{kind}"' if kind else ""
    return f'<text{style} x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(text)}</text>'


def html(picture: Picture, remarks: Sequence[str]) -> str:
    """A page of its own: the picture, the remarks, and a table of all ranks."""
    heads = ["rank", "server", "device", "device_ip", *(["pp.dp.tp"] if picture.strategy else [])]
    rows = []
    for server, device in picture.table.places():
        place = picture.coordinate(device.rank_id)
        cells = [
            device.rank_id,
            server.server_id,
            device.device_id,
            device.device_ip,
            *([] if place is None else [place]),
        ]
        rows.append("<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in cells) + "</tr>")
    notes = "".join(f"<li>{escape(remark)}</li>" for remark in remarks)
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(picture.name)}</title>\n'
        "<style>body{font-family:sans-serif}td,th{padding:1px 10px;text-align:left}</style></head><body>\n"
        f"{svg(picture)}<ul>{notes}</ul>\n<table><tr>{''.join(f'<th>{head}</th>' for head in heads)}</tr>\n"
        + "\n".join(rows)
        + "\n</table></body></html>\n"
    )
