"""Files with secrets, whatever befalls whoever writes them."""

import os
import stat

import pytest
from spes_api.private_files import private_draft, write_private


def names(folder):
    return [path.name for path in folder.iterdir()]


def test_a_file_is_replaced_whole_and_stays_private(tmp_path):
    path = tmp_path / "token"
    before = os.umask(0)
    try:
        for data in (b"one", b"two"):
            write_private(path, data)
            assert path.read_bytes() == data
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
    finally:
        os.umask(before)
    assert names(tmp_path) == ["token"]


def test_a_file_that_others_could_read_is_private_from_now_on(tmp_path):
    path = tmp_path / "token"
    path.write_bytes(b"old")
    path.chmod(0o644)
    write_private(path, b"new")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_old_file_stays_if_the_new_one_cannot_be_written(tmp_path):
    path = tmp_path / "token"
    write_private(path, b"old")

    def write_half():
        with private_draft(path) as draft:
            draft.write_bytes(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_half()
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["token"]


def test_what_a_killed_process_left_is_in_nobodys_way(tmp_path):
    (tmp_path / ".token.new").write_bytes(b"half")
    write_private(tmp_path / "token", b"whole")
    assert (tmp_path / "token").read_bytes() == b"whole"
    assert names(tmp_path) == ["token"]


def test_a_link_in_its_place_leads_nowhere(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(b"untouched")
    for name in (".token.new", "token"):
        (tmp_path / name).symlink_to(elsewhere)
    write_private(tmp_path / "token", b"secret")
    assert elsewhere.read_bytes() == b"untouched"
    assert not (tmp_path / "token").is_symlink()


def test_a_folder_that_takes_no_file_is_said_at_once(tmp_path):
    with pytest.raises(FileNotFoundError), private_draft(tmp_path / "missing/token"):
        pytest.fail("nothing may be done before")
