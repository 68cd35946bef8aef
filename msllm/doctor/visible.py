"""Layer 8: which devices a process is shown, and what a shell has kept of an earlier launch."""

from __future__ import annotations

from msllm.doctor.devices import span
from msllm.doctor.visit import Visit

MASK = "ASCEND_RT_VISIBLE_DEVICES"
LAUNCHED = (
    "MS_ROLE", "MS_WORKER_NUM", "MS_SCHED_HOST", "MS_SCHED_PORT", "MS_NODE_ID", "RANK_ID", "RANK_SIZE", "DEVICE_ID",
    "MS_SIMULATION_LEVEL", "RANK_TABLE_FILE",
)  # fmt: skip
"""Variables that a launcher gives its processes. Left over in a shell, they make one process wait for others."""
LEFT_OVER = tuple(name for name in LAUNCHED if name not in ("RANK_TABLE_FILE", "DEVICE_ID"))


def look_at_masks(visit: Visit) -> bool:
    """ASCEND_RT_VISIBLE_DEVICES against the devices and the rank table; and variables of a job that has ended."""
    _left_over(visit)
    text = visit.host.environment.get(MASK)
    devices = visit.facts.devices
    if not devices:
        if text is None and not visit.findings:
            return False
        if text is not None:
            visit.say(f"{MASK}={text} is set, and means nothing without an NPU")
        return True
    chosen = devices
    if text is not None:
        found = read_mask(visit, text)
        if found is None:
            return True
        chosen = found
        visit.say(f"{MASK} shows devices {','.join(map(str, chosen))} as 0 to {len(chosen) - 1}")
    else:
        visit.say(f"{MASK} is not set: a process sees all {len(devices)} devices")
    _against_table(visit, chosen, text is not None)
    return True


def read_mask(visit: Visit, text: str) -> list[int] | None:
    """The devices of a mask, in its order; None where it is faulty, with the faults noted."""
    devices = visit.facts.devices
    why = "the runtime reads the list up to the first entry that it does not understand, and shows no device after it"
    mend = f"export {MASK}={','.join(map(str, devices))}   (or unset {MASK})"
    words = [word.strip() for word in text.split(",")]
    if not text.strip():
        visit.error("masks.syntax", f"{MASK} is set to nothing", "an empty list shows no device at all", mend)
        return None
    wrong = [word for word in words if not (word.isascii() and word.isdigit())]
    if wrong:
        visit.error(
            "masks.syntax", f"{MASK}={text}: {wrong[0]!r} is no number; expected a list such as 0,1,2,3", why, mend
        )
        return None
    numbers = [int(word) for word in words]
    absent = [number for number in numbers if number not in devices]
    twice = sorted({number for number in numbers if numbers.count(number) > 1})
    if absent:
        visit.error(
            "masks.absent",
            f"{MASK}={text} names device {span(sorted(set(absent)))}; there is /dev/davinci{span(devices)}",
            why,
            mend,
        )
    if twice:
        visit.error(
            "masks.twice", f"{MASK}={text} names device {span(twice)} twice", "two ranks would get one device", mend
        )
    return None if absent or twice else numbers


def _against_table(visit: Visit, chosen: list[int], masked: bool) -> None:
    """A process counts the visible devices from 0; the table has physical ids. Both must mean the same, in order."""
    table = visit.facts.rank_table_devices
    if not table or chosen == table:
        return
    order = ",".join(map(str, table))
    if sorted(chosen) == sorted(table):
        seen = f"the rank table has this server's devices in the order {order}, {MASK} in the order "
        visit.error(
            "masks.rank_table", seen + ",".join(map(str, chosen)), "a rank would use the address of another one's device",
            f"export {MASK}={order}",
        )  # fmt: skip
        return
    shown = f"{MASK} shows" if masked else "this server shows"
    absent = sorted(set(table) - set(chosen))
    report = visit.error if masked or absent else visit.warning
    report(
        "masks.rank_table",
        f"the rank table has devices {span(sorted(table))} of this server; {shown} {span(sorted(chosen))}",
        "the job has ranks without a device, or takes other devices than the table says: EE1001, EI0004 or a hang",
        f"export {MASK}={order}" if not absent or set(absent) <= set(visit.facts.devices)
        else f"msllm ranktable generate --visible-devices {','.join(map(str, chosen))} -o rank_table.json",
    )  # fmt: skip


def _left_over(visit: Visit) -> None:
    """One process that believes to be one of many waits for the others, without a word."""
    kept = [f"{name}={visit.host.environment[name]}" for name in LEFT_OVER if visit.host.environment.get(name)]
    if kept:
        visit.warning(
            "masks.left_over",
            f"this shell holds {' '.join(kept)}",
            "a launcher gives these to its processes; in a shell they make one process wait for others, or pretend a device",
            f"unset {' '.join(word.partition('=')[0] for word in kept)}",
        )
