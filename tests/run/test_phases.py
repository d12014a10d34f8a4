"""What is told before the job is started."""

import pytest

from slipstream.run.context import Context
from slipstream.run.phases import _tell
from slipstream.run.preflight import Preflight
from slipstream.run.settings import Settings


@pytest.mark.parametrize(
    ("command", "is_told"),
    [(("/usr/bin/srun", "-n", "2", "python", "x.py"), True), (("python", "srun"), False)],
)
def test_a_launcher_belongs_in_front_of_us(command, is_told, tmp_path):
    said = []
    context = Context(Settings(command, tmp_path), lambda phase, text: said.append(text))
    _tell(context, Preflight({}, (), {}, "0.10.2", (), ()))
    assert any("srun … slipstream run -- python" in text for text in said) == is_told
    assert bool(context.notes) == is_told
