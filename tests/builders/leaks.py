"""Where a secret must not be: texts that people, logs and other processes can read."""

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import yaml
from spes_operator.k8s.api import JsonObject

# Of tokens and of the lines of a private key; whatever is shorter could be in a text by chance.
_SECRET_WORD = re.compile(r"[A-Za-z0-9+/=._-]{24,}")
# Certificates are for everybody.
_PUBLIC = (".crt", "ca.pem")


def words_of_secrets(secrets: Iterable[JsonObject]) -> dict[str, str]:
    """Every secret word in some Secrets -> the Secret and key that it is from."""
    found: dict[str, str] = {}
    for secret in secrets:
        for key, value in secret.get("data", {}).items():
            if key.endswith(_PUBLIC):
                continue
            text = _secret_part(key, base64.b64decode(value).decode(errors="replace"))
            name = f"{secret['metadata']['namespace']}/{secret['metadata']['name']}:{key}"
            found |= dict.fromkeys(_SECRET_WORD.findall(text), name)
    return found


def _secret_part(key: str, text: str) -> str:
    """Of a kubeconfig the credentials alone: the hub's address and CA are for everybody."""
    if key != "kubeconfig":
        return re.sub(r"-----[A-Z ]+-----", "", text)
    return json.dumps([user["user"] for user in yaml.safe_load(text)["users"]])


def leaks(words: Mapping[str, str], texts: Mapping[str, str]) -> list[str]:
    """Which secret is in which text."""
    return sorted(
        {
            f"{origin} is in {place}"
            for place, text in texts.items()
            for word, origin in words.items()
            if word in text
        }
    )


def processes_below(pid: int) -> Iterator[tuple[str, str]]:
    """Arguments and environment of every process that `pid` has started, also by others."""
    parents = dict(_parents())
    for child in parents:
        if pid in _ancestors(child, parents):
            for part in ("cmdline", "environ"):
                try:
                    text = Path(f"/proc/{child}/{part}").read_bytes().decode(errors="replace")
                except OSError:
                    continue  # it has ended
                yield f"{part} of {child}", text


def _parents() -> Iterator[tuple[int, int]]:
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                stat = (folder / "stat").read_text()
            except OSError:
                continue
            yield int(folder.name), int(stat.rpartition(")")[2].split()[1])


def _ancestors(pid: int, parents: Mapping[int, int]) -> Iterator[int]:
    while (pid := parents.get(pid, 0)) > 1:
        yield pid
