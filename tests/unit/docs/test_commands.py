"""Every command that the documentation shows can be carried out; every link leads somewhere."""

import functools
import re

import pytest
from builders.doc_commands import WrongCommandError, judge, judge_mention
from builders.doc_pages import PROGRAMS, ROOT, commands, pages

PAGES = pages()
JUDGED = (*PROGRAMS, "kubectl", "helm", "make")
# A word that stands for one of the reader's: NAME, JOB, NS, or one letter.
PLACEHOLDER = re.compile(r"(?<![\w/.-])[A-Z](?:[A-Z_-]*[A-Z])?(?![\w-])|\.\.\.|…")
# What a program of ours says of a mistake, in a block of output.
COMPLAINT = re.compile(r"[\w-]+ \w+: ")
# Files of the reader's own that pages speak of without making them.
OF_READERS = {"hub.yaml", "job.yaml", "members.yaml", "moe-7b.yaml", "spesjob.yaml", "values.yaml"}


def made_on(page):
    """Names of the files that a page, or one beside it, has its reader make or a command write."""
    text = "".join(one.text for one in PAGES if one.path.parent == page.path.parent)
    found = set(re.findall(r"^# ([\w.-]+\.ya?ml)\b", text, re.M))
    found |= set(re.findall(r"> ([\w./-]+)", text))
    found |= set(re.findall(r"join-[\w-]+\.yaml", text))
    return found | OF_READERS


def is_mention(span):
    """It names a command without all that it needs."""
    words = span.split(" ")
    has_placeholder = PLACEHOLDER.search(re.sub(r"'[^']*'", "", span))
    return bool(has_placeholder) or len(words) == 2 or words[-1].startswith("--")


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_commands_in_blocks_can_be_carried_out(page):
    files = made_on(page)
    for block in page.blocks():
        for line in commands(block):
            command = line.removeprefix("$ ").strip()
            is_ours = command.split(" ")[0] in JUDGED and not COMPLAINT.match(command)
            if not command or not (is_ours or block.language in ("console", "sh")):
                continue
            try:
                judge(command, files=files)
            except WrongCommandError as error:
                pytest.fail(f"{block}: {command}\n{error}")


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_commands_in_sentences_can_be_carried_out(page):
    files = made_on(page)
    indented = re.findall(r"^    (\S.*)$", page.prose, re.M)
    for span in [*re.findall(r"(?<!`)`([^`]+)`(?!`)", page.prose.replace("\n", " ")), *indented]:
        words = span.replace("\\|", "|").split(" ")
        if words[0] not in JUDGED or len(words) == 1 or COMPLAINT.match(span):
            continue
        try:
            if is_mention(span):
                judge_mention(span)
            else:
                judge(span, files=files)
        except WrongCommandError as error:
            pytest.fail(f"{page}: {span}\n{error}")


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_links_lead_somewhere(page):
    by_path = {one.path: one for one in PAGES}
    for link in page.links:
        name, _, anchor = link.partition("#")
        target = (page.path.parent / name).resolve() if name else page.path
        assert target.exists(), f"{page}: {link}"
        if anchor and target in by_path:
            assert anchor in by_path[target].anchors, f"{page}: {link}"


@functools.cache
def our_files():
    """Paths of all sources, each after a slash."""
    folders = ("crds", "docs", "examples", "hack", "helm", "operator", "proto", "tests", "trainer")
    paths = (path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file())
    return [f"/{path.relative_to(ROOT)}" for path in paths]


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_sources_that_are_named_exist(page):
    """By a folder and a name, from the root or from any folder on."""
    for name in re.findall(r"`([\w-]+/[\w./-]+\.(?:py|sh|go|proto|yaml|tpl))`", page.prose):
        assert any(path.endswith(f"/{name}") for path in our_files()), f"{page}: {name}"


WRONG = [
    ("spes explain --membres m.yaml", "unrecognized arguments"),
    ("spes statsu", "invalid choice"),
    ("spes invite Uni_C", "lower-case letters"),
    ("spes-sync serve", "--dir"),
    ("kubectl obtain pods", "no verb 'obtain'"),
    ("kubectl get spesjob moe -o jsonpath='{.status.rounds}'", "status.rounds is no field"),
    ("kubectl get membercluters", "no kind membercluters"),
    ("kubectl apply -f nowhere.yaml", "nobody made the file nowhere.yaml"),
    ("""kubectl patch sj moe -p '{"spec":{"suspended":true}}'""", "suspended, which is no field"),
    ("kubectl wait --for=condition=Redy sj/moe", "no condition Redy"),
    ("helm install spes helm/spse", "is no chart"),
    ("helm upgrade spes helm/spes --set metrics.dashbord.enabled=false", "no value metrics.dash"),
    ("helm install spes helm/spes --values v.yaml", "nobody made the file v.yaml"),
    ("make tests", "no target tests"),
    ("cat docs/nothing.md | grep a", "docs/nothing.md does not exist"),
    ("cd x && sipes run", "sipes is no command"),
]


@pytest.mark.parametrize(("command", "words"), WRONG)
def test_a_wrong_command_is_seen(command, words):
    with pytest.raises(WrongCommandError, match=re.escape(words)):
        judge(command, files=())


@pytest.mark.parametrize("mention", ["spes statsu JOB", "spes invite NAME --rename"])
def test_a_wrong_mention_is_seen(mention):
    with pytest.raises(WrongCommandError, match="has no"):
        judge_mention(mention)


def test_the_index_leads_to_every_page():
    """docs/README.md, and from there the indices of folders."""
    seen, ahead = set(), [ROOT / "docs/README.md"]
    by_path = {page.path: page for page in PAGES}
    while ahead:
        path = ahead.pop()
        if path in seen or path not in by_path:
            continue
        seen.add(path)
        links = (link.partition("#")[0] for link in by_path[path].links)
        if path.name == "README.md":
            ahead += [(path.parent / link).resolve() for link in links if link]
    assert {str(page) for page in PAGES if str(page).startswith("docs/")} <= {
        str(path.relative_to(ROOT)) for path in seen
    }
