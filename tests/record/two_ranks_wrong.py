"""Why is the loss of `examples/gpt.py` no number from step 1 on, on two ranks of a GPU?

    PYTHONPATH=$PWD/src python tests/record/two_ranks_wrong.py OUT [--cpu]

Trains a few steps in variants, two at once, each on two ranks that share the GPU (`--cpu`: gloo,
tiny, no flags), and says for each: the losses, how many leaves of the state are not finite after
the first step, and which bitcasts of its program change the number of bytes. `checks` tries a small
program that has the same trouble, and sums of known data.

What is expected is what `slipstream.analyses.soundness` finds: XLA's pass `all-reduce-contiguous`
lays bf16 beside f32 as if it were f32, so two bf16 are added as one f32: the odd ones are nearly
right, the even ones are noise, and some of those no numbers.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
SIZES = dict(LAYERS=2, WIDTH=512, HEADS=4, WORDS=8192, TOKENS=512, BATCH=2)
TINY = dict(LAYERS=2, WIDTH=64, HEADS=4, WORDS=128, TOKENS=32, BATCH=2)
STEPS = 4


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
    Variant("checks", more={"WRONG_CHECKS": "1"}),
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
    told(bitcasts=wrong_bitcasts(step))
    for number in range(STEPS):
        state, loss = step(state, batch)
        told(loss=float(loss))
        if number == 0:
            told(odd=sum(not np.isfinite(here(leaf)).all() for leaf in jax.tree.leaves(state)))


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


def wrong_bitcasts(compiled) -> list[str]:
    from slipstream.analyses.soundness import soundness
    from slipstream.sources.hlo.reader import program_from_text

    return [str(one) for one in soundness(program_from_text(compiled.as_text())).bitcasts]


def here(leaf):
    """This rank's part, in float32."""
    return np.asarray(leaf.addressable_data(0)).astype(np.float32)


def spread(array, *spec):
    """The array over all ranks: cut as `spec` says, or whole on each."""
    import jax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    cut = NamedSharding(Mesh(np.array(jax.devices()), ("rank",)), PartitionSpec(*spec))
    return jax.make_array_from_callback(array.shape, cut, lambda index: array[index])


def check_small() -> None:
    """The least program that shows it: two rows of a bf16 weight, and a f32 one, data parallel."""
    import jax
    import jax.numpy as jnp

    def loss(weights, x):
        scale = weights["scale"].astype(jnp.bfloat16)
        return jnp.mean(jnp.sin(jnp.tanh(x * scale[0]) * scale[1]) * weights["final"])

    x = np.random.default_rng(0).normal(size=(64, 512)).astype(np.float32)
    weights = {"scale": np.ones((2, 512), np.float32), "final": np.ones(512, np.float32)}
    right = np.asarray(jax.jit(jax.grad(loss))(weights, x)["scale"]).ravel()
    given = jax.tree.map(spread, weights), spread(x, "rank")
    whole = given[0]["final"].sharding
    run = jax.jit(jax.grad(loss), out_shardings=whole).lower(*given).compile()
    far = ~(np.abs(here(run(*given)["scale"]).ravel() - right) < 0.02 * np.abs(right).max())
    wrong = {"even": int(far[::2].sum()), "odd": int(far[1::2].sum()), "of each": far.size // 2}
    told(bitcasts=wrong_bitcasts(run))
    told(check="the small program's gradient", wrong=wrong)


def check_collectives() -> None:
    """Sums of small whole numbers are exact in every type, whatever the order."""
    import jax
    import jax.numpy as jnp
    from jax.sharding import PartitionSpec as P

    full = (np.arange(jax.device_count() * 2**12) * 7 % 31).astype(np.float32)
    mesh = spread(full).sharding.mesh
    total = jax.shard_map(
        lambda x: jax.lax.psum(x, "rank"), mesh=mesh, in_specs=P("rank"), out_specs=P()
    )
    for dtype in (jnp.float32, jnp.bfloat16):
        got = here(jax.jit(total)(spread(full.astype(dtype), "rank")))
        wrong = int((got != full.reshape(-1, 2**12).sum(0)).sum())
        told(check=f"psum of {np.dtype(dtype).name}", wrong=wrong)


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
    path = os.pathsep.join([str(ROOT / "examples"), str(ROOT / "src"), plain.get("PYTHONPATH", "")])
    return {
        **plain, **sizes, **machine, **(meeting if variant.ranks > 1 else {}), **variant.more,
        "PYTHONPATH": path, "TF_CPP_MIN_LOG_LEVEL": "2",
    }  # fmt: skip


def run(variant: Variant, logs: Path, cpu: bool, limit_s: float) -> dict[str, object]:
    """All ranks of a variant, ended at the limit; what they had said by then counts."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        meet = f"127.0.0.1:{free.getsockname()[1]}"
    files = [logs / f"{variant.name}.{number}.txt" for number in range(variant.ranks)]
    began_s, ranks = time.monotonic(), []
    for number, file in enumerate(files):
        with file.open("w") as log:
            ranks.append(
                subprocess.Popen(
                    [sys.executable, "-u", __file__, "--rank"], stdout=log, stderr=log,
                    start_new_session=True, env=environment(variant, number, meet, cpu),
                )
            )  # fmt: skip
    while any(one.poll() is None for one in ranks) and time.monotonic() - began_s < limit_s:
        time.sleep(0.1)
    for one in [one for one in ranks if one.poll() is None]:
        with suppress(ProcessLookupError):
            os.killpg(one.pid, signal.SIGKILL)
    texts = [file.read_text(errors="replace") for file in files]
    found = {"exit": [one.wait() for one in ranks], "seconds": round(time.monotonic() - began_s, 1)}
    found["ranks"] = [facts_of(text) for text in texts]
    return found | ({"end": [text[-800:] for text in texts]} if any(found["exit"]) else {})


def facts_of(log: str) -> dict[str, object]:
    facts: dict[str, object] = {"losses": [], "wrong": {}}
    for line in log.splitlines():
        if not line.startswith("FACT "):
            continue
        with suppress(ValueError):  # the line at which it was killed
            one = json.loads(line.removeprefix("FACT "))
            if "loss" in one:
                facts["losses"].append(one["loss"])
            elif "check" in one:
                facts["wrong"][one["check"]] = one["wrong"]
            else:
                facts |= one
    return facts


def show(found: dict[str, dict[str, object]]) -> None:
    print(f"{'variant':15} {'s':>4} {'exit':>8}  losses; bad bitcasts; leaves that are not finite")
    for name, one in found.items():
        first = one["ranks"][0]
        casts, odd = first.get("bitcasts"), first.get("odd", "?")
        losses = " ".join(f"{loss:.4f}" for loss in first["losses"]) or "no losses"
        codes, bad = ",".join(map(str, one["exit"])), "?" if casts is None else len(casts)
        print(f"{name:15} {one['seconds']:4.0f} {codes:>8}  {losses}; {bad}; {odd}")
        lines = [f"{kind}: wrong values {wrong}" for kind, wrong in first["wrong"].items()]
        for line in (*(casts or []), *lines, *one.get("end", [""])[0].splitlines()[-2:]):
            print(f"    {line}"[:150])


def verdict(found: dict[str, dict[str, object]]) -> str:
    def finite(name: str) -> bool | None:
        losses = found.get(name, {}).get("ranks", [{}])[0].get("losses", [])
        return all(map(math.isfinite, losses)) if len(losses) > 1 else None

    casts = found.get("default", {}).get("ranks", [{}])[0].get("bitcasts")
    if finite("default") is None or casts is None:
        return "can't tell: the default variant gave no two losses"
    if finite("default") or not casts:
        seen = "are numbers" if finite("default") else "are none"
        return f"not seen here: losses {seen}, and {len(casts)} bitcasts change size"
    without = {True: "are numbers", False: "are none either", None: "are not known"}
    return f"its bitcasts change size; without the pass losses {without[finite('not contiguous')]}"


def main() -> None:
    if "--rank" in sys.argv:
        return rank()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", help="names of variants, with commas between")
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument("--limit", type=float, default=120.0, help="seconds for a variant")
    parser.add_argument("--cpu", action="store_true")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    chosen = [v for v in VARIANTS if not given.only or v.name in given.only.split(",")]
    with tempfile.TemporaryDirectory() as logs, ThreadPoolExecutor(given.at_once) as pool:
        runs = pool.map(lambda v: run(v, Path(logs), given.cpu, given.limit), chosen)
        found = {v.name: one for v, one in zip(chosen, runs, strict=True)}
    show(found)
    said = verdict(found)
    print(f"verdict: {said}")
    for facts in (facts for one in found.values() for facts in one["ranks"]):
        facts["losses"] = [repr(loss) for loss in facts["losses"]]  # JSON has no NaN
    file = given.out / "two_ranks_wrong.json"
    file.write_text(json.dumps({"verdict": said, "variants": found}, indent=1, allow_nan=False))


if __name__ == "__main__":
    main()
