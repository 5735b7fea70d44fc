"""Supervision of one child process, tried on tiny Python children."""

import asyncio
import os
import sys
from datetime import timedelta

import pytest
from builders.processes import gone, make_command, written
from spes_operator.errors import ConfigError
from spes_operator.local.process import Process

DEAF = """
import pathlib, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
pathlib.Path("started").touch()
time.sleep(60)
"""
POLITE = """
import pathlib, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))
pathlib.Path("started").touch()
time.sleep(60)
"""
WITH_CHILD = """
import os, pathlib, time
child = os.fork()
if child:
    pathlib.Path("child.new").write_text(str(child))
    os.rename("child.new", "child")
time.sleep(0 if child else 60)
"""
PARENT = """
import asyncio, os, pathlib, sys
from spes_operator.local.process import Command, Process
async def main():
    here = pathlib.Path(".")
    sleep = (sys.executable, "-c", "import time; time.sleep(60)")
    sleeper = Command(arguments=sleep, environment={}, directory=here, log=here / "sleeper.log")
    process = await Process.start(sleeper)
    pathlib.Path("child.new").write_text(str(process.pid))
    os.rename("child.new", "child")
    await asyncio.sleep(60)
asyncio.run(main())
"""


def test_exit_code_and_output_are_kept(tmp_path):
    async def story():
        process = await Process.start(
            make_command(tmp_path, "print('hello', flush=True); raise SystemExit(7)")
        )
        return await process.wait()

    assert asyncio.run(story()) == 7
    assert (tmp_path / "log").read_text() == "hello\n"


def test_only_the_given_environment_is_inherited(tmp_path):
    async def story():
        command = make_command(
            tmp_path, "import os; print(os.environ.get('SPES_SECRET'), os.environ['A'])", A="1"
        )
        await (await Process.start(command)).wait()

    os.environ["SPES_SECRET"] = "leaked"
    try:
        asyncio.run(story())
    finally:
        del os.environ["SPES_SECRET"]
    assert (tmp_path / "log").read_text() == "None 1\n"


def test_stop_lets_a_polite_process_choose_its_exit_code(tmp_path):
    async def story():
        process = await Process.start(make_command(tmp_path, POLITE))
        await written(tmp_path / "started")
        return await process.stop(timedelta(seconds=20))

    assert asyncio.run(story()) == 75


def test_a_process_that_ignores_sigterm_is_killed_after_the_grace(tmp_path):
    async def story():
        process = await Process.start(make_command(tmp_path, DEAF))
        await written(tmp_path / "started")
        return await process.stop(timedelta(seconds=0.1))

    assert asyncio.run(story()) == -9


def test_what_a_process_leaves_behind_is_killed(tmp_path):
    async def story():
        process = await Process.start(make_command(tmp_path, WITH_CHILD))
        child = int(await written(tmp_path / "child"))
        await process.wait()
        await gone(child)

    asyncio.run(story())


def test_a_child_dies_with_its_parent(tmp_path):
    async def story():
        parent = await asyncio.create_subprocess_exec(sys.executable, "-c", PARENT, cwd=tmp_path)
        child = int(await written(tmp_path / "child"))
        parent.kill()
        await parent.wait()
        await gone(child)

    asyncio.run(story())


def test_a_missing_program_is_named(tmp_path):
    command = make_command(tmp_path, "")
    with pytest.raises(ConfigError, match="'spes-nothing' not found"):
        asyncio.run(Process.start(replace_program(command, "spes-nothing")))


def replace_program(command, program):
    return type(command)(
        arguments=(program,),
        environment=command.environment,
        directory=command.directory,
        log=command.log,
    )
