"""The search for secrets finds one, wherever it is, and takes nothing else for one."""

import base64
import os
import subprocess

from builders.leaks import leaks, processes_below, words_of_secrets

TOKEN = "eyJhbGciOiJFUzI1NiJ9.eyJhdWQiOiJhIn0.c2lnbmF0dXJl"
KEY = "MHcCAQEEIBmVbWqJ0pVTcQhY0mTqv5pP5Yw5n1mMEo3oAoGCCqGSM49"


def secret(**files):
    data = {name.replace("_", "."): base64.b64encode(text.encode()) for name, text in files.items()}
    return {"metadata": {"namespace": "spes", "name": "a"}, "data": data}


def test_a_secret_in_a_text_is_found():
    words = words_of_secrets([secret(token=TOKEN)])
    assert leaks(words, {"log": f"using {TOKEN}\n"}) == ["spes/a:token is in log"]
    assert leaks(words, {"log": "using a token\n"}) == []


def test_a_line_of_a_private_key_is_one():
    pem = f"-----BEGIN EC PRIVATE KEY-----\n{KEY}\n-----END EC PRIVATE KEY-----\n"
    words = words_of_secrets([secret(tls_key=pem, tls_crt=TOKEN)])
    assert words == {KEY: "spes/a:tls.key"}


def test_of_a_kubeconfig_the_credentials_alone_are_secret():
    kubeconfig = f"users: [{{user: {{token: {TOKEN}}}}}]\nca: {KEY}\n"
    assert words_of_secrets([secret(kubeconfig=kubeconfig)]).keys() == {TOKEN}


def test_arguments_and_environment_of_descendants_are_read():
    with subprocess.Popen(["sleep", "60"], env={"SECRET": TOKEN}) as process:
        texts = dict(processes_below(os.getpid()))
        process.kill()
    assert "60" in texts[f"cmdline of {process.pid}"]
    assert TOKEN in texts[f"environ of {process.pid}"]
