import pytest

from slipstream.doctor.doctor import MULTI_HOST_SYSCTLS, examine
from slipstream.doctor.machine_facts import (
    LocalGpu,
    MachineFacts,
    parse_xla_flags,
    read_machine_facts,
)
from slipstream.doctor.problems import LEVELS
from slipstream.outputs.terminal.doctor import doctor_json, render_doctor
from slipstream.profile.semantics.float32_products import float32_matmuls
from slipstream.sources.hlo.reader import program_from_text, read_program

H200 = LocalGpu("NVIDIA H200", "580.82.07", "9.0", 143771)
EIGHT = (H200,) * 8
PACKAGES = {"jax": "0.10.2", "jaxlib": "0.10.2", "jax-cuda13-plugin": "0.10.2"}
QUIET = {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}


def codes(environment=None, **fields):
    """The codes and levels that a machine of eight H200 gets."""
    facts = {"packages": PACKAGES, "gpus": EIGHT, "links": ("NV18",) * 28, **fields}
    found = examine(MachineFacts(**facts, environment={**QUIET, **(environment or {})}))
    return [(finding.code, finding.level) for finding in found]


def test_a_good_machine_has_no_findings():
    assert codes() == []


def test_what_is_not_known_is_not_complained_of():
    assert examine(MachineFacts(packages=PACKAGES)) == ()
    assert [finding.code for finding in examine(MachineFacts())] == ["no-jax"]


@pytest.mark.parametrize(
    ("packages", "expected"),
    [
        ({"jax": "0.10.1"}, [("jax-jaxlib", "error")]),
        ({"jax": "0.11.0"}, [("jax-jaxlib", "warning")]),
        ({"jax": "0.12.0", "jaxlib": "0.12.0.1", "jax-cuda13-plugin": "0.12.0.1"}, []),
        ({"jax-cuda13-plugin": "0.10.1"}, [("plugin-version", "error")]),
        ({"jax-cuda13-pjrt": "0.10.1"}, [("plugin-version", "error")]),
        ({"jax-cuda12-plugin": "0.10.2"}, [("two-plugins", "warning")]),
    ],
)
def test_versions(packages, expected):
    assert codes(packages=PACKAGES | packages) == expected


@pytest.mark.parametrize("kept", [12, 13])
def test_of_two_plugins_the_one_with_its_libraries_stays(kept):
    """`jax[cuda12]` brings NCCL for CUDA 12; the other plugin came with something else."""
    packages = PACKAGES | {"jax-cuda12-plugin": "0.10.2", f"nvidia-nccl-cu{kept}": "2.28.9"}
    (found,) = examine(MachineFacts(packages=packages, environment=QUIET))
    assert found.fix == f"pip uninstall jax-cuda{25 - kept}-plugin jax-cuda{25 - kept}-pjrt"


def test_a_gpu_without_a_plugin():
    assert codes(packages={"jax": "0.10.2", "jaxlib": "0.10.2"}) == [("no-plugin", "error")]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"gpus": (LocalGpu("NVIDIA H200", "575.1"),)}, [("driver", "error")]),
        ({"gpus": (H200, LocalGpu("NVIDIA H100", "580.82"))}, [("mixed-gpus", "warning")]),
        ({"links": ("PIX",) * 28}, [("no-nvlink", "note")]),
        ({"links": ("NV18", "SYS", "SYS")}, [("some-nvlink", "warning")]),
        ({"inactive_nvlinks": 2}, [("nvlink-down", "warning")]),
    ],
)
def test_gpus(fields, expected):
    assert codes(**fields) == expected


def test_who_holds_cupti():
    monitor = {"processes": ("nv-hostengine",)}

    assert codes(**monitor) == [("cupti-held", "warning")]
    assert codes({"JAX_ENABLE_PGLE": "true"}, **monitor) == [("cupti-held", "error")]
    graphs_off = {"XLA_FLAGS": "--xla_gpu_enable_command_buffer=''"}
    assert codes(graphs_off, **monitor, is_profiled=True) == [("cupti-held", "error")]


def test_nsight_and_the_jax_profiler():
    nsight = {"parents": ("python", "nsys", "bash")}

    assert codes({"JAX_ENABLE_PGLE": "1"}, **nsight) == [
        ("nsight-pgle", "error"),
        ("command-buffers", "warning"),
    ]
    assert codes({"NSYS_PROFILING_SESSION_ID": "7"}, is_profiled=True) == [
        ("nsight-profiler", "error"),
        ("command-buffers", "warning"),
    ]


def test_command_buffers_while_profiling():
    on = {"XLA_FLAGS": "--xla_enable_command_buffers_during_profiling"}
    off = {"XLA_FLAGS": "--xla_gpu_enable_command_buffer="}

    assert codes(is_profiled=True) == [("command-buffers", "warning")]
    assert codes(on) == [("command-buffers", "warning")]
    assert codes(off, is_profiled=True) == []


def test_expecting_pgle_without_a_cache():
    expect = {"JAX_COMPILATION_CACHE_EXPECT_PGLE": "yes"}
    folder = {"JAX_COMPILATION_CACHE_DIR": "cache"}

    assert codes(expect) == [("expect-pgle", "error")]
    assert codes(expect | folder) == []
    assert codes(expect | folder | {"JAX_ENABLE_COMPILATION_CACHE": "0"}) == [
        ("expect-pgle", "error")
    ]


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.9"}, []),
        ({"XLA_PYTHON_CLIENT_MEM_FRACTION": "90%"}, [("memory", "error")]),
        ({"XLA_PYTHON_CLIENT_MEM_FRACTION": "1.5"}, [("memory", "warning")]),
        ({"XLA_PYTHON_CLIENT_MEM_FRACTION": ".98"}, [("memory", "warning")]),
        ({"XLA_PYTHON_CLIENT_MEM_FRACTION": ".2"}, [("memory", "note")]),
        ({"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}, [("no-preallocation", "note")]),
        ({"XLA_PYTHON_CLIENT_ALLOCATOR": "platform"}, [("platform-allocator", "warning")]),
        ({"CUDA_DEVICE_MAX_CONNECTIONS": "8"}, [("connections", "note")]),
        ({"CUDA_DEVICE_MAX_CONNECTIONS": "8", "CUDA_VISIBLE_DEVICES": "0"}, []),
    ],
)
def test_memory_and_queues(environment, expected):
    assert codes(environment) == expected


USER_BUFFERS = {"XLA_FLAGS": "--xla_gpu_enable_nccl_user_buffers=true"}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"NCCL_P2P_DISABLE": "1"}, [("nccl-p2p", "error")]),
        ({"NCCL_P2P_LEVEL": "LOC"}, [("nccl-p2p", "error")]),
        (
            {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"},
            [("nccl-p2p", "error"), ("nccl-shm", "error")],
        ),
        (USER_BUFFERS, []),
        (USER_BUFFERS | {"NCCL_NVLS_ENABLE": "0"}, [("nccl-user-buffers", "error")]),
        (USER_BUFFERS | {"NCCL_ALGO": "Ring,Tree"}, [("nccl-algo", "warning")]),
        ({"NCCL_ALGO": "NVLS,NVLSTree", "NCCL_NVLS_ENABLE": "0"}, [("nccl-algo", "error")]),
        ({"NCCL_ALGO": "Ring"}, [("nccl-pin", "warning")]),
        ({"NCCL_PROTO": "LL"}, [("nccl-pin", "warning")]),
        ({"NCCL_PROTO": "SIMPLE,LL,LL128", "NCCL_LL_BUFFSIZE": "-2"}, []),
        ({"NCCL_PROTO": "^LL", "NCCL_LL_BUFFSIZE": "-2"}, [("nccl-pin", "note")]),
        ({"NCCL_MIN_NCHANNELS": "16", "NCCL_MAX_NCHANNELS": "8"}, [("nccl-channels", "error")]),
        (
            {
                "NCCL_MIN_NCHANNELS": "16",
                "XLA_FLAGS": "--xla_gpu_nccl_collective_max_nchannels=8",
            },
            [("nccl-channels", "warning")],
        ),
        ({"NCCL_DEBUG": "info"}, [("nccl-debug", "note")]),
        ({"NCCL_DEBUG": "TRACE"}, [("nccl-debug", "warning")]),
        ({"NCCL_DEBUG": "WARN"}, []),
    ],
)
def test_nccl(environment, expected):
    assert codes(environment) == expected


def test_nccl_between_hosts():
    hosts = {"SLURM_NNODES": "2", "SLURM_NTASKS_PER_NODE": "8"}
    ib = {"infiniband": ("mlx5_0",)}

    assert codes(hosts, **ib) == []
    assert codes(hosts | {"NCCL_IB_DISABLE": "1"}, **ib) == [("nccl-ib", "error")]
    assert codes(hosts | {"NCCL_SOCKET_IFNAME": "lo"}) == [("nccl-interface", "error")]
    assert codes(hosts | {"NCCL_LL_BUFFSIZE": "-2"}) == [("nccl-single-host", "note")]


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"SLURM_NTASKS_PER_NODE": "8"}, []),
        ({"SLURM_NTASKS_PER_NODE": "1"}, [("processes", "note")]),
        ({"SLURM_NTASKS_PER_NODE": "3"}, [("processes", "error")]),
        ({"SLURM_STEP_TASKS_PER_NODE": "16(x2)"}, [("processes", "error")]),
        ({"SLURM_NTASKS_PER_NODE": "8", "CUDA_VISIBLE_DEVICES": "3"}, []),
        ({"CUDA_VISIBLE_DEVICES": ""}, [("no-visible-gpu", "error")]),
    ],
)
def test_processes(environment, expected):
    assert codes(environment) == expected


def test_tcp_matters_between_hosts_without_infiniband_and_for_megascale():
    plain = {"sysctls": {"net.ipv4.tcp_rmem": (4096, 131072, 6291456)}}
    hosts = {"SLURM_NNODES": "2"}

    assert codes(**plain) == []
    assert codes(hosts, **plain) == [("tcp", "warning")]
    assert codes(hosts, **plain, infiniband=("mlx5_0",)) == []
    megascale = {f"MEGASCALE_{name}": "4" for name in ("NUM_SLICES", "COORDINATOR_ADDRESS")}
    megascale["MEGASCALE_SLICE_ID"] = "0"
    assert codes(megascale, **plain, infiniband=("mlx5_0",)) == [("tcp", "warning")]
    assert codes(hosts, sysctls=MULTI_HOST_SYSCTLS) == []
    (finding,) = examine(MachineFacts(PACKAGES, environment=QUIET | hosts, **plain))
    assert finding.fix == "sudo sysctl -w net.ipv4.tcp_rmem='4096 41943040 314572800'"


# Programs.

MATMULS = """
HloModule jit_step, is_scheduled=true

ENTRY main {
  a = f32[64,64]{1,0} parameter(0)
  b = bf16[64,64]{1,0} parameter(1)
  wide = f32[64,64]{1,0} dot(a, a), lhs_contracting_dims={1}, rhs_contracting_dims={0}, \
metadata={op_name="jit(step)/dot" source_file="model.py" source_line=7}
  narrow = f32[64,64]{1,0} dot(b, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT out = (f32[64,64], f32[64,64]) tuple(wide, narrow)
}
"""


def test_matmuls_left_in_float32():
    program = program_from_text(MATMULS)
    (matmul,) = float32_matmuls(program)
    (finding,) = examine(MachineFacts(PACKAGES), program)

    assert (matmul.name, matmul.source, matmul.share) == ("wide", "model.py:7", 0.5)
    assert finding.code == "float32-matmuls"
    assert finding.what == (
        "1 matmul in float32, 50% of the program's operations: wide (model.py:7), 50.0%"
    )


def test_a_product_computed_in_bfloat16_is_none_of_float32(data):
    """Its operands are float32, its algorithm is not."""
    text = MATMULS.replace(
        'metadata={op_name="jit', 'algorithm=dot_bf16_bf16_f32, metadata={op_name="jit'
    )

    assert float32_matmuls(program_from_text(text)) == ()
    assert float32_matmuls(read_program(data / "off_default.hlo.gz")) == ()


def test_a_program_in_bfloat16_is_left_alone():
    program = program_from_text(
        MATMULS.replace("f32[64,64]{1,0} parameter", "bf16[64,64] parameter")
    )

    assert float32_matmuls(program) == ()
    assert examine(MachineFacts(PACKAGES), program) == ()


# Reading a machine.

TOPOLOGY = """\
	\x1b[4mGPU0	GPU1	NIC0	CPU Affinity	NUMA Affinity\x1b[0m
GPU0	 X 	NV18	PIX	0-47	0
GPU1	NV18	 X 	SYS	0-47	0
NIC0	PIX	SYS	 X

Legend:
  X    = Self
"""
ANSWERS = {
    "--query-gpu": "NVIDIA H200, 580.82.07, 9.0, 143771\nNVIDIA H200, 580.82.07, 9.0, [N/A]\n",
    "topo": TOPOLOGY,
    "nvlink": "GPU 0: NVIDIA H200\n\t Link 0: 26.562 GB/s\n\t Link 1: <inactive>\n",
}


def answer(command):
    return next(text for word, text in ANSWERS.items() if command[1].startswith(word))


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_reading_a_machine(tmp_path):
    write(tmp_path / "proc/self/status", "Name:\tpython\nPPid:\t20\n")
    write(tmp_path / "proc/20/status", "Name:\tnsys\nPPid:\t1\n")
    write(tmp_path / "proc/20/comm", "nsys\n")
    write(tmp_path / "proc/1/status", "Name:\tinit\nPPid:\t0\n")
    write(tmp_path / "proc/1/comm", "init\n")
    write(tmp_path / "proc/30/comm", "nv-hostengine\n")
    write(tmp_path / "proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456\n")
    write(tmp_path / "sys/class/infiniband/mlx5_0", "")

    facts = read_machine_facts({"XLA_FLAGS": "--a=1"}, answer, tmp_path)

    assert facts.gpus == (H200, LocalGpu("NVIDIA H200", "580.82.07", "9.0", None))
    assert facts.links == ("NV18",)
    assert facts.inactive_nvlinks == 1
    assert facts.processes == ("nsys", "nv-hostengine")
    assert facts.parents == ("nsys", "init")
    assert facts.infiniband == ("mlx5_0",)
    assert facts.sysctls == {"net.ipv4.tcp_rmem": (4096, 131072, 6291456)}
    assert facts.xla_flags == {"a": "1"}


def test_reading_an_empty_machine_never_fails(tmp_path):
    facts = read_machine_facts({}, lambda command: None, tmp_path)

    assert (facts.gpus, facts.links, facts.processes, facts.parents) == (None,) * 4
    assert facts.sysctls == {}


def test_flags_from_text_and_from_a_file(tmp_path):
    flags = tmp_path / "flags.txt"
    flags.write_text("--xla_a=1\n--xla_b")

    assert parse_xla_flags("--xla_a=1 --xla_c='' --xla_a=2") == {"xla_a": "2", "xla_c": ""}
    assert parse_xla_flags(str(flags)) == {"xla_a": "1", "xla_b": "true"}
    assert parse_xla_flags("--xla_a='") == {"xla_a": "'"}
    assert parse_xla_flags("no-such-file") == {}


def test_findings_are_shown_worst_first_with_their_commands():
    environment = {"NCCL_DEBUG": "INFO", "NCCL_P2P_DISABLE": "1", "SECRET": "x"}
    facts = MachineFacts(PACKAGES, EIGHT, ("NV18",), environment=QUIET | environment)
    findings = examine(facts)

    assert str(render_doctor(facts, findings)).splitlines() == [
        "8 × NVIDIA H200 · driver 580.82.07 · links NV18 · jax 0.10.2 · jaxlib 0.10.2",
        "jax-cuda13-plugin 0.10.2",
        "",
        "✗ NCCL_P2P_DISABLE is 1 on a machine with NVLink",
        "  GPUs on one host then communicate through host memory, which is many times",
        "  slower",
        "    unset NCCL_P2P_DISABLE",
        "",
        "· NCCL_DEBUG is INFO",
        "  every process logs pages at startup, and TRACE logs every collective",
        "    export NCCL_DEBUG=WARN",
        "",
        "1 error, 1 note",
    ]
    shown = doctor_json(facts, findings)
    assert [finding["level"] for finding in shown["findings"]] == ["error", "note"]
    assert "SECRET" not in str(shown)
    assert LEVELS == ("error", "warning", "note")
