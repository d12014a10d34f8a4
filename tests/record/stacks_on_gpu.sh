#!/bin/bash
# Jobs bare and under `slipstream run` on a machine with one GPU: same losses, same files?
#
#     tests/record/stacks_on_gpu.sh OUT [--cpu] [PART …]
#
#     flax     examples/flax_train.py                                OUT/flax.*
#     keras    tests/stacks/scripts/keras_fit.py                     OUT/keras.*
#
# Both by default. XLA's kernels are deterministic and not autotuned, so that two runs of one program
# give the same bits. OUT is flat: PART.bare.txt and PART.ours.txt hold what the job printed,
# PART.txt what Slipstream said, PART.json the receipt. STEPS (2500) says how long to train, LIMIT
# (200) the seconds after which a run is ended, PYTHON which Python (python). --cpu: small, for a try.
#
# A machine without Keras takes it from wheels in build/stacks-wheels, made where there is a network:
#
#     pip download --no-deps --only-binary=:all: --python-version 3.12 -d build/stacks-wheels \
#         --platform manylinux_2_28_x86_64 --platform manylinux2014_x86_64 \
#         keras==3.15.1 namex==0.1.0 optree==0.20.0 h5py==3.16.0 absl-py==2.5.1
set -u
[ $# -ge 1 ] || { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"; exit 2; }
cd "$(dirname "$0")/../.."
root=$PWD
out=$(mkdir -p "$1" && cd "$1" && pwd); shift
cpu=; [ "${1-}" = --cpu ] && { cpu=1; shift; }
limit=${LIMIT:-200}
steps=${STEPS:-$([ -n "$cpu" ] && echo 300 || echo 2500)}
python=${PYTHON:-python}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for wheel in build/stacks-wheels/*.whl; do
    [ -e "$wheel" ] && "$python" -m zipfile -e "$wheel" "$work/site"
done
export PYTHONPATH=$root/src:$work/site${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1 PYTHONHASHSEED=0
export TF_CPP_MIN_LOG_LEVEL=1 KERAS_BACKEND=jax
if [ -n "$cpu" ]; then
    export JAX_PLATFORMS=cpu
else
    export XLA_FLAGS="--xla_gpu_deterministic_ops=true --xla_gpu_autotune_level=0"
fi

both_ways() { # NAME JOB…
    local name=$1 began codes=; shift
    mkdir "$work/$name.bare" "$work/$name.ours"
    began=$SECONDS
    (cd "$work/$name.bare" && timeout "$limit" "$@") >"$out/$name.bare.txt" 2>"$work/$name.err"
    codes=$?
    echo "   bare: exit code $codes, $((SECONDS - began)) s"
    began=$SECONDS
    (cd "$work/$name.ours" && timeout "$limit" "$python" -m slipstream run \
        --rounds "${ROUNDS:-20}" --out "$work/$name.run" -- "$@") \
        >"$out/$name.ours.txt" 2>"$out/$name.txt"
    codes="$codes $?"
    echo "   ours: exit code ${codes#* }, $((SECONDS - began)) s"
    if [ ! -e "$work/$name.run/receipt.json" ]; then
        echo "$name: no receipt"; tail -n 20 "$work/$name.err" "$out/$name.txt"; return 1
    fi
    sed -e "s#$work/##g; s#$root#.#g; s#\"$python\"#\"python\"#g" "$work/$name.run/receipt.json" \
        >"$out/$name.json"
    "$python" - "$work/$name" "$out/$name" $codes <<'PY'
import hashlib, json, pathlib, re, sys

work, out, bare_code, our_code = sys.argv[1:]
losses = [
    re.findall(r"loss (\S+)", pathlib.Path(f"{out}.{way}.txt").read_text())
    for way in ("bare", "ours")
]
files = [
    {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }
    for folder in (pathlib.Path(f"{work}.bare"), pathlib.Path(f"{work}.ours"))
]
receipt = json.load(open(f"{out}.json"))
print("  ", receipt["verdict"], "·", receipt["why"])
for key in ("program", "chosen", "step_us", "change", "pgle", "overlap", "notes"):
    print("  ", key, json.dumps(receipt.get(key)))
for arm in receipt["arms"] or ():
    print("   arm", arm["name"], arm["rounds"], arm["step_us"], arm["same_program_as"], arm["error"])
same = {
    f"{len(losses[0])} losses": losses[0] == losses[1] and len(losses[0]) > 5,
    f"{len(files[0])} files": files[0] == files[1],
    "exit code": bare_code == our_code == "0",
}
print("  ", ", ".join(f"{what} {'equal' if good else 'DIFFERENT'}" for what, good in same.items()))
if losses[0] != losses[1]:
    apart = [n for n, pair in enumerate(zip(*losses)) if pair[0] != pair[1]]
    print("   apart from number", apart[:1], [(losses[0][n], losses[1][n]) for n in apart[:5]])
sys.exit(not all(same.values()))
PY
}

part() {
    case $1 in
        flax)
            local size="--layers 2"; [ -n "$cpu" ] && size=
            both_ways flax "$python" "$root/examples/flax_train.py" $size --steps "$steps" ;;
        keras)
            # In float32: with these flags, XLA of jaxlib 0.11.2 fails to compile mixed_bfloat16.
            local size="--batch 16 --tokens 256 --words 4096 --width 512 --heads 8 --blocks 2"
            [ -n "$cpu" ] && size=
            both_ways keras "$python" "$root/tests/stacks/scripts/keras_fit.py" \
                --steps $((steps / 10)) --epochs 10 $size ;;
        *) echo "unknown part $1: flax, keras"; return 2 ;;
    esac
}

failed=0
for name in "${@:-flax keras}"; do
    for one in $name; do
        echo "== $one"
        part "$one" || failed=1
    done
done
exit $failed
