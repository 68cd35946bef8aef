from __future__ import annotations

import os
from pathlib import Path

import pytest

from data_tools.sources import find_sources, kind_of
from msllm.errors import InputError


def make(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    return folder


def test_folder_is_read_in_the_order_of_names_at_every_level(tmp_path: Path) -> None:
    corpus = make(tmp_path / "corpus", "b.txt", "a/z.md", "a/b/x.jsonl", "c.json", "B.txt", "10.txt", "9.txt", "中.txt")
    names = [source.name for source in find_sources([corpus]).sources]
    want = ["10.txt", "9.txt", "B.txt", "a/b/x.jsonl", "a/z.md", "b.txt", "c.json", "中.txt"]
    assert names == [f"corpus/{name}" for name in want]


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("a.txt", ("text", "")),
        ("a.MD", ("text", "")),
        ("a.jsonl", ("lines", "")),
        ("a.jsonl.gz", ("lines", "gzip")),
        ("a.b.JSONL.ZST", ("lines", "zstd")),
        ("a.json.gz", ("json", "gzip")),
        ("a.txt.zst", ("text", "zstd")),
        ("a.parquet", ("parquet", "")),
        ("a.parquet.gz", None),
        ("a.gz", None),
        ("a", None),
        ("a.csv", None),
    ],
)
def test_kind_comes_from_the_name(name: str, want: tuple[str, str] | None) -> None:
    assert kind_of(name) == want


def test_what_is_left_out_is_told_with_the_reason(tmp_path: Path) -> None:
    corpus = make(tmp_path / "corpus", "a.txt", ".hidden.txt", ".git/x.txt", "x.bin", "noextension", "out/y.txt")
    os.mkfifo(corpus / "pipe.txt")
    os.symlink(corpus, corpus / "loop")
    os.symlink("nowhere", corpus / "dead.txt")
    found = find_sources([corpus], {corpus / "out": "the output"})
    assert [source.name for source in found.sources] == ["corpus/a.txt"]
    assert {(Path(file).name, reason) for file, reason in found.ignored} == {
        (".hidden.txt", "hidden"),
        (".git", "hidden"),
        ("x.bin", "unknown extension"),
        ("noextension", "unknown extension"),
        ("out", "the output"),
        ("pipe.txt", "neither a file nor a folder"),
        ("loop", "link to a folder above it"),
        ("dead.txt", "neither a file nor a folder"),
    }


def test_file_named_twice_is_read_once(tmp_path: Path) -> None:
    corpus = make(tmp_path / "corpus", "a.txt", "b.txt")
    found = find_sources([corpus / "b.txt", corpus])
    assert [source.name for source in found.sources] == ["b.txt", "corpus/a.txt"]
    assert found.ignored == [(str(corpus / "b.txt"), "named twice")]


def test_hidden_folder_named_by_the_user_is_read(tmp_path: Path) -> None:
    corpus = make(tmp_path / ".corpus", "a.txt")
    assert len(find_sources([corpus]).sources) == 1


def test_patterns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, "x/b.jsonl", "x/a.jsonl", "x/y/c.jsonl", "x/d.txt", "odd[1].txt")
    monkeypatch.chdir(tmp_path)
    assert [source.name for source in find_sources(["x/*.jsonl"]).sources] == ["a.jsonl", "b.jsonl"]
    assert [source.name for source in find_sources(["x/**/*.jsonl"]).sources] == ["a.jsonl", "b.jsonl", "c.jsonl"]
    assert [source.name for source in find_sources(["odd[1].txt"]).sources] == ["odd[1].txt"]


def test_all_wrong_inputs_are_named_at_once(tmp_path: Path) -> None:
    make(tmp_path, "a.csv")
    with pytest.raises(InputError) as error:
        find_sources([tmp_path / "no", tmp_path / "*.jsonl", tmp_path / "a.csv"])
    assert [problem.message.split(":")[0] for problem in error.value.problems] == [
        "--input no such file or folder",
        "--input matches no file",
        "cannot be read as text",
    ]


def test_folder_without_a_usable_file(tmp_path: Path) -> None:
    make(tmp_path / "corpus", "a.csv", "b.bin")
    with pytest.raises(InputError, match=r"no file to read \(left out: 2 files\)"):
        find_sources([tmp_path / "corpus"])


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable_file(tmp_path: Path) -> None:
    (make(tmp_path, "a.txt") / "a.txt").chmod(0)
    with pytest.raises(InputError, match="permission denied"):
        find_sources([tmp_path / "a.txt"])


def test_name_that_is_not_utf8(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/caf\xe9.txt"
    with open(path, "w") as file:
        file.write("x")
    (source,) = find_sources([tmp_path]).sources
    assert source.name == f"{tmp_path.name}/caf\\xe9.txt"
    assert Path(source.path).read_text() == "x"
