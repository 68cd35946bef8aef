"""The scripts say what they would do, and choose a Python that really runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SCRIPTS = ROOT / "scripts"


def bash(*arguments: str, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        ["bash", *arguments], capture_output=True, text=True, env={**os.environ, **environment}, timeout=60
    )


def fake_python(folder: Path, name: str, answer: str) -> None:
    """A command that answers to any arguments as an interpreter of version `answer` would; "" fails like a shim."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n[ -n '{answer}' ] || exit 127\necho {answer}\n")
    path.chmod(0o755)


def find_python(folder: Path, **environment: str) -> subprocess.CompletedProcess:
    return bash(
        "-c",
        f"source '{SCRIPTS}/common.sh'; find_python",
        PATH=f"{folder}:/usr/bin:/bin",
        HOME=str(folder),
        **environment,
    )


def test_quickstart_dry_run_prints_every_command_and_makes_nothing(tmp_path):
    result = bash(str(SCRIPTS / "quickstart.sh"), "--dry-run", "--output", str(tmp_path / "out"))
    assert result.returncode == 0, result.stderr
    for words in (
        "python_corpus.py",
        "train-tokenizer",
        "data convert",
        "msrun",
        "--resume auto",
        "evaluate",
        "generate",
    ):
        assert words in result.stdout
    assert not (tmp_path / "out").exists()


def test_run_tests_dry_run_prints_the_pytest_command_with_its_arguments():
    result = bash(str(SCRIPTS / "run_tests.sh"), "--dry-run", "tests/unit", "-x")
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip().splitlines()[-1].endswith("tests/unit -x")


@pytest.mark.parametrize("script", ["quickstart.sh", "run_tests.sh"])
def test_help_explains_the_script(script):
    result = bash(str(SCRIPTS / script), "--help")
    assert result.returncode == 0
    assert f"bash scripts/{script}" in result.stdout


def test_an_unknown_argument_is_refused():
    result = bash(str(SCRIPTS / "quickstart.sh"), "--dryrun")
    assert result.returncode == 1
    assert "unknown argument --dryrun" in result.stderr


def test_shims_that_fail_and_versions_without_a_wheel_are_passed_over(tmp_path):
    fake_python(tmp_path, "python3.10", "")
    fake_python(tmp_path, "python3.11", "3.13")
    fake_python(tmp_path, "python3.12", "3.12")
    result = find_python(tmp_path)
    assert result.stdout.strip() == "python3.12"


def test_without_a_usable_python_the_message_says_what_was_found_and_what_to_do(tmp_path):
    for name in ("python3.10", "python3.11", "python3.12"):
        fake_python(tmp_path, name, "")
    fake_python(tmp_path, "python3", "3.13")
    fake_python(tmp_path, "python", "3.9")
    result = find_python(tmp_path)
    assert result.returncode == 1
    assert "python3=3.13" in result.stderr and "no wheel for 3.13" in result.stderr and "PYTHON=" in result.stderr


def test_the_python_that_the_user_names_comes_first(tmp_path):
    fake_python(tmp_path, "mine", "3.10")
    fake_python(tmp_path, "python3.11", "3.11")
    assert find_python(tmp_path, PYTHON=str(tmp_path / "mine")).stdout.strip() == str(tmp_path / "mine")


def test_the_corpus_is_text_of_pythons_library_and_the_same_again(tmp_path):
    def make(folder: Path) -> tuple[bytes, bytes]:
        command = [sys.executable, str(SCRIPTS / "python_corpus.py"), "--output", str(folder), "--megabytes", "1"]
        subprocess.run(command, check=True, capture_output=True)
        return (folder / "train.jsonl").read_bytes(), (folder / "validation.jsonl").read_bytes()

    train, validation = make(tmp_path / "a")
    assert (train, validation) == make(tmp_path / "b")
    assert 500_000 < len(train) < 1_200_000 and validation.strip()
    assert b"def " in train and not set(train.splitlines()) & set(validation.splitlines())
