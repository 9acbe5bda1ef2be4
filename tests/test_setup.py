"""What a user meets first: the pinned requirements, the Makefile's commands, and the story tool's mistakes."""

import ast
import os
import re
import shutil
import socket
import subprocess
import sys

import pytest

from tools import micropython as mp
from tools import lock, story
from tools.errors import UserError

ROOT = mp.ROOT
PROMPTS = ("it's $x", "a \"quoted\" `word` and $(shell echo no)", "$( unclosed", "x # y; exit 3", "-dash 100% \\ end",
           "two\nlines", "été 🦊", "")


def make(*args, env=None, cwd=ROOT):
    if shutil.which("make") is None:
        pytest.fail("make is not installed")
    # A `make test` above this one hands its own variables down; these runs start afresh.
    clean = {k: v for k, v in os.environ.items() if not k.startswith("MAKE") and k not in ("MFLAGS", "PROMPT")}
    return subprocess.run(["make", *args], cwd=cwd, env={**clean, **(env or {})}, capture_output=True, text=True,
                          timeout=600)


@pytest.fixture
def fake(tmp_path):
    """A copy of the Makefile whose .venv is ready and whose Python only prints the arguments it was given."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "requirements.txt").write_text("")
    bin_ = tmp_path / ".venv" / "bin"
    bin_.mkdir(parents=True)
    python = bin_ / "python"
    python.write_text(f"#!{sys.executable}\nimport sys\nprint(ascii(sys.argv[1:]))\n")
    python.chmod(0o755)
    (tmp_path / ".venv" / ".ready").touch()
    return tmp_path


@pytest.mark.parametrize("name", lock.NAMES)
def test_requirements_are_locked(name):
    """All that a requirements file installs has exact versions and hashes, and is what its .in file asks for."""
    packages = lock.blocks(ROOT / f"{name}.txt")
    assert packages
    for package, block in packages.items():
        for version in re.split(rf"^(?={re.escape(package)}==)", block, flags=re.M)[1:]:
            first, *hashes = [line.rstrip("\\ ") for line in version.splitlines()]
            assert re.fullmatch(r"[a-z0-9-]+==[A-Za-z0-9.]+( ; .+)?", first), first
            assert hashes and all(re.fullmatch(r" {4}--hash=sha256:[0-9a-f]{64}", each) for each in hashes), first
    asked = [line.split("#")[0].strip() for line in (ROOT / f"{name}.in").read_text().splitlines()]
    for package, _, version in (line.partition(";")[0].strip().partition("==") for line in asked if line):
        locked = packages[package]
        assert re.search(rf"^{package}=={re.escape(version)}", locked, re.M) if version else locked


def test_only_pytorch_has_no_hash():
    """Every index has builds of its own, which requirements-torch.txt says."""
    locked = {f"{name}.txt" for name in lock.NAMES}
    assert {path.name for path in ROOT.glob("requirements*.txt")} - locked == {"requirements-torch.txt"}
    lines = (ROOT / "requirements-torch.txt").read_text().splitlines()
    assert [line for line in lines if not line.startswith("#")] == ["torch==2.13.0"]
    assert (ROOT / "Makefile").read_text().count("--require-hashes") == 3


def tracked():
    """Paths of the files that git keeps, or, without git, of the project's own folders."""
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if done.returncode == 0:
        return [ROOT / name for name in done.stdout.split("\0") if name]
    folders = ("device", "tools", "tests", "docs", ".ci")
    return [path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file()]


def test_nothing_is_unpickled():
    """A pickle runs code when it is read. Models are safetensors, llama2.c's files and our own; arrays are .npz."""
    modules, found, count = {"pickle", "cPickle", "dill", "joblib", "shelve", "marshal", "cloudpickle"}, [], 0
    for path in tracked():
        if path.suffix != ".py" or not path.is_file():
            continue
        count += 1
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            bad = any(name.partition(".")[0] in modules for name in names)
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                bad = called in ("torch.load", "torch.save", "torch.jit.load", "torch.hub.load")
                bad = bad or any(each.arg == "allow_pickle" and ast.unparse(each.value) != "False"
                                 for each in node.keywords)  # NumPy's own default is False
            if bad:
                found.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert count > 80 and not found, found
    weights = [path.suffix for path in tracked() if path.suffix in (".bin", ".pt", ".pth", ".pkl", ".npy", ".npz")]
    assert weights == [".bin"]  # llama2.c's tokenizer


def test_no_test_reaches_the_network():
    """tests/conftest.py lets sockets be opened to this machine only."""
    for address in (("192.0.2.1", 80), ("example.org", 443)):
        with pytest.raises(OSError, match="tests open no connection to"):
            socket.create_connection(address, timeout=1)
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        with socket.create_connection(server.getsockname(), timeout=5):
            pass


@pytest.mark.ci
def test_a_story_and_the_reference_need_no_network(leave_out):
    """In a network namespace of their own, where there is not even a loopback."""
    alone = ["unshare", "--net", "--map-root-user"]
    if shutil.which("unshare") is None or subprocess.run([*alone, "true"], capture_output=True).returncode:
        leave_out("runs without a network", "a Linux where unshare --net works")
    done = subprocess.run([*alone, sys.executable, "-m", "tools.story", "--model=stories260K", "--seed=3",
                           "--tokens=20"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("Once upon a time"), done.stderr
    done = subprocess.run([*alone, sys.executable, "-m", "pytest", "tests/test_references.py",
                           "tests/test_tokenizer.py", "-p", "no:cacheprovider"],
                          cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:]


def test_help_lists_every_target():
    text = (ROOT / "Makefile").read_text()
    phony = set(re.search(r"^\.PHONY: (.*)$", text, re.M)[1].split())
    assert {"setup", "story", "test", "parity", "train", "pack", "bench", "clean"} <= phony
    shown = make()
    assert shown.returncode == 0
    assert {line.split()[1] for line in shown.stdout.splitlines() if line.split()[:1] == ["make"]} == phony


def test_up_to_date_setup_prints_nothing(fake):
    done = make("setup", cwd=fake)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("prompt", PROMPTS)
@pytest.mark.parametrize("how", ["argument", "environment"])
def test_prompt_reaches_the_tool_as_typed(fake, prompt, how):
    """Whatever a prompt holds, it is text: make does not expand it and no shell parses it."""
    if how == "argument":
        done = make("story", f"PROMPT={prompt}", "SEED=7", cwd=fake)
    else:
        done = make("story", cwd=fake, env={"PROMPT": prompt, "SEED": "7"})
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == ascii(
        ["-m", "tools.story", "--model=tales", f"--prompt={prompt}", "--seed=7"])


def test_dry_run_shows_no_expanded_prompt(fake):
    done = make("-n", "story", "PROMPT=it's $x", cwd=fake)
    assert done.returncode == 0, done.stderr
    assert "tools.story" in done.stdout and "it's" not in done.stdout


@pytest.mark.parametrize("script, message", [("exit 1", "too old"), (None, "no old-python here")])
def test_a_wrong_python_is_one_line(tmp_path, script, message):
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "requirements.txt").write_text("")
    if script:
        (tmp_path / "old-python").write_text(
            f'#!/bin/sh\n[ "$1" = --version ] && echo Python 3.8.18 && exit\n{script}\n')
        (tmp_path / "old-python").chmod(0o755)
    done = make("setup", "PYTHON=" + (str(tmp_path / "old-python") if script else "old-python"), cwd=tmp_path)
    assert done.returncode == 2
    ours = [line for line in done.stderr.splitlines() if not line.startswith("make")]
    assert len(ours) == 1 and ours[0].startswith("error: ") and message in ours[0], done.stderr
    assert not (tmp_path / ".venv").exists()


@pytest.mark.parametrize("args, message", [
    (["--model", "nosuch"], "no model 'nosuch'"),
    (["--temperature", "hot"], "'hot' is not a number"),
    (["--temperature", "nan"], "'nan' is not a number"),
    (["--seed", "-1"], "'-1' is not a whole number from 0 to 4294967295"),
    (["--tokens", "0"], "'0' is not a whole number"),
    (["--top-p", "1.5"], "'1.5' is not a number from 0 to 1"),
    (["--colour"], "unrecognized arguments"),
])
def test_story_mistakes_are_one_line(args, message):
    done = subprocess.run([sys.executable, "-m", "tools.story", *args], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1 and message in done.stderr


def test_unknown_model_lists_those_there(tmp_path, monkeypatch):
    monkeypatch.setattr(story, "WEIGHTS", tmp_path)
    with pytest.raises(UserError, match="no models yet"):
        story.find_model("x")
    for name in ("b", "a"):
        (tmp_path / f"{name}.scribe").touch()
    with pytest.raises(UserError, match="weights/ has a, b "):
        story.find_model("x")
    assert story.find_model("a") == (tmp_path / "a.scribe").resolve()
    assert story.find_model(str(tmp_path / "b.scribe")) == (tmp_path / "b.scribe").resolve()


def test_heap_is_a_boards_or_the_users(tmp_path):
    model = tmp_path / "m.scribe"
    model.write_bytes(bytes(1000))
    assert story.heap_for(model) == 8 << 20
    assert story.heap_for(model, "300k") == 300 << 10
    for bad in ("", "lots", "1", "-8m", "3g", "99999m"):
        with pytest.raises(UserError, match="heap"):
            mp.heap_bytes(bad)


def test_run_in_micropython(micropython):
    done = micropython("import sys, gc\nprint(sys.implementation.name, sys.argv[1:], gc.mem_free() // 1000000)",
                       "it's $x", heapsize="3m")
    name, *rest = done.stdout.split(" ", 1)
    assert name == "micropython" and rest == ["[\"it's $x\"] 3\n"] or rest == ["[\"it's $x\"] 2\n"], done.stdout


def test_endings_become_one_line(micropython):
    for code, message in (("1/0", "ZeroDivisionError"), ("def f(:", "SyntaxError"), ("raise SystemExit(3)", "status 3"),
                          ("import nosuch", "no module named 'nosuch'"), ("bytearray(1 << 28)", "MemoryError")):
        with pytest.raises(mp.MicroPythonError, match=message) as caught:
            mp.run(code)
        assert "\n" not in str(caught.value)
    with pytest.raises(mp.MicroPythonError, match="did not finish in 0.5 seconds"):
        mp.run("while True: pass", timeout=0.5)
    assert micropython("1/0", check=False).returncode == 1


FAKE_SCRIBE = """
class Scribe:
    def tell(self, prompt, **options):
        print(prompt, sorted(options.items()))
    def stats(self):
        return {"tokens": 12, "tokens_per_second": 2.5, "flash_bytes_per_token": 1024, "cache_hit_rate": 0.5,
                "ram_bytes": 5000, "ram": {"state": 1000, "brain": 4000}, "seed": 9}
def open(path=None):
    %s
    return Scribe()
"""


@pytest.mark.parametrize("trouble, status", [("", 0), ("raise MemoryError('memory allocation failed')", 2)])
def test_story_runs_the_device_package(tmp_path, monkeypatch, capfd, micropython, trouble, status):
    """The tool's side alone, with a stand-in for the package: arguments arrive whole, figures and errors are a line."""
    (tmp_path / "scribe.py").write_text(FAKE_SCRIBE % trouble)
    (tmp_path / "m.scribe").write_bytes(b"")
    monkeypatch.setattr(mp, "PATH", f"{tmp_path}:.frozen")
    said = "\"Été\" isn't $5\n\\ 🦊"
    args = ["--model", str(tmp_path / "m.scribe"), "--prompt", said, "--seed", "9", "--tokens", "5"]
    assert story.main(args) == status
    out, err = capfd.readouterr()
    if status:
        assert out == "" and err.count("\n") == 1
        assert err.startswith("error: MicroPython: MemoryError") and "--heap" in err
    else:
        assert out.startswith(
            said + " [('max_tokens', 5), ('seed', 9), ('temperature', 0.8), ('top_k', 40), ('top_p', 1.0)]")
        assert out.endswith("\n[12 tokens, 2.5 tokens/s, 1024 flash bytes/token, 50% of experts from RAM, "
                            "5 KB of RAM (brain 4 KB, state 1 KB), seed 9]\n")
        assert err == ""


def test_no_file_names_a_machine_path(leave_out):
    """Tracked text (new files included) names no folder of the machine it was written on."""
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT,
                            capture_output=True, text=True)
    if listed.returncode:
        leave_out("the check of tracked files for machine paths", "run it in a git checkout")
    machine = re.compile(r"(?<![\w.])/(work|tmp|farm|root|home|Users)/[\w.]")
    found = []
    for name in filter(None, listed.stdout.split("\0")):
        path = ROOT / name
        if name.endswith(".md") or not path.is_file():
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found += [f"{name}:{n}" for n, line in enumerate(text.splitlines(), 1) if machine.search(line)]
    assert not found


LEFT_OUT = """
import pytest
def test_declared(leave_out):
    leave_out("tests of a thing", "get the thing")
@pytest.mark.ci
def test_ci():
    pass
def test_bare():
    pytest.skip("because")
@pytest.mark.xfail
def test_expected():
    assert False
"""


@pytest.mark.parametrize("ci, status, counts", [("", 0, "3 skipped, 1 xfailed"),
                                                ("true", 1, "1 failed, 1 passed, 1 skipped, 1 xfailed")])
def test_what_is_left_out_is_said(tmp_path, ci, status, counts):
    """A declared skip is counted in the last lines, a bare one fails under CI; in a module's head too."""
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path)
    (tmp_path / "test_it.py").write_text(LEFT_OUT)

    def pytest_run():
        return subprocess.run([sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", ROOT / "pyproject.toml",
                               "--rootdir", tmp_path, tmp_path], cwd=ROOT, env={**os.environ, "CI": ci},
                              capture_output=True, text=True)

    done = pytest_run()
    assert done.returncode == status, done.stdout
    assert counts in done.stdout.splitlines()[-1]
    assert "left out: 1 x tests of a thing (get the thing)" in done.stdout
    assert ("left out: 1 x tests that need root or minutes" in done.stdout) == (not ci)
    assert ("skipped without being declared (see tests/conftest.py): because" in done.stdout) == bool(ci)

    (tmp_path / "test_head.py").write_text("import pytest\npytest.importorskip('nosuchmodule')\n")
    done = pytest_run()
    assert (done.returncode != 0) == bool(ci) and ("nosuchmodule" in done.stdout) == bool(ci), done.stdout
