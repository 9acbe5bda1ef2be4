"""What README says is so: the story it shows is the story that its command writes."""

import re

from tools.micropython import ROOT


def test_the_story_is_what_the_model_writes(micropython):
    readme = (ROOT / "README.md").read_text()
    call, shown = re.search(r">>> s\.tell\((.*)\)\n((?:    .+\n)+)", readme).groups()
    told = micropython(f"import scribe; scribe.open({str(ROOT / 'weights' / 'tales.scribe')!r}).tell({call})").stdout
    assert shown.split() == told.split()


def test_every_linked_page_is_there():
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "weights").glob("*.md")]:
        for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.name} links to {link}"
