"""A short form of what `make torture` does to the board's code at full length: every fault is survived."""

import pytest

from tools import torture

#: Share of the full number of faults, by topic: together about a minute of one core.
AMOUNT = {"device_damage": 0.02, "device_flash": 0.05, "device_input": 0.02, "device_interrupts": 0.04,
          "device_memory": 0.2, "device_long": 0.01}


@pytest.mark.slow
@pytest.mark.parametrize("topic", AMOUNT)
def test_every_fault_is_survived(micropython, topic):
    rows = list(torture.rows(topic, AMOUNT[topic], seed=1))
    assert rows and all(row.tried for row in rows)
    assert not [what for row in rows for what in row.found] and all(row.tried == row.survived for row in rows)


def test_no_topic_of_the_device_is_forgotten():
    assert {name for name in torture.topics() if name.startswith("device_")} == set(AMOUNT)


# That the torture sees what it looks for: each of these breaks one promise in the board's code.


@pytest.fixture
def broken(tmp_path, monkeypatch):
    """Put a changed copy of a module of the package in its place."""
    import shutil

    from tools import micropython

    def change(module, old, new):
        shutil.copytree(micropython.ROOT / "device" / "scribe", tmp_path / "scribe")
        path = tmp_path / "scribe" / f"{module}.py"
        text = path.read_text()
        assert text.count(old) == 1
        path.write_text(text.replace(old, new))
        monkeypatch.setattr(micropython, "PATH", f"{tmp_path}:.frozen")

    return change


@pytest.mark.parametrize("topic, module, old, new", (
    ("device_damage", "modelfile", "if binascii.crc32(buf) != crc:", "if False:"),
    ("device_damage", "modelfile", "        self._check_sections(config)\n", ""),
    ("device_interrupts", "story", "        file, library = model.file, model.library\n",
     "        file, library = model.file, model.library\n        state.reset = lambda: None\n"),
    ("device_flash", "library", "            self._file.read_expert(number, buf)\n",
     "            if slot >= 0:\n                self._holds[slot], self._slot[number] = number, slot\n"
     "            self._file.read_expert(number, buf)\n"),
    ("device_input", "chat", "                return text or None\n", "                pass\n"
     "                raise IndexError\n"),
))
def test_a_broken_promise_is_found(micropython, broken, topic, module, old, new):
    broken(module, old, new)
    assert any(row.found for row in torture.rows(topic, AMOUNT[topic], seed=1))
