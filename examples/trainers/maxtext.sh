#!/bin/sh
# MaxText: a small model, predicted for 8 H100, trained under `slipstream run`, and recorded by MaxText.
#
#     sh examples/trainers/maxtext.sh
set -e
export DECOUPLE_GCLOUD=TRUE   # without Google's packages that monitor a job

config="src/maxtext/configs/base.yml base_output_directory=out dataset_type=synthetic steps=200
  base_emb_dim=256 base_mlp_dim=512 base_num_query_heads=4 base_num_kv_heads=4 head_dim=64
  base_num_decoder_layers=2 vocab_size=1024 max_target_length=64 per_device_batch_size=2
  enable_checkpointing=false"
here="hardware=cpu attention=dot_product skip_jax_distributed_system=true
  enable_goodput_recording=false monitor_goodput=false"

slipstream predict --maxtext $config run_name=predicted attention=cudnn_flash_jax --on 8xH100

export JAX_PLATFORMS=cpu
slipstream run -- python -m maxtext.trainers.pre_train.train $config $here run_name=faster

python -m maxtext.trainers.pre_train.train $config $here run_name=recorded steps=12 \
  profiler=xplane skip_first_n_steps_for_profiler=5 profiler_steps=3
slipstream summary out/recorded/tensorboard
