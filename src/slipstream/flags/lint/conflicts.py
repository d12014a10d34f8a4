"""Rules for settings that are accepted but have no effect, or that contradict each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from slipstream.flags.catalogue.catalogue import Catalogue, Flag
from slipstream.flags.catalogue.values import normalized
from slipstream.flags.lint.findings import LintFinding
from slipstream.flags.settings import Setting

LHS = "xla_gpu_enable_latency_hiding_scheduler"
SOL = "xla_gpu_enable_analytical_sol_latency_estimator"
PGLE_PATH = "xla_gpu_pgle_profile_file_or_directory_path"

_HOPPER_AND_BLACKWELL = ("H100", "H200", "H800", "H20", "GH200", "B100", "B200", "B300")
_NO_OPS = {
    "xla_gpu_enable_cudnn_fmha": "XLA has not matched attention patterns since February 2025; "
    "call jax.nn.dot_product_attention(…, implementation='cudnn')",
    "xla_gpu_enable_nccl_clique_optimization": "it is kept only for old scripts; remove it",
}
_NEED_DUMP_FOLDER = ("xla_dump_latency_hiding_schedule", "xla_gpu_experimental_dump_fdo_profiles")
_TRUE = frozenset(("1", "true", "yes", "on", "t", "y"))


@dataclass(frozen=True)
class LintContext:
    """The settings to check, and the jaxlib and GPU they are for."""

    settings: Sequence[Setting]
    catalogue: Catalogue
    gpu: str | None

    def last(self, name: str, like: Setting | None = None) -> Setting | None:
        """The effective setting of a name, among those that reach XLA together with `like`."""
        matches = [
            setting
            for setting in self.settings
            if setting.name == name and _is_together(setting, like)
        ]
        return matches[-1] if matches else None

    def is_on(self, name: str) -> bool:
        """Whether an environment variable is set to true."""
        setting = self.last(name)
        return setting is not None and (setting.value or "").lower() in _TRUE

    def is_off(self, name: str, like: Setting) -> bool:
        """Whether a flag is false, by its setting or else by its default."""
        setting, flag = self.last(name, like), self.catalogue.flags.get(name)
        if flag is None:
            return True
        value = flag.default if setting is None else normalized(flag, setting.value)
        return value == "false"


def _is_together(setting: Setting, like: Setting | None) -> bool:
    # Compile options are combined with XLA_FLAGS.
    return like is None or setting.kind != like.kind or setting.group == like.group


Rule = Callable[[LintContext], Iterator[LintFinding]]


def find_conflicts(
    settings: Sequence[Setting], catalogue: Catalogue, gpu: str | None
) -> list[LintFinding]:
    """The findings of all rules."""
    context = LintContext(settings, catalogue, gpu)
    return [finding for rule in RULES for finding in rule(context)]


def has_analytical_estimator(gpu: str) -> bool:
    """Whether XLA's analytical (speed-of-light) estimator supports a GPU: Hopper, Blackwell."""
    name = gpu.upper().replace("NVIDIA", "").replace("GB", "B")
    return any(model in name.replace(" ", "") for model in _HOPPER_AND_BLACKWELL)


def is_no_op(flag: Flag) -> bool:
    """Whether XLA accepts a flag and ignores it."""
    return flag.name in _NO_OPS and not flag.in_compiler_options


def _flags(context: LintContext, name: str) -> list[Setting]:
    return [
        setting
        for setting in context.settings
        if setting.name == name and setting.kind in _FLAG_KINDS
    ]


_FLAG_KINDS = ("xla_flags", "compiler_options")


def _warning(code: str, setting: Setting, message: str, fix: str | None = None) -> LintFinding:
    return LintFinding(code, "warning", setting.name, message, setting.place, fix)


def scheduler_off(context: LintContext) -> Iterator[LintFinding]:
    """The analytical estimator enables the latency-hiding scheduler."""
    estimator = context.catalogue.flags.get(SOL)
    if estimator is None or (context.gpu is not None and not has_analytical_estimator(context.gpu)):
        return
    where = context.gpu or "Hopper and Blackwell"
    for setting in _flags(context, LHS):
        if setting.is_known and context.is_off(LHS, setting) and not context.is_off(SOL, setting):
            add = (
                f'{setting.text}, "{SOL}": "False"' if setting.kind == "compiler_options" else None
            )
            message = (
                f"{LHS} is off, but on {where} the analytical estimator enables the scheduler; "
                f"add --{SOL}=false"
            )
            yield _warning("no-effect", setting, message, add or f"{setting.text} --{SOL}=false")


def scheduler_off_with_profile(context: LintContext) -> Iterator[LintFinding]:
    """A PGLE profile enables the latency-hiding scheduler."""
    for setting in _flags(context, LHS):
        profile = context.last(PGLE_PATH, setting)
        if (
            setting.is_known
            and context.is_off(LHS, setting)
            and profile is not None
            and profile.value
        ):
            message = f"{LHS} is off, but a PGLE profile enables the scheduler; remove one of them"
            yield _warning("contradictory", setting, message)


def profile_ending(context: LintContext) -> Iterator[LintFinding]:
    """XLA reads `.pb`, `.pbtxt` and folders, and silently ignores anything else."""
    for setting in _flags(context, PGLE_PATH):
        path = Path(setting.value or "")
        if (
            not setting.value
            or not setting.is_known
            or path.suffix in (".pb", ".pbtxt")
            or path.is_dir()
        ):
            continue
        message = (
            f"{PGLE_PATH} is {setting.value!r}; XLA reads files that end in .pb or .pbtxt, and "
            "folders, and silently ignores anything else; rename the file"
        )
        yield _warning("no-effect", setting, message)


def accepted_no_ops(context: LintContext) -> Iterator[LintFinding]:
    """Flags that XLA accepts only so that old scripts keep running."""
    for setting in context.settings:
        flag = context.catalogue.flags.get(setting.name)
        if flag is not None and is_no_op(flag):
            message = f"{setting.name} is accepted and does nothing: {_NO_OPS[setting.name]}"
            yield _warning("no-effect", setting, message, "")


def dump_without_folder(context: LintContext) -> Iterator[LintFinding]:
    """Dumps need a folder."""
    for name in _NEED_DUMP_FOLDER:
        for setting in _flags(context, name):
            if not context.is_off(name, setting) and context.last("xla_dump_to", setting) is None:
                message = f"{name} has no effect without a dump folder; add --xla_dump_to=FOLDER"
                yield _warning("no-effect", setting, message)


def cache_without_folder(context: LintContext) -> Iterator[LintFinding]:
    """Expecting PGLE programs in the cache needs a cache."""
    name, folder = "JAX_COMPILATION_CACHE_EXPECT_PGLE", "JAX_COMPILATION_CACHE_DIR"
    setting = context.last(name)
    if setting is not None and context.is_on(name) and context.last(folder) is None:
        message = (
            f"{name} is on, but there is no compilation cache to load programs from; set {folder} "
            "to the cache of the run with JAX_ENABLE_PGLE=true"
        )
        yield _warning("no-effect", setting, message)


def pgle_variables_alone(context: LintContext) -> Iterator[LintFinding]:
    """AutoPGLE's own settings matter only while AutoPGLE is on."""
    for name in ("JAX_PGLE_PROFILING_RUNS", "JAX_PGLE_AGGREGATION_PERCENTILE"):
        setting = context.last(name)
        if setting is not None and context.last("JAX_ENABLE_PGLE") is None:
            message = f"{name} has no effect while AutoPGLE is off; set JAX_ENABLE_PGLE=true"
            yield _warning("no-effect", setting, message)


def fraction_of_platform_memory(context: LintContext) -> Iterator[LintFinding]:
    """The platform allocator has no memory pool."""
    setting = context.last("XLA_PYTHON_CLIENT_MEM_FRACTION")
    allocator = context.last("XLA_PYTHON_CLIENT_ALLOCATOR")
    if setting is not None and allocator is not None and allocator.value == "platform":
        message = (
            f"{setting.name} sizes a memory pool, but XLA_PYTHON_CLIENT_ALLOCATOR=platform creates "
            "none; remove one of them"
        )
        yield _warning("no-effect", setting, message)


def two_memory_fractions(context: LintContext) -> Iterator[LintFinding]:
    """JAX raises an error when it creates its first GPU client, and the job ends."""
    setting = context.last("XLA_PYTHON_CLIENT_MEM_FRACTION")
    if setting is not None and context.last("XLA_CLIENT_MEM_FRACTION") is not None:
        message = (
            f"{setting.name} and XLA_CLIENT_MEM_FRACTION are both set, and JAX doesn't start with "
            f"both; remove {setting.name}, the older one"
        )
        yield LintFinding("contradictory", "abort", setting.name, message, setting.place)


def user_buffers_without_nvls(context: LintContext) -> Iterator[LintFinding]:
    """NCCL uses registered user buffers with NVLink SHARP."""
    nvls = context.last("NCCL_NVLS_ENABLE")
    for setting in _flags(context, "xla_gpu_enable_nccl_user_buffers"):
        if not context.is_off(setting.name, setting) and nvls is not None and nvls.value == "0":
            message = (
                f"{setting.name} needs NVLink SHARP for all-gather, all-reduce and reduce-scatter, "
                "but NCCL_NVLS_ENABLE is 0; set it to 1"
            )
            yield _warning("contradictory", setting, message)


def set_twice(context: LintContext) -> Iterator[LintFinding]:
    """Of two values in one flag string, the last wins."""
    for number, setting in enumerate(context.settings):
        if setting.kind not in ("xla_flags", "libtpu") or not setting.text.startswith("--"):
            continue
        later = [
            other
            for other in context.settings[number + 1 :]
            if (other.kind, other.group, other.name) == (setting.kind, setting.group, setting.name)
        ]
        if later and _differ(setting, later[-1], context.catalogue):
            message = (
                f"{setting.name} is set again on line {later[-1].place.line}, to "
                f"{later[-1].value!r}; the last one wins; remove this one"
            )
            yield _warning("contradictory", setting, message, "")


def option_over_flag(context: LintContext) -> Iterator[LintFinding]:
    """Compile options override XLA_FLAGS."""
    for setting in context.settings:
        if setting.kind != "compiler_options":
            continue
        for flag in (
            o for o in context.settings if o.kind == "xla_flags" and o.name == setting.name
        ):
            if _differ(setting, flag, context.catalogue):
                message = (
                    f"compiler_options sets {setting.name} to {setting.value!r}, which overrides "
                    "XLA_FLAGS"
                )
                yield LintFinding("contradictory", "note", setting.name, message, flag.place)


def _differ(setting: Setting, other: Setting, catalogue: Catalogue) -> bool:
    if (setting.value or "").startswith(("+", "-")) or (other.value or "").startswith("+"):
        return False
    flag = catalogue.flags.get(setting.name)
    if flag is None:
        return setting.value != other.value
    return normalized(flag, setting.value) != normalized(flag, other.value)


RULES: tuple[Rule, ...] = (
    scheduler_off,
    scheduler_off_with_profile,
    profile_ending,
    accepted_no_ops,
    dump_without_folder,
    cache_without_folder,
    pgle_variables_alone,
    fraction_of_platform_memory,
    two_memory_fractions,
    user_buffers_without_nvls,
    set_twice,
    option_over_flag,
)
