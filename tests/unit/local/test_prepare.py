"""What `spes run` refuses before it starts anything, and what it leaves of earlier runs."""

from pathlib import Path

import pytest
import yaml
from spes_api.loading import load_job, load_members
from spes_operator.errors import ConfigError
from spes_operator.local import prepare as preparing
from spes_operator.local.events import parse_event
from spes_operator.local.prepare import DEFAULT_MEMBERS, Options
from spes_operator.local.rundir import RunDir, RunLock
from spes_operator.local.saved import Progress

EXAMPLES = Path(__file__).parents[3] / "examples"
JOB = EXAMPLES / "moe-tiny.yaml"


def fine(*_):
    return []


def prepare(given, look=fine):
    return preparing.prepare(given, look)


def options(tmp_path, **changes):
    given = {"job": JOB, "members": EXAMPLES / "members.yaml", "output": tmp_path / "run"}
    return Options(**{**given, **changes})


def edited(tmp_path, change):
    """The example job after `change` of its spec."""
    job = yaml.safe_load(JOB.read_text())
    change(job["spec"])
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(job))
    return path


def problems(tmp_path, **changes):
    look = changes.pop("look", fine)
    with pytest.raises(ConfigError) as caught:
        prepare(options(tmp_path, **changes), look)
    assert not (tmp_path / "run").exists()
    return str(caught.value).splitlines()


def finish(prepared):
    Progress(finished=True, datasets={}).save(prepared.folder.progress)
    prepared.lock.release()


def test_a_good_run_gets_its_folder(tmp_path):
    event = "uni-d joins @ round 12"
    prepared = prepare(options(tmp_path, events=(event,)))
    assert load_job(prepared.folder.job).spec == load_job(JOB).spec
    assert load_members(prepared.folder.members) == prepared.members
    saved = Progress.load(prepared.folder.progress)
    assert (saved.pending, saved.absent) == ((parse_event(event),), {"uni-d"})
    prepared.lock.release()


def test_the_default_members_are_those_of_the_examples():
    assert load_members(DEFAULT_MEMBERS) == load_members(EXAMPLES / "members.yaml")


def test_every_problem_gets_its_line(tmp_path):
    lines = problems(
        tmp_path,
        events=("uni-x joins @ round 2", "uni-a sings @ round 2"),
        datasets={"books": tmp_path},
    )
    assert len(lines) == 3
    assert "got 'sings'" in lines[0]
    assert "got 'uni-x', expected one of uni-a, uni-b, uni-c, uni-d" in lines[1]
    assert "--dataset books: the job reads no such dataset (it reads none)" in lines[2]


def test_an_unknown_preset_is_named(tmp_path):
    job = edited(tmp_path, lambda spec: spec["model"].update(preset="moe-huge"))
    (line,) = problems(tmp_path, job=job)
    assert "spec.model.preset must be one of" in line
    assert "moe-huge" in line


def test_experts_that_no_memory_is_left_for_are_counted(tmp_path):
    events = tuple(f"uni-{one} joins @ round 3" for one in "ad")
    (line,) = problems(tmp_path, events=events)
    assert "8 experts need an owner, the peers at the start have room for 6: uni-b.0 4" in line


def test_only_as_many_peers_as_the_job_takes_give_room(tmp_path):
    job = edited(tmp_path, lambda spec: spec.update(members={"min": 1, "max": 1}))
    prepare(options(tmp_path, job=job)).lock.release()  # uni-a alone has room for 8
    events = ("uni-a joins @ round 3",)
    (line,) = problems(tmp_path / "other", job=job, events=events)
    assert "room for 4: uni-b.0 4;" in line


def test_too_few_members_at_the_start_are_refused(tmp_path):
    events = tuple(f"uni-{one} joins @ round 3" for one in "bcd")
    (line,) = problems(tmp_path, events=events)
    assert "spec.members.min must be at most" in line
    assert "got 2, there are 1: uni-a.0" in line


def test_members_that_join_by_the_clock_count_for_the_start(tmp_path):
    events = tuple(f"uni-{one} joins @ 3 s" for one in "bcd")
    prepare(options(tmp_path, events=events)).lock.release()


@pytest.mark.parametrize(
    ("path", "complaint"),
    [
        pytest.param("nothing", "does not exist", id="missing"),
        pytest.param("hollow", "nothing to train on", id="empty"),
    ],
)
def test_data_that_is_not_there_is_refused(tmp_path, path, complaint):
    (tmp_path / "hollow").mkdir()
    (tmp_path / "hollow" / "empty.txt").touch()
    (line,) = problems(tmp_path, data=tmp_path / path)
    assert complaint in line
    assert str(tmp_path / path) in line


def test_a_path_of_the_command_line_is_named_with_its_option(tmp_path):
    (line,) = problems(tmp_path, data=tmp_path / "gone")
    assert line == (
        f"--data: {tmp_path / 'gone'} does not exist; give a file, or a folder with files to "
        "train on"
    )


def test_what_the_data_hold_is_looked_at_last(tmp_path):
    def look(*_):
        return ["too little"]

    assert problems(tmp_path, look=look) == ["too little"]
    (line,) = problems(tmp_path, look=look, events=("uni-x joins @ round 2",))
    assert "uni-x" in line


def test_a_dataset_that_is_not_given_is_named(tmp_path):
    source = {"dataset": {"name": "books"}}
    job = edited(tmp_path, lambda spec: spec["data"].update(sources=[source]))
    (line,) = problems(tmp_path, job=job)
    assert "add --dataset books=PATH" in line


def test_what_a_job_reads_beside_its_sources_is_looked_for(tmp_path):
    def change(spec):
        spec["data"].update(
            include="*",
            sources=[{"dataset": {"name": "books"}}],
            tokenizer={"path": "tokenizer.json"},
        )
        spec["model"] = {"upcycleFrom": {"dataset": {"name": "qwen"}, "preset": "moe-tiny"}}

    (tmp_path / "books").mkdir()
    (tmp_path / "books" / "a.txt").write_text("text")
    job = edited(tmp_path, change)
    weights, tokenizer = problems(tmp_path, job=job, datasets={"books": tmp_path / "books"})
    assert "spec.model.upcycleFrom.dataset: dataset 'qwen' is not given" in weights
    assert f"{tmp_path / 'books' / 'tokenizer.json'} does not exist" in tokenizer


def test_data_replaces_the_sources_of_the_job(tmp_path):
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt").write_text("text")
    prepared = prepare(options(tmp_path, data=tmp_path / "texts"))
    prepared.lock.release()
    assert prepared.job.spec.data.include == "*"
    assert load_job(prepared.folder.job) == prepared.job
    assert prepared.progress.datasets == {"data": tmp_path / "texts"}


def test_a_run_in_progress_is_refused_naming_its_holder(tmp_path):
    prepared = prepare(options(tmp_path))
    with pytest.raises(ConfigError, match=r"in use by another `spes run` \(process \d+\)"):
        prepare(options(tmp_path))
    prepared.lock.release()


def test_an_unfinished_run_is_not_overwritten(tmp_path):
    prepare(options(tmp_path)).lock.release()
    with pytest.raises(ConfigError, match=r"not finished; go on with `spes run --resume"):
        prepare(options(tmp_path))


def test_a_finished_run_is_kept_under_another_name(tmp_path):
    for number in range(3):
        prepared = prepare(options(tmp_path))
        (prepared.folder.root / "mark").write_text(str(number))
        finish(prepared)
    assert (tmp_path / "run.1" / "mark").read_text() == "0"
    assert (tmp_path / "run.2" / "mark").read_text() == "1"
    assert prepared.notices == (f"{tmp_path / 'run'} held a finished run; it is now "
                                f"{tmp_path / 'run.2'}",)  # fmt: skip


def test_a_folder_with_other_things_is_left_alone(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.tex").touch()
    with pytest.raises(ConfigError, match="holds no run"):
        prepare(options(tmp_path))
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["thesis.tex"]


def test_what_a_start_left_that_never_began_is_in_nobodys_way(tmp_path):
    first = prepare(options(tmp_path))
    first.lock.release()
    first.folder.progress.rename(tmp_path / "run" / "run.json.new")
    prepare(options(tmp_path)).lock.release()
    assert first.folder.progress.exists()


@pytest.mark.parametrize("where", ["data", "output", "resume"])
def test_a_path_that_no_system_takes_is_refused_in_one_line(tmp_path, where):
    path = tmp_path / ("a" * 300)
    given = Options(resume=path) if where == "resume" else options(tmp_path, **{where: path})
    with pytest.raises(ConfigError, match="File name too long"):
        prepare(given)


def test_links_that_lead_nowhere_are_no_data(tmp_path):
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "gone").symlink_to(tmp_path / "nowhere")
    (folder / "loop").symlink_to(folder / "loop")
    (line,) = problems(tmp_path, data=folder)
    assert f"nothing to train on in {folder}" in line
    (line,) = problems(tmp_path, data=folder / "loop")
    assert "loop does not exist" in line
    (folder / "text").write_text("text")
    prepare(options(tmp_path, data=folder)).lock.release()


def test_an_output_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be written"):
        prepare(options(tmp_path, output=tmp_path / "file" / "run"))


def test_a_run_is_resumed_with_what_it_had_and_new_events(tmp_path):
    first = prepare(options(tmp_path, events=("uni-d joins @ round 12",)))
    first.lock.release()
    again = prepare(Options(resume=first.folder.root, events=("uni-a crashes @ round 20",)))
    again.lock.release()
    assert (again.job, again.members, again.resumed) == (first.job, first.members, True)
    assert [str(event) for event in again.progress.pending] == [
        "uni-d joins @ round 12",
        "uni-a crashes @ round 20",
    ]


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        pytest.param({"job": JOB}, "either FILE", id="both"),
        pytest.param({"resume": None}, "either FILE", id="neither"),
        pytest.param({"data": JOB}, "--data: .* has its own", id="other data"),
        pytest.param({"resume": EXAMPLES}, "holds no run", id="no run"),
    ],
)
def test_a_resume_that_cannot_be_meant_is_refused(tmp_path, changes, complaint):
    prepare(options(tmp_path)).lock.release()
    with pytest.raises(ConfigError, match=complaint):
        prepare(Options(**{"resume": tmp_path / "run", **changes}))


def test_a_run_without_its_keys_is_not_resumed(tmp_path):
    first = prepare(options(tmp_path))
    first.lock.release()
    first.folder.cluster.write_text("{}")
    with pytest.raises(ConfigError, match=r"/tls is missing, .* restore it"):
        prepare(Options(resume=first.folder.root))


def test_a_run_that_has_lost_its_model_is_not_begun_anew(tmp_path):
    first = prepare(options(tmp_path))
    first.lock.release()
    (first.folder.peer("uni-a.0") / "checkpoints").mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"sync/HEAD is missing, though peers have trained"):
        prepare(Options(resume=first.folder.root))


def test_a_damaged_file_of_the_sync_server_is_named_at_once(tmp_path):
    first = prepare(options(tmp_path))
    first.lock.release()
    first.folder.sync.mkdir()
    (first.folder.sync / "plan.json").write_text("{}")
    (first.folder.sync / "ready.json").write_text("{")
    (first.folder.sync / "tokens.json").write_text('{"tokens": {')
    with pytest.raises(
        ConfigError, match=r"^\S*sync/tokens\.json is damaged .*; restore it"
    ) as caught:
        prepare(Options(resume=first.folder.root))
    assert len(str(caught.value).splitlines()) == 1


def test_a_finished_run_is_not_resumed(tmp_path):
    finish(prepare(options(tmp_path)))
    with pytest.raises(ConfigError, match="is finished"):
        prepare(Options(resume=tmp_path / "run"))


def test_a_lock_can_be_taken_again_once_released(tmp_path):
    folder = RunDir(tmp_path)
    RunLock.take(folder).release()
    RunLock.take(folder).release()
