"""Bad arguments, full disks and kill -9 under the host's tools: one line, nothing half-written, always resumable."""

import importlib

import numpy as np
import pytest
from safetensors.numpy import load_file

from tools import checkpoint, torture
from tools.errors import UserError, command
from tools.files import write_beside
from tools.micropython import ROOT

MODEL, ORIGINAL = ROOT / "weights" / "stories260K.scribe", ROOT / "weights" / "stories260K"
#: tool: arguments that can't be. NONE is a path with nothing there, FOLDER a folder, JUNK and TEXT files, NEW not yet.
MISTAKES = {
    "pack": ("", "NONE -o NEW", "FOLDER -o NEW", "JUNK -o NEW", "ORIGINAL -o NONE/x", "ORIGINAL -o FOLDER --tokens 2",
             "ORIGINAL -o NEW --tokens -1", "ORIGINAL -o NEW --tokens 0", "ORIGINAL -o NEW --headroom nan",
             "ORIGINAL -o NEW --headroom hot", "ORIGINAL -o NEW --calibrate NONE", "ORIGINAL -o NEW --calibrate FOLDER",
             "ORIGINAL -o NEW --calibrate JUNK", "ORIGINAL -o NEW --original TEXT", "ORIGINAL -o LONG --tokens 2",
             "ORIGINAL -o NEW --original TEXT/x --tokens 2"),
    "convert": ("", "llama2c", "llama2c JUNK --tokenizer JUNK -o NEW", "llama2c FOLDER --tokenizer JUNK -o NEW",
                "llama2c NONE --tokenizer NONE -o NEW", "hf FOLDER -o NEW", "hf JUNK -o NEW", "hf ORIGINAL -o NEW",
                "gguf x"),
    "logits": ("", "MODEL --tokens 1 -o FOLDER", "MODEL --tokens 1 -o NONE/x", "MODEL --tokens 1,x -o NEW",
               "MODEL --tokens -1 -o NEW", "MODEL --tokens 99999 -o NEW", "JUNK --tokens 1 -o NEW",
               "FOLDER --tokens 1 -o NEW", "MODEL --text JUNK -o NEW", "MODEL --text FOLDER -o NEW",
               "MODEL --tokens 1 --engine float --original FOLDER -o NEW"),
    "evaluate": ("MODEL", "MODEL --text NONE", "MODEL --text TEXT --documents 0", "MODEL --text TEXT --documents nan",
                 "JUNK --text TEXT"),
    "parity": ("JUNK", "FOLDER", "MODEL --tokens -1", "MODEL --story 0", "MODEL --original FOLDER --tokens 4"),
    "card": ("", "NONE", "JUNK", "FOLDER", "MODEL --text NONE", "MODEL --documents -1", "MODEL --documents x"),
    "cache": ("NONE", "JUNK", "FOLDER", "MODEL --tokens -1"),
    "bench": ("NONE", "JUNK", "FOLDER", "MODEL --tokens -1"),
    "budget": ("NONE", "JUNK", "FOLDER", "--board zz", "--window 0 MODEL", "--kv-heads 3 MODEL", "--fit zz",
               "--recipe QQ --fit pico2", "--vocab 1 --fit pico2"),
    "boards": ("", "zz", "build zz", "repl m3 --heap -1", "count JUNK", "count MODEL zz"),
    "layouts": ("--tokens -1", "--seed x", "--tokens 1 --out FOLDER"),
}


@pytest.mark.parametrize("tool", MISTAKES)
def test_bad_arguments_are_one_line_and_leave_nothing(tool, tmp_path, capsys):
    main = importlib.import_module(f"tools.{tool}").main
    (tmp_path / "folder").mkdir()
    (tmp_path / "junk").write_bytes(bytes(range(256)) * 9)
    (tmp_path / "text").write_text("A fox.\n")
    paths = {"NONE": tmp_path / "none", "NEW": tmp_path / "new", "FOLDER": tmp_path / "folder", "MODEL": MODEL,
             "JUNK": tmp_path / "junk", "TEXT": tmp_path / "text", "ORIGINAL": ORIGINAL, "LONG": tmp_path / ("x" * 300)}
    for line in MISTAKES[tool]:
        words = [str(paths.get(head, head)) + slash + rest
                 for head, slash, rest in (word.partition("/") for word in line.split())]
        assert main(words) == 2, line
        said = capsys.readouterr().err
        assert said.startswith("error: ") and said.count("\n") == 1, (line, said)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "junk", "text"], line
        assert not any((tmp_path / "folder").iterdir()), line


@pytest.mark.ci
@pytest.mark.slow
def test_kill_and_full_disks_leave_nothing_half_written():
    rows = list(torture.rows("host_kills", 0.02, seed=2))
    assert len(rows) >= 6 and all(row.tried == row.survived > 0 for row in rows), [row.found for row in rows]


def test_a_file_that_cant_be_written_leaves_the_old_one(tmp_path):
    path = tmp_path / "x"
    path.write_text("old")

    def write(beside):
        beside.write_text("ne")
        raise OSError(28, "No space left on device")

    with pytest.raises(UserError, match=r"x: can't be written \(No space left on device\)"):
        write_beside(path, write)
    assert path.read_text() == "old" and [each.name for each in tmp_path.iterdir()] == ["x"]
    write_beside(path, lambda beside: beside.write_text("new"))
    assert path.read_text() == "new"


def test_models_are_written_like_any_other_file(tmp_path):
    """safetensors' own way to a file, which this rules out, leaves one of a random name where it is killed."""
    (tmp_path / "usual").touch()
    checkpoint.save_float16(tmp_path, {"w": np.ones((2, 3))})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.safetensors", "usual"]
    assert (tmp_path / "model.safetensors").stat().st_mode == (tmp_path / "usual").stat().st_mode
    assert load_file(tmp_path / "model.safetensors")["w"].tolist() == [[1, 1, 1], [1, 1, 1]]


def test_what_the_system_says_is_one_line(capsys):
    @command
    def main(argv=None):
        open("/nowhere/at/all")

    assert main() == 2
    assert capsys.readouterr().err == "error: /nowhere/at/all: No such file or directory\n"
