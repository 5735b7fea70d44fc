"""Judges a command that the documentation shows, without running it.

Our own programs' arguments are parsed by their own parsers. Of kubectl, helm and make what can be
known without a cluster is checked: verbs, kinds, fields of patches, charts, values, targets.
"""

import argparse
import contextlib
import functools
import io
import json
import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import spes_operator.cli.commands
import spes_operator.daemon
import spes_sync.cli
import spes_trainer.cli
import yaml
from builders.doc_pages import ROOT
from spes_api.definitions import DEFINITIONS


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Programs of others that a reader has; their arguments are not judged, but for paths of ours.
OTHERS = _words(
    "awk cat cd cosign cp curl diff docker export git grep kind ls mkdir open openssl pip printf"
    " python python3 sha256sum tail tar xdg-open ."
)
KUBECTL_VERBS = _words(
    "annotate apply auth config cordon cp create delete describe drain edit events exec explain get"
    " label logs patch rollout run scale taint uncordon version wait"
)
# Of these verbs the first argument is a kind, or KIND/NAME.
VERBS_OF_KINDS = _words("annotate delete describe edit get label patch")
KINDS = _words(
    "cm configmap configmaps crd customresourcedefinitions deployment deployments event events job"
    " jobs lease leases namespace namespaces networkpolicy node nodes persistentvolumeclaim"
    " persistentvolumeclaims pod pods pvc resourcequota resourcequotas rolebinding rolebindings"
    " secret secrets service services statefulset statefulsets storageclass volumesnapshot"
    " volumesnapshots"
)
KUBECTL_VALUES = _words(
    "-n --namespace -l --selector -o --output -p --patch -f --filename -c --container --type"
    " --context --kubeconfig --for --timeout --tail --since -L --field-selector --sort-by --as"
    " --replicas --image"
)
HELM_VERBS = _words(
    "get history install lint list pull rollback show status template test uninstall upgrade"
)
HELM_VALUES = _words(
    "-n --namespace -f --values --set --set-json --version --timeout --kube-context"
)
_OF_US = re.compile(
    r"(?:\./)?((?:crds|docs|examples|hack|helm|operator|proto|tests|trainer)/[\w./-]+)"
)


class WrongCommandError(Exception):
    """What is wrong with a command."""


def judge(command: str, *, files: Collection[str]) -> None:
    """Nothing, if the command can be carried out.

    Args:
        command: One line of a shell.
        files: Names that the page has the reader make, beside those of the repository.

    Raises:
        WrongCommandError: It cannot.
    """
    for words in simple_commands(command):
        name, arguments = words[0].removeprefix(".venv/bin/"), words[1:]
        if name in PARSERS:
            _judge_own(name, arguments)
        elif name == "kubectl":
            _judge_kubectl(arguments, files)
        elif name == "helm":
            _judge_helm(arguments, files)
        elif name == "make":
            _judge_make(arguments)
        elif name not in OTHERS:
            raise WrongCommandError(f"{name} is no command that a reader is known to have")
        for path in (found for word in words for found in _OF_US.findall(word)):
            if not (ROOT / path).exists():
                raise WrongCommandError(f"{path} does not exist")


def simple_commands(line: str) -> Iterator[list[str]]:
    """The commands of a line with pipes, sequences and redirections."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words: list[str] = []
    is_target = False
    for word in [*lexer, ";"]:
        if set(word) <= set("|&;()"):
            if words:
                yield words
            words = []
        elif set(word) <= set("<>"):
            is_target = True
        elif is_target:
            is_target = False
        elif words or not re.match(r"\w+=", word):
            words.append(word)


def _daemon(arguments: Sequence[str]) -> argparse.ArgumentParser:
    return spes_operator.daemon.build_parser(arguments)


PARSERS: Mapping[str, Any] = {
    "spes": lambda _: spes_operator.cli.commands.build_parser(),
    "spes-operator": _daemon,
    "spes-sync": lambda _: spes_sync.cli.build_parser(),
    "spes-trainer": lambda _: spes_trainer.cli.build_parser(),
}


def _judge_own(name: str, arguments: Sequence[str]) -> None:
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            PARSERS[name](arguments).parse_args(arguments)
    except SystemExit as error:
        if error.code != 0:
            raise WrongCommandError(said.getvalue().strip()) from error


def judge_mention(command: str) -> None:
    """Nothing, if a command with placeholders names a command and options that there are.

    Raises:
        WrongCommandError: It does not.
    """
    words = shlex.split(command)
    if words[0] not in PARSERS:
        return
    parser = PARSERS[words[0]](words[1:])
    choices = next(
        action.choices
        for action in parser._actions
        if isinstance(action, argparse._SubParsersAction)
    )
    known = set(parser._option_string_actions)
    if words[1] in choices:
        known |= set(choices[words[1]]._option_string_actions)
    elif not words[1].startswith("-"):
        raise WrongCommandError(f"{words[0]} has no command {words[1]} (of {', '.join(choices)})")
    for option in re.findall(r"(?<!\S)--[a-z][-a-z]*", command):
        if option not in known:
            raise WrongCommandError(f"{words[0]} {words[1]} has no option {option}")


def _judge_make(arguments: Sequence[str]) -> None:
    targets = set(re.findall(r"^([a-z][-a-z0-9]*):", (ROOT / "Makefile").read_text(), re.M))
    for target in (word for word in arguments if "=" not in word):
        if target not in targets:
            raise WrongCommandError(f"make has no target {target}")


def _plain(
    arguments: Sequence[str], with_value: Collection[str]
) -> tuple[list[str], dict[str, list[str]]]:
    """Arguments that are no options, and the options' values."""
    plain: list[str] = []
    options: dict[str, list[str]] = {}
    words = iter(arguments)
    for word in words:
        if word == "--":
            break
        option, equals, value = word.partition("=")
        if not word.startswith("-"):
            plain.append(word)
        elif equals:
            options.setdefault(option, []).append(value)
        else:
            given = next(words, "") if option in with_value else ""
            options.setdefault(option, []).append(given)
    return plain, options


def _require_files(names: Sequence[str], files: Collection[str]) -> None:
    for name in names:
        if name not in ("-", "") and name not in files and not (ROOT / name).exists():
            raise WrongCommandError(f"nobody made the file {name}")


def _judge_kubectl(arguments: Sequence[str], files: Collection[str]) -> None:
    plain, options = _plain(arguments, KUBECTL_VALUES)
    verb = plain[0] if plain else ""
    if verb not in KUBECTL_VERBS:
        raise WrongCommandError(f"kubectl has no verb {verb!r}")
    _require_files([*options.get("-f", ()), *options.get("--filename", ())], files)
    kinds = plain[1].partition("/")[0].split(",") if verb in VERBS_OF_KINDS and plain[1:] else []
    for kind in kinds:
        if kind not in KINDS | _schemas().keys():
            raise WrongCommandError(f"kubectl knows no kind {kind}")
    schema = _schemas().get(kinds[0]) if kinds else None
    for patch in (*options.get("-p", ()), *options.get("--patch", ())):
        _judge_patch(json.loads(patch), schema)
    if schema is not None:
        for output in (*options.get("-o", ()), *options.get("--output", ())):
            for path in re.findall(r"\.((?:spec|status)[.\w]*)", output):
                _judge_path(path.split("."), schema)
    for condition in re.findall(r"condition=(\w+)", " ".join(options.get("--for", ()))):
        if f"`{condition}`" not in (ROOT / "docs/reference/conditions.md").read_text():
            raise WrongCommandError(f"there is no condition {condition}")


@functools.cache
def _schemas() -> Mapping[str, Any]:
    """Each name of our kinds -> its schema."""
    found: dict[str, Any] = {}
    for one in DEFINITIONS:
        schema = yaml.safe_load((ROOT / f"crds/{one.name}.yaml").read_text())["spec"]["versions"][0]
        names = (one.plural, one.short_name, one.model.__name__.lower())
        found |= dict.fromkeys(names, schema["schema"]["openAPIV3Schema"])
    return found


def _judge_patch(patch: Any, schema: Any) -> None:
    if schema is None or not isinstance(patch, dict):
        return
    fields = schema.get("properties")
    for key, value in patch.items():
        if fields is not None and key not in fields:
            raise WrongCommandError(f"a patch names {key}, which is no field")
        _judge_patch(value, (fields or {}).get(key))


def _judge_path(path: Sequence[str], schema: Any) -> None:
    for key in filter(None, path):
        fields = schema.get("properties")
        if fields is None:
            return
        if key not in fields:
            raise WrongCommandError(f"{'.'.join(path)} is no field")
        schema = fields[key]


def _judge_helm(arguments: Sequence[str], files: Collection[str]) -> None:
    plain, options = _plain(arguments, HELM_VALUES)
    verb = plain[0] if plain else ""
    if verb not in HELM_VERBS:
        raise WrongCommandError(f"helm has no verb {verb!r}")
    chart = plain[2] if verb in ("install", "upgrade") else "helm/spes"
    if not chart.startswith("oci://") and not (ROOT / chart / "Chart.yaml").exists():
        raise WrongCommandError(f"{chart} is no chart")
    _require_files([*options.get("-f", ()), *options.get("--values", ())], files)
    values = yaml.safe_load((ROOT / "helm/spes/values.yaml").read_text())
    for setting in options.get("--set", ()):
        found: Any = values
        for key in setting.partition("=")[0].split("."):
            if not isinstance(found, dict) or (found and key not in found):
                raise WrongCommandError(f"the chart has no value {setting.partition('=')[0]}")
            found = found.get(key, {})
