"""The editor's files agree with the project: paths, schema, the environment of a rank, the code of the docs."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import tiny_runs

from msllm.launch.plan import Job
from msllm.testing.ranks import free_port, kill_tree

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".vscode"
FILES = ("extensions.json", "launch.json", "settings.json", "tasks.json")


def read(name: str) -> dict[str, Any]:
    return json.loads((FOLDER / name).read_text())


def configurations() -> dict[str, dict[str, Any]]:
    return {configuration["name"]: configuration for configuration in read("launch.json")["configurations"]}


def here(text: str) -> str:
    return text.replace("${workspaceFolder}", str(ROOT))


@pytest.mark.parametrize("name", FILES)
def test_the_files_are_plain_json(name: str):
    assert read(name)


def test_what_the_configurations_name_is_there():
    known = {entry["id"] for entry in read("launch.json")["inputs"]}
    for configuration in configurations().values():
        for text in [configuration.get("program", ""), *configuration.get("args", [])]:
            if text.startswith("${workspaceFolder}/") and ".venv" not in text:
                assert Path(here(text)).exists(), text
        assert set(re.findall(r"\$\{input:(\w+)\}", json.dumps(configuration))) <= known
    for compound in read("launch.json")["compounds"]:
        assert set(compound["configurations"]) <= set(configurations())


def test_the_schema_is_bound_to_every_shipped_configuration():
    [(schema, patterns)] = read("settings.json")["yaml.schemas"].items()
    assert (ROOT / schema).is_file()
    bound = {path for pattern in patterns for path in ROOT.glob(pattern)}
    shipped = {*ROOT.glob("models/*/configs/*.yaml"), *ROOT.glob("parallel_configs/*.yaml")}
    assert shipped and shipped <= bound


def test_the_tasks_run_scripts_that_are_there():
    for task in read("tasks.json")["tasks"]:
        for script in re.findall(r"scripts/\S+", task["command"]):
            assert (ROOT / script).is_file()


def test_a_rank_has_the_environment_that_the_launcher_gives_it():
    job = Job(2, (), Path("runs/debug"))
    shown = [configurations()[f"2 ranks: {name}"]["env"] for name in ("scheduler", "rank 0", "rank 1")]
    assert shown == [{"GLOG_v": "3", **process.environment} for process in job.processes("auto")]


@pytest.mark.extended
def test_the_three_configurations_train_together(tmp_path: Path):
    """Without the debugger, on small data, each as VS Code would start it."""
    config = tiny_runs.write_config(tmp_path / "run.yaml", tiny_runs.write_data(tmp_path / "data"))
    port, processes = str(free_port()), []
    try:
        for name in ("scheduler", "rank 0", "rank 1"):
            configuration = configurations()[f"2 ranks: {name}"]
            words = [here(word) for word in [configuration["program"], *configuration["args"]] if "data." not in word]
            words = [word for word in words if word != "--set"]
            words[words.index("--config") + 1] = str(config)
            environment = tiny_runs.environment(**{**configuration["env"], "MS_SCHED_PORT": port})
            processes.append(subprocess.Popen(words, cwd=tmp_path, env=environment))
        assert [process.wait(180) for process in processes[1:]] == [0, 0]
    finally:
        for process in processes:
            kill_tree(process)
    assert len(tiny_runs.losses(tmp_path / "runs/debug")) == 6


@pytest.mark.extended
@pytest.mark.parametrize("document", ["vscode.md", "vscode_CN.md"])
def test_the_profile_of_the_docs_is_made(document: str, tmp_path: Path):
    [code] = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / document).read_text(), re.DOTALL)
    (tmp_path / "profile_steps.py").write_text(code)
    tiny_runs.write_config(tmp_path / "run.yaml", tiny_runs.write_data(tmp_path / "data"))
    words = ["train", "-c", "run.yaml", "-o", "run", "--callback", "profile_steps:ProfileSteps"]
    done = tiny_runs.command(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.glob("profile/*/ASCEND_PROFILER_OUTPUT/trace_view.json"))
