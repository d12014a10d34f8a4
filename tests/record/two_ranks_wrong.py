"""Why is the loss of `examples/gpt.py` no number from step 1 on, on two ranks of a GPU?

    PYTHONPATH=$PWD/src python tests/record/two_ranks_wrong.py OUT [--cpu]

Trains a few steps in variants, several at once, each on two ranks that share the GPU (`--cpu`:
gloo, tiny, no flags), and says for each: the losses, which leaves of the state are no numbers
after the first step, how far the gradient of the norms is from a single process's, at even and at
odd places, and which bitcasts of its optimised program change the number of bytes. `checks` tries
a small program that has the same trouble, collectives on known data, and each rank's gradients
before any of them.

What is expected: XLA's pass `all-reduce-contiguous` lays the operands of a combined all-reduce side
by side as if all had the type of the first. The gradients of the norms are bf16 and come with f32
ones, so two bf16 are added as one f32: the odd ones are nearly right, the even ones are noise, and
some of those no numbers
(https://github.com/openxla/xla/blob/main/xla/hlo/transforms/collectives/all_reduce_contiguous.cc).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SIZES = dict(LAYERS=2, WIDTH=512, HEADS=4, WORDS=8192, TOKENS=512, BATCH=2)
TINY = dict(LAYERS=2, WIDTH=64, HEADS=4, WORDS=128, TOKENS=32, BATCH=2)
STEPS = 4
BYTES = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "s32": 4, "u32": 4, "f32": 4, "s64": 8}


@dataclass(frozen=True)
class Variant:
    """One way to run it; `flags` are XLA's and left out on a CPU."""

    name: str
    flags: str = ""
    more: dict[str, str] = field(default_factory=dict)
    ranks: int = 2


VARIANTS = [
    # The batch of both ranks in one process: what is right.
    Variant("single", more={"GPT_BATCH": "4"}, ranks=1),
    Variant("default"),
    Variant("not contiguous", "--xla_disable_hlo_passes=all-reduce-contiguous"),
    Variant("norms in f32", more={"WRONG_WIDE": "1"}),
    Variant("not combined", "--xla_gpu_all_reduce_combine_threshold_bytes=0"),
    Variant("checks", more={"WRONG_CHECKS": "1"}),
    Variant("no graphs", "--xla_gpu_enable_command_buffer="),
    Variant("synchronous", "--xla_gpu_disable_async_collectives=ALLCOLLECTIVES"),
    Variant("ring, simple", more={"NCCL_PROTO": "Simple", "NCCL_ALGO": "Ring"}),
    Variant(
        "no scheduler",
        "--xla_gpu_enable_latency_hiding_scheduler=false "
        "--xla_gpu_enable_analytical_sol_latency_estimator=false",
    ),
    Variant("no autotuning", "--xla_gpu_autotune_level=0"),
    Variant("no Triton", "--xla_gpu_enable_triton_gemm=false"),
    Variant("wide", more={"GPT_WIDTH": "2048", "GPT_HEADS": "16"}),
]


# One rank.


def told(**facts: object) -> None:
    print("FACT " + json.dumps(facts), flush=True)


def rank() -> None:
    import gpt
    import jax

    if jax.config.jax_platforms == "cpu":
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
    gpt.join_others()
    told(jax=jax.__version__, device=jax.devices()[0].device_kind)
    if "WRONG_CHECKS" in os.environ:
        check_small()
        check_collectives()
        check_own_gradients(gpt)
    else:
        train(gpt)


def train(gpt) -> None:
    import jax

    if "WRONG_WIDE" in os.environ:
        gpt.loss_of = loss_with_norms_in_f32(gpt)
    step, abstract, tokens = gpt.build(jax.devices())
    state = gpt.initial_state(abstract)
    words = abstract["params"]["embedding"].shape[0]
    batch = jax.jit(
        lambda: jax.random.randint(jax.random.key(1), tokens.shape, 0, words),
        out_shardings=tokens.sharding,
    )()
    step = step.lower(state, batch).compile()
    text = step.as_text()
    reduces = re.findall(r"= (\S.*?) all-reduce(?:-start)?\(", text)
    told(bitcasts=wrong_bitcasts(text), all_reduces=[shape[:120] for shape in reduces])
    for number in range(STEPS):
        state, loss = step(state, batch)
        told(step=number, loss=float(loss))
        if number == 0:
            told(odd=odd_leaves(state))
            told(norm=gradient_of_norms(state))


def loss_with_norms_in_f32(gpt):
    """`gpt.loss_of`, but only matrices become bf16, so that no all-reduce mixes types."""
    import jax
    import jax.numpy as jnp

    def loss_of(run, keep, gather):
        def loss(params, tokens):
            small = jax.tree.map(lambda weight: weight.astype(jnp.bfloat16), params)
            small["layers"]["norm"], small["final"] = params["layers"]["norm"], params["final"]
            embedding = gather(small["embedding"])
            hidden = run(keep(embedding[tokens[:, :-1]]), small["layers"])
            logits = (gpt.normalised(hidden, small["final"]) @ embedding.T).astype(jnp.float32)
            right = jnp.take_along_axis(logits, tokens[:, 1:, None], -1)[..., 0]
            return jnp.mean(jax.nn.logsumexp(logits, -1) - right)

        return loss

    return loss_of


def wrong_bitcasts(text: str) -> list[str]:
    """Those whose result has another number of bytes than what they read."""

    def size(shape: str) -> int:
        kind, _, sides = shape.rstrip("]").partition("[")
        return BYTES.get(kind, 0) * math.prod(int(side) for side in sides.split(",") if side)

    found = []
    for computation in text.split("\n}\n"):
        shapes = dict(re.findall(r"%?([\w.\-]+) = (\w+\[[\d,]*\])", computation))
        casts = re.findall(r"= (\w+\[[\d,]*\])\S* bitcast\(%?([\w.\-]+)\)", computation)
        for shape, operand in casts:
            read = shapes.get(operand, shape)
            if size(read) != size(shape):
                found.append(f"{read} as {shape}")
    return found


def here(leaf):
    """This rank's part, in float32."""
    import numpy as np

    return np.asarray(leaf.addressable_data(0)).astype(np.float32)


def odd_leaves(state) -> dict[str, str]:
    """Leaves with values that are no numbers or infinite, and how many."""
    import jax
    import numpy as np

    found = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(state):
        values = here(leaf)
        if wrong := int((~np.isfinite(values)).sum()):
            name = ".".join(str(getattr(key, "key", key)) for key in path)
            nans = int(np.isnan(values).sum())
            found[name] = f"{nans} NaN, {wrong - nans} inf of {values.size}"
    return found


def gradient_of_norms(state) -> list[float]:
    """That of the first step, from the first moment, which began at zero."""
    return [float(value) for value in here(state["first"]["layers"]["norm"]).ravel() / 0.1]


def check_small() -> None:
    """The least program that shows it: two rows of a bf16 weight, and a f32 one, data parallel."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import Mesh, NamedSharding
    from jax.sharding import PartitionSpec as P

    def loss(weights, x):
        scale = weights["scale"].astype(jnp.bfloat16)
        return jnp.mean(jnp.sin(jnp.tanh(x * scale[0]) * scale[1]) * weights["final"])

    random = np.random.default_rng(0)
    x = random.normal(size=(64, 512)).astype(np.float32)
    weights = {"scale": np.ones((2, 512), np.float32), "final": np.ones(512, np.float32)}
    right = np.asarray(jax.jit(jax.grad(loss))(weights, x)["scale"]).ravel()
    mesh = Mesh(np.array(jax.devices()), ("rank",))
    cut, whole = NamedSharding(mesh, P("rank")), NamedSharding(mesh, P())

    def spread(array, sharding):
        return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])

    given = jax.tree.map(lambda leaf: spread(leaf, whole), weights), spread(x, cut)
    run = jax.jit(jax.grad(loss), out_shardings=whole).lower(*given).compile()
    far = ~(np.abs(here(run(*given)["scale"]).ravel() - right) < 0.02 * np.abs(right).max())
    wrong = {"even": int(far[::2].sum()), "odd": int(far[1::2].sum()), "of each": far.size // 2}
    told(bitcasts=wrong_bitcasts(run.as_text()))
    told(collectives="the small program's gradient", wrong=wrong)


def check_collectives() -> None:
    """Sums of small whole numbers are exact in every type, whatever the order."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import Mesh, NamedSharding
    from jax.sharding import PartitionSpec as P

    mesh = Mesh(np.array(jax.devices()), ("rank",))
    cut, ranks = NamedSharding(mesh, P("rank")), mesh.devices.size
    large = 2**12 if jax.devices()[0].platform == "cpu" else 2**21
    for dtype in (jnp.float32, jnp.bfloat16):
        for each in (8, large):
            full = (np.arange(ranks * each) * 7 % 31).astype(np.float32)
            data = jax.make_array_from_callback(
                full.shape, cut, lambda index, full=full, dtype=dtype: full[index].astype(dtype)
            )
            total = full.reshape(ranks, each).sum(0)

            def three(x, each=each):
                scattered = jax.lax.psum_scatter(x, "rank", tiled=True)
                both = jax.lax.psum((x, 2 * x[: each // 2]), "rank")
                gathered = jax.lax.all_gather(x, "rank", tiled=True)
                return (*both, scattered, gathered[None])

            run = jax.shard_map(three, mesh=mesh, in_specs=P("rank"), out_specs=P("rank"))
            got = [here(leaf).ravel() for leaf in jax.jit(run)(data)]
            me, part = jax.process_index(), each // ranks
            right = [total, 2 * total[: each // 2], total[me * part : (me + 1) * part], full]
            names = ("psum", "psum of a tuple", "psum_scatter", "all_gather")
            wrong = {
                name: int((a != b).sum()) for name, a, b in zip(names, got, right, strict=True)
            }
            told(collectives=f"{np.dtype(dtype).name} x {each}", wrong=wrong)


def check_own_gradients(gpt) -> None:
    """Of this rank's sequences alone, without any collective."""
    import jax

    local = jax.local_devices()
    _, abstract, tokens = gpt.build(local)
    params = gpt.initial_state(abstract)["params"]
    rows, words = tokens.shape[0], abstract["params"]["embedding"].shape[0]
    whole = (rows * jax.process_count(), tokens.shape[1])

    def keep(hidden):
        return hidden

    loss = gpt.loss_of(gpt.layers_in_turn(gpt.Model.for_devices(local), keep), keep, keep)

    def own(params):
        batch = jax.random.randint(jax.random.key(1), whole, 0, words)
        mine = jax.lax.slice_in_dim(
            batch, rows * jax.process_index(), rows * (jax.process_index() + 1)
        )
        return jax.value_and_grad(loss)(params, mine)

    value, gradients = jax.jit(own)(params)
    told(step=0, loss=float(value))
    told(odd=odd_leaves(gradients))


# All of them.


def environment(variant: Variant, number: int, meet: str, cpu: bool) -> dict[str, str]:
    ours = ("SLIPSTREAM", "SLURM_", "OMPI_", "PMI", "GPT_", "WRONG_")
    plain = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
    sizes = {f"GPT_{k}": str(v) for k, v in (TINY if cpu else SIZES).items()}
    machine = {
        "NCCL_HOSTID": f"{variant.name}{number}", "NCCL_SOCKET_IFNAME": "lo",
        "NCCL_IB_DISABLE": "1", "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "XLA_PYTHON_CLIENT_MEM_FRACTION": ".05",
        "XLA_FLAGS": f"{plain.get('XLA_FLAGS', '')} {variant.flags}".strip(),
    }  # fmt: skip
    if cpu:
        machine = {"JAX_PLATFORMS": "cpu"}
    meeting = {"GPT_RANK": str(number), "GPT_RANKS": str(variant.ranks), "GPT_MEET": meet}
    more = {} if cpu and "GPT_WIDTH" in variant.more else variant.more
    path = os.pathsep.join([str(ROOT / "examples"), plain.get("PYTHONPATH", "")])
    return {
        **plain, **sizes, **machine, **(meeting if variant.ranks > 1 else {}), **more,
        "PYTHONPATH": path, "TF_CPP_MIN_LOG_LEVEL": "2",
    }  # fmt: skip


class Running:
    """The ranks of a variant."""

    def __init__(self, variant: Variant, logs: Path, cpu: bool, end_s: float) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            meet = f"127.0.0.1:{free.getsockname()[1]}"
        self.variant, self.began_s, self.end_s = variant, time.monotonic(), end_s
        name = variant.name.replace(", ", "_").replace(" ", "_")
        self.logs = [logs / f"{name}.{number}.txt" for number in range(variant.ranks)]
        self.ranks = []
        for number, file in enumerate(self.logs):
            with file.open("w") as log:
                self.ranks.append(
                    subprocess.Popen(
                        [sys.executable, "-u", __file__, "--rank"], stdout=log,
                        stderr=subprocess.STDOUT, start_new_session=True,
                        env=environment(variant, number, meet, cpu),
                    )
                )  # fmt: skip

    def over(self) -> bool:
        """Whether all have ended; they are made to, all of them, at the time limit."""
        if any(one.poll() is None for one in self.ranks):
            if time.monotonic() < self.end_s:
                return False
            for one in self.ranks:
                with suppress(ProcessLookupError):
                    os.killpg(one.pid, signal.SIGKILL)
        self.codes = [one.wait() for one in self.ranks]
        self.took_s = time.monotonic() - self.began_s
        return True

    def found(self) -> dict[str, object]:
        logs = [file.read_text(errors="replace") for file in self.logs]
        ranks = [facts_of(log) for log in logs]
        said = {"exit": self.codes, "seconds": round(self.took_s, 1), "ranks": ranks}
        if any(self.codes):
            lines = [line for line in "\n".join(logs).splitlines() if "FACT " not in line]
            told_why = [line for line in lines if "rror" in line or "nknown flag" in line]
            said["error"] = (told_why or lines or ["no word of why"])[0][:300]
            said["end"] = [log[-800:] for log in logs]
        return said


def facts_of(log: str) -> dict[str, object]:
    facts: dict[str, object] = {"losses": [], "wrong": {}}
    for line in log.splitlines():
        if line.startswith("FACT "):
            one = json.loads(line.removeprefix("FACT "))
            if "loss" in one:
                facts["losses"].append(one["loss"])
            elif "collectives" in one:
                facts["wrong"][one["collectives"]] = one["wrong"]
            else:
                facts |= one
    return facts


def run_all(given: argparse.Namespace) -> dict[str, dict[str, object]]:
    began_s, waiting, running, found = time.monotonic(), list(given.variants), [], {}
    last_s = began_s + given.seconds
    while waiting or running:
        while waiting and len(running) < given.at_once and time.monotonic() < last_s - 15:
            end_s = min(time.monotonic() + given.limit, last_s)
            running.append(Running(waiting.pop(0), given.logs, given.cpu, end_s))
        for one in [one for one in running if one.over()]:
            running.remove(one)
            found[one.variant.name] = one.found()
        if waiting and not running and time.monotonic() >= last_s - 15:
            print("no time for: " + ", ".join(variant.name for variant in waiting))
            break
        time.sleep(0.1)
    return {v.name: found[v.name] for v in given.variants if v.name in found}


def errors_of_norms(facts: dict[str, object], right: list[float] | None) -> str:
    """Largest difference from the single process at even and odd places, over its largest value."""
    got = facts.get("norm")
    if not got or not right or len(got) != len(right):
        return "-"
    scale = max(map(abs, right))
    sides = []
    for first in (0, 1):
        pairs = list(zip(got[first::2], right[first::2], strict=True))
        nans = sum(math.isnan(a) for a, _ in pairs)
        worst = max((abs(a - b) for a, b in pairs if not math.isnan(a)), default=0.0) / scale
        sides.append(f"{worst:.0e}" + (f"+{nans}NaN" if nans else ""))
    return "/".join(sides)


def show(found: dict[str, dict[str, object]]) -> None:
    right = found.get("single", {}).get("ranks", [{}])[0].get("norm")
    print(f"{'variant':15} {'s':>4} {'exit':>8}  losses; bad bitcasts; norms even/odd; not finite")
    for name, one in found.items():
        first = one["ranks"][0]
        losses = " ".join(f"{loss:.4f}" for loss in first["losses"]) or "no losses"
        casts = first.get("bitcasts")
        cells = [losses, "?" if casts is None else f"{len(casts)} bad"]
        cells.append(errors_of_norms(first, right))
        odd = first.get("odd")
        cells.append("?" if odd is None else f"{len(odd)} leaves")
        codes = ",".join(map(str, one["exit"]))
        print(f"{name:15} {one['seconds']:4.0f} {codes:>8}  " + "; ".join(cells))
        for number, facts in enumerate(one["ranks"]):
            for leaf, count in list((facts.get("odd") or {}).items())[:4]:
                print(f"    rank {number}: {leaf}: {count}"[:110])
        for cast in (casts or [])[:2]:
            print(f"    bitcast: {cast}")
        for kind, wrong in first["wrong"].items():
            print(f"    {kind}: wrong values {wrong}"[:150])
        if "error" in one:
            print(f"    {one['error'][:150]}")


def verdict(found: dict[str, dict[str, object]]) -> str:
    def finite(name: str) -> bool | None:
        losses = found.get(name, {}).get("ranks", [{}])[0].get("losses", [])
        return all(map(math.isfinite, losses)) if len(losses) > 1 else None

    default, fixed = finite("default"), finite("not contiguous")
    casts = found.get("default", {}).get("ranks", [{}])[0].get("bitcasts")
    if default is None or casts is None:
        return "can't tell: the default variant gave no two losses"
    if default:
        bad = " though its program has bitcasts that change size" if casts else ""
        return f"not seen here: the default variant's losses are numbers{bad}"
    if casts and fixed:
        return "all-reduce-contiguous: its bitcasts change size, and without it losses are numbers"
    if casts and fixed is None:
        return "all-reduce-contiguous, likely: its bitcasts change size; the run without it failed"
    if casts:
        return "not that pass alone: without it, losses are no numbers either"
    return "something else: no bitcast of the default program changes size"


def main() -> None:
    if "--rank" in sys.argv:
        rank()
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", help="names of variants, with commas that no space follows")
    parser.add_argument("--at-once", type=int, default=6)
    parser.add_argument("--limit", type=float, default=40.0, help="seconds for a variant")
    parser.add_argument("--seconds", type=float, default=70.0, help="for all of them")
    parser.add_argument("--cpu", action="store_true")
    given = parser.parse_args()
    given.out = given.out.resolve()
    given.out.mkdir(parents=True, exist_ok=True)
    wanted = re.split(r",(?! )", given.only) if given.only else [v.name for v in VARIANTS]
    given.variants = [variant for variant in VARIANTS if variant.name in wanted]
    with tempfile.TemporaryDirectory() as logs:
        given.logs = Path(logs)
        found = run_all(given)
    show(found)
    said = verdict(found)
    print(f"verdict: {said}")
    for one in found.values():
        for facts in one["ranks"]:
            facts.pop("norm", None)
            # JSON has no NaN.
            facts["losses"] = [repr(loss) for loss in facts["losses"]]
    file = given.out / "two_ranks_wrong.json"
    file.write_text(json.dumps({"verdict": said, "variants": found}, indent=1, allow_nan=False))


if __name__ == "__main__":
    main()
