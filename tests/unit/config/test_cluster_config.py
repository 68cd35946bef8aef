"""The YAML of a cluster, and what a run asks of one."""

from __future__ import annotations

from pathlib import Path

import pytest
from valid_sections import loaded, sections

from msllm.config.cluster import cluster_problems, load_cluster
from msllm.errors import InputError

ROOT = Path(__file__).parents[3]


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """Load a cluster from the text of its file, c.yaml."""
    monkeypatch.chdir(tmp_path)

    def load(text: str):
        Path("c.yaml").write_text(text)
        return load_cluster(Path("c.yaml"))

    return load


def test_the_shipped_example_loads_and_comments_every_value():
    path = ROOT / "clusters/910b_128_servers.yaml"
    found = load_cluster(path).cluster
    assert (found.devices, found.hbm_gb, found.inside.name, found.between.name) == (1024, 64, "HCCS", "RoCE")
    for line in path.read_text().splitlines():
        assert ":" not in line or line.endswith(":") or "#" in line, line


def test_what_is_left_out_is_the_chips_usual_server(cluster):
    found = cluster("cluster: {servers: 2, chip: 910C}").cluster
    assert (found.devices_per_server, found.hbm_gb, found.devices) == (16, 64, 32)


def test_measured_rates_replace_the_published_ones(cluster):
    found = cluster("cluster: {servers: 2, chip: 910B, links: {inside: 150, between: 20.5}}").cluster
    assert (found.inside.bandwidth(2), found.inside.name, found.between.bandwidth(8)) == (150, "HCCS", 20.5)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cluster:\n", ["c.yaml: holds no cluster: section; it needs servers and chip"]),
        (
            "cluster:\n  servers: 0\n  chips: 910B\n",
            [
                "c.yaml:2: cluster.servers (0) must be greater than 0",
                "c.yaml:1: cluster.chip is required: Name of the chip, as 910B.",
                "c.yaml:3: unknown key chips in cluster; did you mean chip?",
            ],
        ),
        ("cluster: 8", ["c.yaml:1: cluster must be a mapping of keys, not 8"]),
        (
            "cluster: {servers: 1, chip: 910B}\nmodel: {}\n",
            ["c.yaml:2: unknown section model; a file given with --cluster holds cluster: only"],
        ),
        ("cluster: {servers: 1, chip: 910b}", ["chip ('910b') is not one of a cluster; did you mean 910B? (c.yaml:1)"]),
        (
            "cluster: {servers: 1, chip: CPU}",
            ["chip ('CPU') is not one of a cluster; legal: 910A, 910B, 910C (c.yaml:1)"],
        ),
        (
            "cluster:\n  servers: 1\n  chip: 910B\n  hbm_gb: 40\n  devices_per_server: 16\n",
            [
                "hbm_gb (40) is no variant of chip (910B), which has 64, 32; set hbm_gb to one of them (c.yaml:4, c.yaml:3)",
                (
                    "devices_per_server (16) must be at most 8, what a server of chip (910B) has; "
                    "set devices_per_server to 8 or less (c.yaml:5, c.yaml:3)"
                ),
            ],
        ),
    ],
)
def test_all_faults_of_the_file_come_at_once(cluster, text, expected):
    with pytest.raises(InputError) as raised:
        cluster(text)
    assert str(raised.value).splitlines() == expected


A = "cluster: {servers: 2, chip: 910A}"
B = "cluster: {servers: 2, chip: 910B}"
BF16 = {"amp_level": "O2", "compute_dtype": "bfloat16"}


@pytest.mark.parametrize(
    ("text", "training", "devices", "expected"),
    [
        (B, BF16, 16, []),
        (B, {"chip": "910B"}, None, []),
        (
            B,
            {},
            17,
            [
                "--devices (17) must be at most 16, servers (2) x devices_per_server (8); set --devices to 16 or less (c.yaml:1)"
            ],
        ),
        (
            B,
            {"device_target": "CPU"},
            None,
            ["device_target (CPU) is not what a cluster of 910B has; set device_target to Ascend or auto (c.yaml:1)"],
        ),
        (
            B,
            {"chip": "910A", "device_target": "Ascend"},
            None,
            ["chip (910A) differs from the cluster's (910B); set training.chip to null (c.yaml:1)"],
        ),
        (
            A,
            BF16,
            None,
            [
                "compute_dtype (bfloat16) is not supported by 910A, only by 910B, 910C; set compute_dtype to float16 with "
                "loss_scale, or to float32 with amp_level O0 (c.yaml:1)"
            ],
        ),
    ],
)
def test_a_run_is_held_against_the_cluster(cluster, text, training, devices, expected):
    run = loaded(training=training)
    found = cluster_problems(sections(training=training), run.origins, cluster(text), devices)
    assert [str(problem) for problem in found] == expected
