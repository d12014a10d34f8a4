"""Checks before a job starts: each way to run it reports the same warnings."""

import pytest

from slipstream.run.layouts import run_layouts
from slipstream.run.preflight import check_job, job_warnings
from slipstream.run.run import run
from slipstream.run.settings import Settings
from slipstream.run.simulated import run_simulated


@pytest.mark.parametrize(
    ("command", "is_told"),
    [(("/usr/bin/srun", "-n", "2", "python", "x.py"), True), (("python", "srun"), False)],
)
def test_a_launcher_belongs_in_front_of_us(command, is_told):
    told = job_warnings(command, "0.10.2")
    assert any("srun … slipstream run -- python" in text for text in told) == is_told


@pytest.mark.parametrize(
    ("jaxlib", "told"),
    [
        (None, []),
        ("0.10.0", []),
        ("0.10.2", []),
        ("0.4.38", ["JAX 0.4.38 is older than 0.10"]),
        ("0.13.0", ["JAX 0.13.0 is newer than"]),
    ],
)
def test_a_jax_that_is_too_old_or_untested(jaxlib, told):
    found = job_warnings(("python",), jaxlib)
    assert len(found) == len(told) and all(map(str.startswith, found, told))


def test_flags_that_only_libtpu_reads_stop_no_job(tmp_path, monkeypatch):
    monkeypatch.setenv("LIBTPU_INIT_ARGS", "--xla_tpu_of_yesterday=1")
    found = check_job(Settings(("true",), tmp_path, presets=("tpu-vmem-dense",)))

    args = "--xla_tpu_scoped_vmem_limit_kib=98304 --xla_tpu_of_yesterday=1"
    assert found.environment == {"LIBTPU_INIT_ARGS": args}


@pytest.mark.parametrize("way", ["run", "simulate", "layouts"])
def test_every_way_to_run_a_job_reports_what_keeps_us_out_of_it(way, tmp_path, monkeypatch):
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=2")
    said = []
    settings = Settings(("env", "-i", "true"), tmp_path / "out", rounds=1)

    def say(phase, text):
        said.append((phase, text))

    if way == "simulate":
        ended = run_simulated(settings, "1xH200", say)
    else:
        ended = run(settings, say) if way == "run" else run_layouts(settings, say)
    (warning,) = (text for phase, text in said if "nothing will be measured: env -i" in text)
    assert said.index(("", warning)) < min(i for i, (p, _) in enumerate(said) if p == "verdict")
    assert warning in ended.receipt.notes
    assert "Slipstream was never loaded inside the job: env -i removes" in ended.receipt.why
    assert ended.code == 0
