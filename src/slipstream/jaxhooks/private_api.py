"""The private parts of JAX that Slipstream uses, in one table.

Nothing outside `slipstream.jaxhooks` touches them; other rooms call the functions of `compiling`,
`custom_calls`, `custom_partitioning`, `hlo`, `stages`, `distributed`, `profiler`, `target_device`,
`dry_run` and `hooks`. To support another JAX, run tests/jaxhooks with it: a part that is missing or
changed fails there by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from slipstream.jaxhooks.compat import Feature, PrivatePart


def require(*features: Feature) -> None:
    """Check every part that these features need; JaxChanged for the first that is not right."""
    for part in parts():
        if part.feature in features:
            part.get()


def parts() -> Iterator[PrivatePart]:
    """Every row of the table."""
    yield from (value for value in globals().values() if isinstance(value, PrivatePart))


def exclude_from_tracebacks(folder: Path) -> None:
    """Leave the frames of a folder out of tracebacks, as JAX does with its own."""
    REGISTER_EXCLUSION.get()(str(folder))


# What stands between a call of a jitted function and the device.

COMPILE_OR_GET_CACHED = PrivatePart(
    "jax._src.compiler", "compile_or_get_cached", Feature.WATCHING,
    "Every program that JAX compiles passes through it; wrapped to learn of each.",
    ("backend", "computation", "compile_options", "host_callbacks", "executable_devices"),
)  # fmt: skip
EXECUTE_REPLICATED = PrivatePart(
    "jax._src.interpreters.pxla", "ExecuteReplicated", Feature.WATCHING,
    "Runs a program from Python; given another executable, it runs that.",
    attributes=("xla_executable",),
)  # fmt: skip
EXECUTE_CALL = PrivatePart(
    "jax._src.interpreters.pxla", "ExecuteReplicated.__call__", Feature.WATCHING,
    "One run of a program; wrapped so that listeners stand around it.",
    ("self",),
)  # fmt: skip
EXECUTE_INIT = PrivatePart(
    "jax._src.interpreters.pxla", "ExecuteReplicated.__init__", Feature.WATCHING,
    "Tells which object of JAX runs a program, and so when nobody can run it any more.",
    ("self", "xla_executable"),
)  # fmt: skip
MESH_EXECUTABLE = PrivatePart(
    "jax._src.interpreters.pxla", "MeshExecutable", Feature.WATCHING,
    "What JAX keeps of a compiled program; gets the executable that was chosen.",
    attributes=("xla_executable", "unsafe_call"),
)  # fmt: skip
CREATE_CPP_CALL = PrivatePart(
    "jax._src.interpreters.pxla", "MeshExecutable.create_cpp_call", Feature.WATCHING,
    "The fast path of an ahead-of-time compiled program; withheld while it is measured.",
    ("self", "params"),
)  # fmt: skip
MESH_COMPUTATION_COMPILE = PrivatePart(
    "jax._src.interpreters.pxla", "MeshComputation.compile", Feature.WATCHING,
    "Where JAX meets a program again that it compiled before anybody watched.",
    ("self",),
)  # fmt: skip
FASTPATH_DATA = PrivatePart(
    "jax._src.pjit", "_get_fastpath_data", Feature.WATCHING,
    "The fast path of a jitted function; withheld while its program is measured.",
    ("executable",),
)  # fmt: skip
NEED_TO_REBUILD = PrivatePart(
    "jax._src.pjit", "_need_to_rebuild_with_fdo", Feature.WATCHING,
    "Makes the C++ side ask for a fast path again, which was withheld before.",
    ("pgle_profiler",),
)  # fmt: skip
COMPILED_CALL = PrivatePart(
    "jax.stages", "Compiled.call", Feature.WATCHING,
    "Runs an ahead-of-time compiled program through Python while it is measured.",
)  # fmt: skip
MODULE_TO_BYTECODE = PrivatePart(
    "jax._src.interpreters.mlir", "module_to_bytecode", Feature.WATCHING,
    "A program's StableHLO as bytes, kept to compile it again.",
    ("module",), is_called=True,
)  # fmt: skip

# Programs that were compiled before anybody watched, and ahead-of-time programs.

CACHED_COMPILATION = PrivatePart(
    "jax._src.interpreters.pxla", "_cached_compilation", Feature.ADOPTING,
    "JAX's cache of compiled programs, told to forget one so that JAX shows how it compiles it.",
    attributes=("evict_weakref",),
)  # fmt: skip
MESH_COMPUTATION = PrivatePart(
    "jax._src.interpreters.pxla", "MeshComputation", Feature.ADOPTING,
    "A lowered program and what was compiled from it.",
    instance_attributes=("_hlo", "_executable"),
)  # fmt: skip
LOWERED = PrivatePart(
    "jax.stages", "Lowered", Feature.ADOPTING,
    "Leads from what `.lower()` returned to the lowering inside.",
    attributes=("_lowering",),
)  # fmt: skip
COMPILED = PrivatePart(
    "jax.stages", "Compiled", Feature.ADOPTING,
    "Leads from what `.compile()` returned to its executable, and to the fast path it keeps.",
    attributes=("_executable",), instance_attributes=("_call",),
)  # fmt: skip
PJIT_FUNCTION = PrivatePart(
    "jaxlib._jax", "PjitFunction", Feature.ADOPTING,
    "A jitted function, made to forget fast paths that pass the hooks by.",
    attributes=("_clear_cache",),
)  # fmt: skip

# Compiling.

MAKE_IR_CONTEXT = PrivatePart(
    "jax._src.interpreters.mlir", "make_ir_context", Feature.STABLEHLO,
    "An MLIR context that knows the dialects of JAX's programs.",
    is_called=True,
)  # fmt: skip
IR = PrivatePart(
    "jaxlib.mlir", "ir", Feature.STABLEHLO,
    "MLIR's Python bindings, for reading and changing StableHLO.",
    attributes=("Module", "Location", "StringAttr"),
)  # fmt: skip
COMPILE_OPTIONS = PrivatePart(
    "jaxlib.xla_client", "CompileOptions", Feature.RECOMPILING,
    "How JAX compiled a program, with flags and costs changed for another variant.",
    attributes=(
        "ParseFromString", "SerializeAsString", "env_option_overrides", "executable_build_options",
    ),
)  # fmt: skip
BACKEND_COMPILE = PrivatePart(
    "jax._src.compiler", "backend_compile_and_load", Feature.RECOMPILING,
    "Compiles a program for the devices of the job, past JAX's caches.",
    ("backend", "module", "executable_devices", "options", "host_callbacks"), is_called=True,
)  # fmt: skip
GET_COMPILE_OPTIONS = PrivatePart(
    "jax._src.compiler", "get_compile_options", Feature.COMPILING,
    "The options that JAX itself would compile with.",
    ("num_replicas", "num_partitions", "device_assignment", "env_options_overrides", "backend"),
    is_called=True,
)  # fmt: skip
DEVICE_LIST = PrivatePart(
    "jaxlib.xla_client", "DeviceList", Feature.COMPILING,
    "The devices that a program is compiled for, in order.",
)  # fmt: skip
TOPOLOGY_FOR_DEVICES = PrivatePart(
    "jaxlib.xla_client", "get_topology_for_devices", Feature.COMPILING,
    "Describes devices, so that XLA can compile for them elsewhere.",
)  # fmt: skip
JIT_FUNCTION = PrivatePart(
    "jaxlib._jax", "PjitFunction", Feature.INSPECTING,
    "A jitted function, which holds the shardings that it was given.",
    instance_attributes=("_jit_info",),
)  # fmt: skip
JIT_INFO = PrivatePart(
    "jax._src.pjit", "PjitInfo", Feature.INSPECTING,
    "The shardings of a jitted function's arguments, before it is traced.",
    instance_attributes=("in_shardings_treedef", "in_shardings_leaves"),
)  # fmt: skip
DCE_JAXPR = PrivatePart(
    "jax.interpreters.partial_eval", "dce_jaxpr", Feature.INSPECTING,
    "Removes dead code from a jaxpr, as XLA does later.",
    ("jaxpr", "used_outputs", "instantiate"), is_called=True,
)  # fmt: skip
LOWERED_TO_COMPILE = PrivatePart(
    "jax.stages", "Lowered", Feature.COMPILING,
    "Leads from what `.lower()` returned to the lowering inside.",
    attributes=("_lowering",),
)  # fmt: skip
LOWERING_TO_COMPILE = PrivatePart(
    "jax._src.interpreters.pxla", "MeshComputation", Feature.COMPILING,
    "The devices and compiler options that a function was lowered for.",
    instance_attributes=("_device_list", "_compiler_options_kvs"),
)  # fmt: skip
REGISTER_CUSTOM_CALL = PrivatePart(
    "jaxlib.xla_client", "register_custom_call_target", Feature.COMPILING,
    "Names that XLA can call, for kernels of libraries that are not here.",
    ("name", "fn", "platform", "api_version"), is_called=True,
)  # fmt: skip

# Lowering for a GPU that is not here.

CUDNN_VERSION = PrivatePart(
    "jax._src.cudnn.fused_attention_stablehlo", "check_cudnn_version", Feature.TARGET_GPU,
    "The version of cuDNN, answered for the target.",
    is_called=True,
)  # fmt: skip
CAPABILITY_AT_LEAST = PrivatePart(
    "jax._src.cudnn.fused_attention_stablehlo", "check_compute_capability", Feature.TARGET_GPU,
    "Whether the GPU is at least of a generation, answered for the target.",
    ("capability",), is_called=True,
)  # fmt: skip
CAPABILITY_EQUAL = PrivatePart(
    "jax._src.cudnn.fused_attention_stablehlo", "is_cuda_compute_capability_equal",
    Feature.TARGET_GPU,
    "Whether the GPU is of a generation, answered for the target.",
    ("capability",), is_called=True,
)  # fmt: skip
DEFAULT_DEVICE = PrivatePart(
    "jax.extend.backend", "get_default_device", Feature.TARGET_GPU,
    "The GPU whose generation and cores Pallas kernels ask for, answered for the target.",
    is_called=True,
)  # fmt: skip
LOWERING_BACKEND = PrivatePart(
    "jax._src.interpreters.mlir", "ModuleContext.get_backend", Feature.TARGET_GPU,
    "The client that host callbacks ask for and don't use, of a device that is not here.",
    ("self", "optional"), is_called=True,
)  # fmt: skip
DEVICE_MEMORIES = PrivatePart(
    "jaxlib.xla_client", "DeviceList", Feature.MEMORIES,
    "Takes devices that are written in Python, and asks them for their memories.",
    attributes=("default_memory_kind", "memory_kinds"),
)  # fmt: skip
LOWER_COMPUTATION = PrivatePart(
    "jax._src.interpreters.pxla", "lower_sharding_computation", Feature.DRY_RUN,
    "Every function that JAX lowers passes through it; told to lower for another platform.",
    ("closed_jaxpr", "lowering_platforms"),
)  # fmt: skip
LOWERED_COMPUTATION = PrivatePart(
    "jax._src.interpreters.pxla", "MeshComputation", Feature.DRY_RUN,
    "A function lowered for another platform, whose program must not be run.",
    instance_attributes=("_hlo",),
)  # fmt: skip
RUN_REPLICATED = PrivatePart(
    "jax._src.interpreters.pxla", "ExecuteReplicated", Feature.DRY_RUN,
    "Says what the results of a program are, instead of running it.",
    attributes=("xla_executable", "out_handler", "mut"),
)  # fmt: skip
RESULTS_HANDLER = PrivatePart(
    "jax._src.interpreters.pxla", "ResultsHandler", Feature.DRY_RUN,
    "The shapes and shardings of a program's results, and how JAX makes arrays of them.",
    attributes=("handlers", "out_shardings", "out_avals"),
)  # fmt: skip
FUNC_DIALECT = PrivatePart(
    "jaxlib.mlir.dialects", "func", Feature.DRY_RUN,
    "Makes a program that computes nothing.",
    attributes=("ReturnOp",),
)  # fmt: skip
STABLEHLO_DIALECT = PrivatePart(
    "jaxlib.mlir.dialects", "stablehlo", Feature.DRY_RUN,
    "Makes a program that computes nothing.",
    attributes=("ConstantOp",),
)  # fmt: skip
DEVICE = PrivatePart(
    "jaxlib._jax", "Device", Feature.DRY_RUN,
    "A device, which names the target as its kind.",
    attributes=("platform", "device_kind"),
)  # fmt: skip
PARTITION_RULE = PrivatePart(
    "jax._src.custom_partitioning", "_custom_partitioning_partition", Feature.PARTITIONING,
    "How a call of a library is divided among devices, asked while XLA partitions a program.",
    ("arg_shapes", "arg_shardings", "result_shape", "result_sharding", "backend_string"),
    is_called=True,
)  # fmt: skip
PROPAGATE_RULE = PrivatePart(
    "jax._src.custom_partitioning", "_custom_partitioning_propagate_user_sharding",
    Feature.PARTITIONING,
    "The sharding of such a call, from that of its users.",
)  # fmt: skip
INFER_RULE = PrivatePart(
    "jax._src.custom_partitioning", "_custom_partitioning_infer_sharding_from_operands",
    Feature.PARTITIONING,
    "The sharding of such a call, from those of its arguments.",
)  # fmt: skip
REGISTER_PARTITIONER = PrivatePart(
    "jaxlib.xla_client", "register_custom_call_partitioner", Feature.PARTITIONING,
    "Tells XLA whom to ask about calls of one name.",
)  # fmt: skip
REGISTER_WITH_PLUGINS = PrivatePart(
    "jax._src.xla_bridge", "register_plugin_callbacks", Feature.PARTITIONING,
    "Tells XLA in the GPU plugin, too.",
    ("callback",), is_called=True,
)  # fmt: skip
HLO_SHARDING = PrivatePart(
    "jaxlib.xla_client", "HloSharding", Feature.PARTITIONING,
    "A sharding as XLA has it, from text.",
    attributes=("from_string",),
)  # fmt: skip
TRITON_DIALECT = PrivatePart(
    "jaxlib.triton.dialect", "register_dialect", Feature.PALLAS,
    "Lets MLIR read the code of Pallas kernels for Triton.",
)  # fmt: skip
MOSAIC_DIALECT = PrivatePart(
    "jaxlib.mosaic.python.mosaic_gpu", "register_dialect", Feature.PALLAS,
    "Lets MLIR read the code of Pallas kernels for Mosaic GPU.",
)  # fmt: skip

# HLO.

HLO_TO_STABLEHLO = PrivatePart(
    "jaxlib._jax", "mlir.hlo_to_stablehlo", Feature.HLO,
    "Published HLO in the form that today's compiler takes.",
)  # fmt: skip
HLO_FROM_TEXT = PrivatePart(
    "jaxlib._hlo", "hlo_module_from_text", Feature.HLO,
    "XLA's own parser of HLO text.",
)  # fmt: skip
HLO_MODULE = PrivatePart(
    "jaxlib._hlo", "HloModule", Feature.HLO,
    "XLA's own printer of HLO text.",
    attributes=("from_serialized_hlo_module_proto", "to_string"),
)  # fmt: skip

# Profiler, processes, tracebacks.

START_TRACE = PrivatePart(
    "jax._src.profiler", "start_trace", Feature.GIVING_WAY,
    "Wrapped to end a session of ours before the job starts its own.",
    ("log_dir",),
)  # fmt: skip
GLOBAL_STATE = PrivatePart(
    "jax._src.distributed", "global_state", Feature.CONSENSUS,
    "Leads to the client of JAX's coordination service.",
    attributes=("client",),
)  # fmt: skip
COORDINATION_CLIENT = PrivatePart(
    "jaxlib._jax", "DistributedRuntimeClient", Feature.CONSENSUS,
    "The key-value store in which the processes of a job agree.",
    attributes=(
        "key_value_set_bytes", "blocking_key_value_get_bytes", "key_value_try_get_bytes",
        "key_value_dir_get_bytes",
    ),
)  # fmt: skip
INITIALIZE = PrivatePart(
    "jax._src.distributed", "initialize", Feature.LAYOUTS,
    "Wrapped to give a process the rank and devices of the layout that is timed.",
    ("coordinator_address", "num_processes", "process_id", "local_device_ids"),
)  # fmt: skip
REGISTER_EXCLUSION = PrivatePart(
    "jax._src.traceback_util", "register_exclusion", Feature.TRACEBACKS,
    "JAX leaves its own frames out of the job's tracebacks, and then ours too.",
    ("path",), is_called=True,
)  # fmt: skip
