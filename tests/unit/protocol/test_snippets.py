"""Commands to copy are words of a shell, whatever names they hold."""

import shlex
from pathlib import Path

import pytest

from gateway.protocol.snippets import curl, file_word

NAMES = ["acme.share", "-rf.share", "--help", "a;reboot.share", "$(reboot).share", "it's.share", "`x`.share"]


@pytest.mark.parametrize("name", NAMES)
def test_the_name_of_a_file_is_one_word_and_no_option(name: str) -> None:
    (word,) = shlex.split(file_word(name))
    assert Path(word) == Path(name)
    assert not word.startswith("-")


@pytest.mark.parametrize("name", NAMES)
def test_the_command_of_curl_reads_that_file(name: str) -> None:
    assert file_word(name) in curl(Path(name), "https://share.example/shares/a'b/all-tables")
