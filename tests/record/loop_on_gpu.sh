#!/bin/bash
# Receipts of `slipstream run` from a machine with one GPU, and what `optimize` costs there:
#
#     tests/record/loop_on_gpu.sh OUT [--cpu] [PART …]
#
#     gpt        a receipt of examples/gpt.py                        OUT/gpt.json
#     flax       a receipt of examples/flax_train.py                 OUT/flax.json
#     offload    a receipt of examples/gpt_offload.py                OUT/gpt_offload.json
#     auto       AutoPGLE on examples/gpt.py, proven                 OUT/auto.json
#     overhead   benchmarks/optimize.py                              OUT/overhead.txt
#     ranks      two ranks without and with us, loss for loss        OUT/ranks.*
#     schedule_scan, schedule_unrolled
#                orders of our own for examples/gpt_offload.py       OUT/schedule_*.json
#     schedule_ranks   and for two ranks, loss for loss              OUT/schedule_ranks.*
#
# gpt, flax, auto, overhead and ranks by default, in that order. OUT is flat; what a part printed is in OUT/PART.txt, its
# wall time in OUT/times.txt. A job trains until its receipt is there, then it is ended: no step is
# made for nothing. A part ends after LIMIT seconds (150), whatever became of it. PYTHON says which
# Python (python), RANKS_OPTIONS more for the last part (--exact, say). --cpu: small, for a try.
set -u
[ $# -ge 1 ] || { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"; exit 2; }
cd "$(dirname "$0")/../.."
out=$(mkdir -p "$1" && cd "$1" && pwd); shift
cpu=; [ "${1-}" = --cpu ] && { cpu=--cpu; shift; }
limit=${LIMIT:-150}
rounds=${ROUNDS:-20}
python=${PYTHON:-python}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export PYTHONPATH=$PWD/src${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1 TF_CPP_MIN_LOG_LEVEL=1
[ -n "$cpu" ] && export JAX_PLATFORMS=cpu

receipt() { # NAME SLIPSTREAM-OPTIONS… -- JOB…: until the receipt's page is there
    local name=$1 end=$((SECONDS + limit)) run; shift
    "$python" -m slipstream run --out "$work/$name" --rounds "$rounds" "$@" \
        >"$work/$name.job" 2>"$out/$name.txt" &
    run=$!
    while kill -0 $run 2>/dev/null && [ ! -e "$work/$name/receipt.html" ] && [ $SECONDS -lt $end ]
    do sleep 0.2; done
    local found=; [ -e "$work/$name/receipt.html" ] && found=1
    # Its launcher hands the signal on to the job, and waits for it.
    kill -TERM $run 2>/dev/null
    wait $run 2>/dev/null
    { echo "--- the job's last lines"; tail -n 3 "$work/$name.job"; } >>"$out/$name.txt"
    if [ -z "$found" ]; then
        echo "$name: no receipt within $limit s"; tail -n 20 "$out/$name.txt"; return 1
    fi
    sed -e "s#$work/##g; s#$PWD#.#g; s#\"$python\"#\"python\"#g" "$work/$name/receipt.json" \
        >"$out/$name.json"
    "$python" - "$out/$name.json" <<'EOF'
import json, sys
found = json.load(open(sys.argv[1]))
print("  ", found["verdict"], "·", found["why"])
for key in ("step_us", "change", "pgle", "overlap", "notes", "arms"):
    print("  ", key, json.dumps(found[key]))
EOF
}

part() {
    case $1 in
        gpt) GPT_STEPS=1000000 receipt gpt -- "$python" examples/gpt.py ;;
        flax) receipt flax -- "$python" examples/flax_train.py --layers 2 --steps 1000000 ;;
        offload) GPT_STEPS=1000000 receipt gpt_offload -- "$python" examples/gpt_offload.py ;;
        auto) GPT_STEPS=1000000 receipt auto --auto -- "$python" examples/gpt.py ;;
        overhead) timeout "$limit" "$python" benchmarks/optimize.py \
            --blocks "${BLOCKS:-60}" 2>"$out/overhead.err" | tee "$out/overhead.txt" ;;
        ranks) both_ranks ranks ;;
        schedule_scan)
            GPT_STEPS=1000000 receipt "$1" --schedule -- "$python" examples/gpt_offload.py ;;
        schedule_unrolled) GPT_UNROLL=1 GPT_STEPS=1000000 \
            receipt "$1" --schedule -- "$python" examples/gpt_offload.py ;;
        schedule_ranks) # without the pass that XLA compiles this job wrongly with
            XLA_FLAGS="${XLA_FLAGS-} --xla_disable_hlo_passes=all-reduce-contiguous" \
                both_ranks "$1" --exact --once --rounds "$rounds" --options=--schedule ;;
        *) echo "unknown part $1"; return 2 ;;
    esac
}

both_ranks() { # NAME OPTIONS…: of tests/record/two_ranks_both_ways.py
    local name=$1; shift
    "$python" tests/record/two_ranks_both_ways.py "$work/$name" $cpu --steps "${STEPS:-1450}" \
        --seconds "$limit" "$@" ${RANKS_OPTIONS-} | tee "$out/$name.txt"
    for file in losses.txt both_ways.json receipt.json with.rank0.err agent.rank0.log; do
        [ -e "$work/$name/$file" ] && cp "$work/$name/$file" "$out/$name.$file"
    done
}

failed=0
for name in "${@:-gpt flax auto overhead ranks}"; do
    for one in $name; do
        begin=$SECONDS
        echo "== $one"
        part "$one" || failed=1
        echo "$one $((SECONDS - begin)) s" | tee -a "$out/times.txt"
    done
done
exit $failed
