"""`hack/kind/docker_archive.py`: a folder as an image, as `docker load` and containerd take it."""

import hashlib
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

SCRIPT = Path(__file__).parents[3] / "hack/kind/docker_archive.py"


def packed(folder, root, *options):
    target = folder / "image.tar"
    subprocess.run(
        [sys.executable, str(SCRIPT), str(target), "example/one:1", str(root), *options],
        check=True,
        timeout=50,
    )
    return target


def make_root(folder):
    root = folder / "root"
    (root / "bin").mkdir(parents=True)
    (root / "bin/one").write_bytes(b"program")
    (root / "bin/one").chmod(0o755)
    (root / "bin/two").symlink_to("one")
    return root


def test_an_image_says_truly_what_is_in_it(tmp_path):
    image = packed(tmp_path, make_root(tmp_path), "--entrypoint", "/bin/one")
    with tarfile.open(image) as archive:
        (manifest,) = json.load(archive.extractfile("manifest.json"))
        config = json.load(archive.extractfile(manifest["Config"]))
        (layer,) = manifest["Layers"]
        content = archive.extractfile(layer).read()
        with tarfile.open(fileobj=archive.extractfile(layer)) as files:
            program, link = files.getmember("bin/one"), files.getmember("bin/two")
    assert manifest["RepoTags"] == ["example/one:1"]
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(content).hexdigest()}"]
    assert config["config"]["Entrypoint"] == ["/bin/one"]
    assert (program.mode, program.uid, link.linkname) == (0o755, 0, "one")


def test_equal_folders_give_equal_images(tmp_path):
    images = []
    for name, age in (("a", 0), ("b", 10**9)):
        folder = tmp_path / name
        folder.mkdir()
        root = make_root(folder)
        os.utime(root / "bin/one", (age, age))
        images.append(packed(folder, root).read_bytes())
    assert images[0] == images[1]
