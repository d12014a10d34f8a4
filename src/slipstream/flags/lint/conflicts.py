"""Settings that are accepted and change nothing, or that fight each other: a list of rules."""

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
    "xla_gpu_enable_cudnn_fmha": "XLA has not looked for attention patterns since February 2025; "
    "call jax.nn.dot_product_attention(…, implementation='cudnn')",
    "xla_gpu_enable_nccl_clique_optimization": "it is kept for old scripts only; leave it out",
}
_NEED_DUMP_FOLDER = ("xla_dump_latency_hiding_schedule", "xla_gpu_experimental_dump_fdo_profiles")
_TRUE = frozenset(("1", "true", "yes", "on", "t", "y"))


@dataclass(frozen=True)
class LintContext:
    """What the rules look at."""

    found: Sequence[Setting]
    catalogue: Catalogue
    gpu: str | None

    def last(self, name: str, like: Setting | None = None) -> Setting | None:
        """The setting of a name that counts, of those that reach XLA together with `like`."""
        matches = [one for one in self.found if one.name == name and _is_together(one, like)]
        return matches[-1] if matches else None

    def is_on(self, name: str) -> bool:
        """Whether an environment variable says yes."""
        one = self.last(name)
        return one is not None and (one.value or "").lower() in _TRUE

    def is_off(self, name: str, like: Setting) -> bool:
        """Whether a flag says no; what nobody set is what the catalogue says."""
        one, flag = self.last(name, like), self.catalogue.flags.get(name)
        if flag is None:
            return True
        value = flag.default if one is None else normalized(flag, one.value)
        return value == "false"


def _is_together(one: Setting, like: Setting | None) -> bool:
    # A compile option joins whatever XLA_FLAGS says.
    same = like is None or one.kind != like.kind or one.group == like.group
    return same


Rule = Callable[[LintContext], Iterator[LintFinding]]


def find_conflicts(
    found: Sequence[Setting], catalogue: Catalogue, gpu: str | None
) -> list[LintFinding]:
    """What the rules find."""
    context = LintContext(found, catalogue, gpu)
    return [finding for rule in RULES for finding in rule(context)]


def has_analytical_estimator(gpu: str) -> bool:
    """Whether XLA knows the speed of light of a GPU: Hopper and Blackwell."""
    name = gpu.upper().replace("NVIDIA", "").replace("GB", "B")
    return any(model in name.replace(" ", "") for model in _HOPPER_AND_BLACKWELL)


def is_no_op(flag: Flag) -> bool:
    """Whether XLA accepts a flag and does nothing with it."""
    return flag.name in _NO_OPS and not flag.in_compiler_options


def _flags(context: LintContext, name: str) -> list[Setting]:
    return [one for one in context.found if one.name == name and one.kind in _FLAG_KINDS]


_FLAG_KINDS = ("xla_flags", "compiler_options")


def _warning(code: str, one: Setting, message: str, fix: str | None = None) -> LintFinding:
    return LintFinding(code, "warning", one.name, message, one.place, fix)


def scheduler_off(context: LintContext) -> Iterator[LintFinding]:
    """The analytical estimator switches the scheduler on by itself."""
    estimator = context.catalogue.flags.get(SOL)
    if estimator is None or (context.gpu is not None and not has_analytical_estimator(context.gpu)):
        return
    where = context.gpu or "Hopper and Blackwell"
    for one in _flags(context, LHS):
        if one.is_known and context.is_off(LHS, one) and not context.is_off(SOL, one):
            add = f'{one.text}, "{SOL}": "False"' if one.kind == "compiler_options" else None
            message = (
                f"{LHS} is off, but on {where} the analytical estimator switches the scheduler on; "
                f"add --{SOL}=false"
            )
            yield _warning("no-effect", one, message, add or f"{one.text} --{SOL}=false")


def scheduler_off_with_profile(context: LintContext) -> Iterator[LintFinding]:
    """So does a profile."""
    for one in _flags(context, LHS):
        profile = context.last(PGLE_PATH, one)
        if one.is_known and context.is_off(LHS, one) and profile is not None and profile.value:
            message = (
                f"{LHS} is off, but a PGLE profile switches the scheduler on; drop one of them"
            )
            yield _warning("contradictory", one, message)


def profile_ending(context: LintContext) -> Iterator[LintFinding]:
    """XLA reads `.pb`, `.pbtxt` and folders, and ignores the rest without a word."""
    for one in _flags(context, PGLE_PATH):
        path = Path(one.value or "")
        if not one.value or not one.is_known or path.suffix in (".pb", ".pbtxt") or path.is_dir():
            continue
        message = (
            f"{PGLE_PATH} is {one.value!r}; XLA reads a file that ends in .pb or .pbtxt, or a "
            "folder, and ignores everything else without a word; rename the file"
        )
        yield _warning("no-effect", one, message)


def accepted_no_ops(context: LintContext) -> Iterator[LintFinding]:
    """Names that XLA accepts so that old scripts run."""
    for one in context.found:
        flag = context.catalogue.flags.get(one.name)
        if flag is not None and is_no_op(flag):
            message = f"{one.name} is accepted and does nothing: {_NO_OPS[one.name]}"
            yield _warning("no-effect", one, message, "")


def dump_without_folder(context: LintContext) -> Iterator[LintFinding]:
    """What is dumped needs a place."""
    for name in _NEED_DUMP_FOLDER:
        for one in _flags(context, name):
            if not context.is_off(name, one) and context.last("xla_dump_to", one) is None:
                message = f"{name} writes nothing without a folder; add --xla_dump_to=FOLDER"
                yield _warning("no-effect", one, message)


def cache_without_folder(context: LintContext) -> Iterator[LintFinding]:
    """Nothing can be expected of a cache that isn't there."""
    name, folder = "JAX_COMPILATION_CACHE_EXPECT_PGLE", "JAX_COMPILATION_CACHE_DIR"
    one = context.last(name)
    if one is not None and context.is_on(name) and context.last(folder) is None:
        message = (
            f"{name} is on, but there is no compilation cache to find a program in; set {folder} "
            "to the folder that the run with JAX_ENABLE_PGLE=true wrote"
        )
        yield _warning("no-effect", one, message)


def pgle_variables_alone(context: LintContext) -> Iterator[LintFinding]:
    """How AutoPGLE profiles matters once AutoPGLE is on."""
    for name in ("JAX_PGLE_PROFILING_RUNS", "JAX_PGLE_AGGREGATION_PERCENTILE"):
        one = context.last(name)
        if one is not None and context.last("JAX_ENABLE_PGLE") is None:
            message = f"{name} does nothing while AutoPGLE is off; set JAX_ENABLE_PGLE=true"
            yield _warning("no-effect", one, message)


def fraction_of_platform_memory(context: LintContext) -> Iterator[LintFinding]:
    """The platform allocator has no pool."""
    one = context.last("XLA_PYTHON_CLIENT_MEM_FRACTION")
    allocator = context.last("XLA_PYTHON_CLIENT_ALLOCATOR")
    if one is not None and allocator is not None and allocator.value == "platform":
        message = (
            f"{one.name} sizes a pool that XLA_PYTHON_CLIENT_ALLOCATOR=platform doesn't make; "
            "drop one of them"
        )
        yield _warning("no-effect", one, message)


def two_memory_fractions(context: LintContext) -> Iterator[LintFinding]:
    """JAX raises when it makes its first GPU client, and the job ends."""
    one = context.last("XLA_PYTHON_CLIENT_MEM_FRACTION")
    if one is not None and context.last("XLA_CLIENT_MEM_FRACTION") is not None:
        message = (
            f"{one.name} and XLA_CLIENT_MEM_FRACTION are both set, and JAX refuses to start with "
            f"both; leave out {one.name}, the older one"
        )
        yield LintFinding("contradictory", "abort", one.name, message, one.place)


def user_buffers_without_nvls(context: LintContext) -> Iterator[LintFinding]:
    """NCCL registers user buffers for NVLink SHARP."""
    nvls = context.last("NCCL_NVLS_ENABLE")
    for one in _flags(context, "xla_gpu_enable_nccl_user_buffers"):
        if not context.is_off(one.name, one) and nvls is not None and nvls.value == "0":
            message = (
                f"{one.name} wants NVLink SHARP for all-gather, all-reduce and reduce-scatter, but "
                "NCCL_NVLS_ENABLE is 0; set it to 1"
            )
            yield _warning("contradictory", one, message)


def set_twice(context: LintContext) -> Iterator[LintFinding]:
    """Of two values in one string the last wins."""
    for number, one in enumerate(context.found):
        if one.kind not in ("xla_flags", "libtpu") or not one.text.startswith("--"):
            continue
        later = [
            other
            for other in context.found[number + 1 :]
            if (other.kind, other.group, other.name) == (one.kind, one.group, one.name)
        ]
        if later and _differ(one, later[-1], context.catalogue):
            message = (
                f"{one.name} is set again in line {later[-1].place.line}, to {later[-1].value!r}; "
                "the last one wins; remove this one"
            )
            yield _warning("contradictory", one, message, "")


def option_over_flag(context: LintContext) -> Iterator[LintFinding]:
    """Compile options are applied on top of XLA_FLAGS."""
    for one in context.found:
        if one.kind != "compiler_options":
            continue
        for flag in (o for o in context.found if o.kind == "xla_flags" and o.name == one.name):
            if _differ(one, flag, context.catalogue):
                message = (
                    f"compiler_options sets {one.name} to {one.value!r}, which wins over XLA_FLAGS"
                )
                yield LintFinding("contradictory", "note", one.name, message, flag.place)


def _differ(one: Setting, other: Setting, catalogue: Catalogue) -> bool:
    if (one.value or "").startswith(("+", "-")) or (other.value or "").startswith("+"):
        return False
    flag = catalogue.flags.get(one.name)
    if flag is None:
        return one.value != other.value
    return normalized(flag, one.value) != normalized(flag, other.value)


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
