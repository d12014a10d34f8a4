"""Man pages: the whole page of a small command, every command has one, and groff accepts them."""

import shutil
import subprocess

import pytest
import typer.main

from slipstream.cli.command_tree import command_tree
from slipstream.cli.main import app
from slipstream.cli.man_pages import main, man_page, man_pages

SMALL = {
    "name": "show", "command": "tool show", "summary": "Show a file.", "default": None,
    "help": "Show a file.\n\n.dots, back\\slashes and --dashes stay.", "commands": [],
    "parameters": [
        {"kind": "argument", "name": "path", "metavar": "PATH", "flags": [], "off_flags": [],
         "takes_value": True, "help": "What to show.", "choices": [], "default": None},
        {"kind": "option", "name": "top", "metavar": "N", "flags": ["--top", "-n"],
         "off_flags": [], "takes_value": True, "help": "Rows.", "choices": [], "default": 20},
        {"kind": "option", "name": "all", "metavar": None, "flags": ["--all"], "off_flags": [],
         "takes_value": False, "help": "", "choices": [], "default": False},
    ],
}  # fmt: skip
PAGE = r"""
.TH "TOOL-SHOW" 1 "" "Slipstream 1.0"
.SH NAME
tool\-show \- Show a file
.SH SYNOPSIS
.B tool show
[OPTIONS] PATH
.SH DESCRIPTION
Show a file.
.PP
\&.dots, back\eslashes and \-\-dashes stay.
.SH ARGUMENTS
.TP
\fBPATH\fR
What to show.
.SH OPTIONS
.TP
\fB\-\-top, \-n N\fR
Rows. Default: 20.
.TP
\fB\-\-all\fR
\&
.SH EXIT STATUS
""".lstrip()


def test_a_page_as_a_whole():
    assert man_page(SMALL, "1.0").startswith(PAGE)


def test_every_command_has_a_page():
    tree = command_tree(typer.main.get_command(app), ["slipstream"])
    pages = man_pages(tree, "1.0")
    assert {"slipstream.1", "slipstream-run.1", "slipstream-flags-lint.1"} <= set(pages)
    assert r"\fBslipstream\-run\fR" in pages["slipstream.1"]
    assert r"\-\-profile\-first" in pages["slipstream-run.1"]


def test_groff_accepts_them(tmp_path, capsys):
    assert main([str(tmp_path / "man1")]) == 0
    assert "pages in" in capsys.readouterr().out
    if shutil.which("groff") is None:
        pytest.skip("not installed: groff")
    files = sorted(map(str, (tmp_path / "man1").iterdir()))
    words = ["groff", "-k", "-man", "-ww", "-z", *files]
    done = subprocess.run(words, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_usage():
    assert main([]) == 2
