"""A cluster's YAML: how many servers of which chip, rates of its links where they were measured; rules between it and a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from msllm.config.checks import device
from msllm.config.framework_checks import layout, needs_ascend
from msllm.config.messages import explain, nearest
from msllm.config.origin import Fault, Origin, Origins
from msllm.config.sections import ParallelConfig, PositiveFloat, PositiveInt, Section, TrainingConfig
from msllm.config.yaml_text import KeyPath, read_yaml_file, show_key
from msllm.errors import InputError, Problem
from msllm.hardware.cluster import Cluster
from msllm.hardware.links import Link
from msllm.hardware.servers import SERVERS


class LinksConfig(Section):
    """Rates that were measured on the cluster, instead of the published ones."""

    inside: PositiveFloat | None = None
    """GB/s that a device sends to the others of its server; null: as published for the chip's server."""
    between: PositiveFloat | None = None
    """GB/s that a device sends to other servers; null: as published."""


class ClusterConfig(Section):
    """Servers of one kind."""

    servers: PositiveInt
    """Machines."""
    devices_per_server: PositiveInt | None = None
    """Devices of each that a job may use; null: all of the chip's usual server."""
    chip: str
    """Name of the chip, as 910B."""
    hbm_gb: PositiveInt | None = None
    """GB of memory of a device; null: the chip's usual variant."""
    links: LinksConfig = LinksConfig()
    """Measured rates."""

    def resolve(self) -> Cluster:
        """The cluster with what was left out taken from the chip's usual server."""
        server = SERVERS[self.chip]
        inside, between = server.inside, server.between
        if self.links.inside is not None:
            inside = Link(inside.name, self.links.inside, False, "measured")
        if self.links.between is not None:
            between = Link(between.name, self.links.between, False, "measured")
        return Cluster(
            servers=self.servers,
            devices_per_server=self.devices_per_server or server.devices,
            chip=self.chip,
            hbm_gb=self.hbm_gb or server.hbm_gb[0],
            inside=inside,
            between=between,
        )


@dataclass(frozen=True)
class LoadedCluster:
    """A cluster and where its file says what."""

    cluster: Cluster
    origins: Origins


def load_cluster(path: Path) -> LoadedCluster:
    """Read a YAML with a `cluster:` section.

    Raises:
        InputError: with every fault of the file.
    """
    problems: list[Problem] = []
    tree = read_yaml_file(path, problems)
    if tree is None:
        raise InputError(problems)
    for section in (name for name in tree.values if name != "cluster"):
        message = f"unknown section {show_key(section)}; a file given with --cluster holds cluster: only"
        problems.append(Problem(message, path, tree.lines.get((section,))))
    places: dict[KeyPath, Origin] = {key: Origin(str(path), line) for key, line in tree.lines.items()}
    origins = Origins(places)
    config = _validated(tree.values.get("cluster"), origins, path, problems)
    if config is not None:
        problems += origins.locate(_faults(config))
    if problems or config is None:
        raise InputError(problems)
    return LoadedCluster(config.resolve(), origins)


def cluster_problems(
    sections: Mapping[str, Section], origins: Origins, loaded: LoadedCluster, devices: int | None
) -> list[Problem]:
    """What a run (name -> valid section, and their origins) and a wish for `devices` ask of a cluster that it cannot do."""
    cluster, problems = loaded.cluster, []
    if devices is not None and devices > cluster.devices:
        message = f"--devices ({devices}) must be at most {cluster.devices}, servers ({cluster.servers}) x devices_per_server "
        message += f"({cluster.devices_per_server}); set --devices to {cluster.devices} or less"
        problems += loaded.origins.locate([Fault(message, ("cluster.servers", "cluster.devices_per_server"))])
    training = sections.get("training")
    if not isinstance(training, TrainingConfig):
        return problems
    both = Origins({**origins.given, **loaded.origins.given})
    if training.device_target == "CPU":
        message = (
            f"device_target (CPU) is not what a cluster of {cluster.chip} has; set device_target to Ascend or auto"
        )
        problems += both.locate([Fault(message, ("training.device_target", "cluster.chip"))])
    elif training.chip not in (None, cluster.chip):
        message = f"chip ({training.chip}) differs from the cluster's ({cluster.chip}); set training.chip to null"
        problems += both.locate([Fault(message, ("training.chip", "cluster.chip"))])
    elif training.chip is None:
        # What training.chip would have said is said by the cluster, so its rules are told with the cluster's line.
        placed = Origins({**origins.given, ("training", "chip"): loaded.origins.of(("cluster", "chip"))})
        problems += placed.locate(device(training.model_copy(update={"chip": cluster.chip})))
    parallel = sections.get("parallel_config")
    if isinstance(parallel, ParallelConfig) and not needs_ascend(training, parallel):
        problems += origins.locate(layout(parallel))
    return problems


def _validated(values: object, origins: Origins, path: Path, problems: list[Problem]) -> ClusterConfig | None:
    if values is None:
        problems.append(Problem("holds no cluster: section; it needs servers and chip", path))
        return None
    try:
        return ClusterConfig.model_validate(values)
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            key_path = ("cluster", *(str(part) for part in detail["loc"]))
            message = explain(detail, "cluster", ClusterConfig, {"cluster": ClusterConfig})
            problems.append(origins.problem(message, key_path))
    return None


def _faults(config: ClusterConfig) -> Iterator[Fault]:
    if config.chip not in SERVERS:
        yield Fault(
            f"chip ({config.chip!r}) is not one of a cluster; {nearest(config.chip, SERVERS)}", ("cluster.chip",)
        )
        return
    server = SERVERS[config.chip]
    if config.hbm_gb is not None and config.hbm_gb not in server.hbm_gb:
        legal = ", ".join(map(str, server.hbm_gb))
        yield Fault(
            f"hbm_gb ({config.hbm_gb}) is no variant of chip ({config.chip}), which has {legal}; set hbm_gb to one of them",
            ("cluster.hbm_gb", "cluster.chip"),
        )
    if config.devices_per_server is not None and config.devices_per_server > server.devices:
        yield Fault(
            f"devices_per_server ({config.devices_per_server}) must be at most {server.devices}, what a server of chip "
            f"({config.chip}) has; set devices_per_server to {server.devices} or less",
            ("cluster.devices_per_server", "cluster.chip"),
        )
