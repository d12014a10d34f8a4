"""A GPT-2 with Levanter's trainer: its loader, named axes, evaluation, hooks and checkpoints."""

import argparse

import jax
import jmp
import levanter.trainer
import numpy as np
from haliax import Axis
from levanter.checkpoint import CheckpointerConfig
from levanter.data.dataset import ListAsyncDataset
from levanter.data.text.datasets import CausalLmDataset, NamedLmDataset
from levanter.models.gpt2 import Gpt2Config
from levanter.optim.config import AdamConfig
from levanter.tracker import NoopConfig
from levanter.trainer import Trainer, TrainerConfig

TOKENS, WORDS, BATCH = 64, 64, 8


def sequences(rng, count, position):
    """What Levanter makes of token sequences: its two jitted functions run once for each."""
    start, step = rng.integers(0, WORDS, (count, 1)), rng.integers(1, 4, (count, 1))
    tokens = ((start + step * np.arange(TOKENS)) % WORDS).astype(np.int32)
    plain = ListAsyncDataset([{"input_ids": row} for row in tokens])
    return NamedLmDataset(CausalLmDataset(plain, position), position)


def loss_function(model, example, *, key=None):
    return model.compute_next_token_loss(example, key=key)


def main(steps):
    rng = np.random.default_rng(0)
    model = Gpt2Config(max_seq_len=TOKENS, hidden_dim=128, num_layers=2, num_heads=4)
    config = TrainerConfig(
        id="tiny",
        seed=0,
        mp=jmp.get_policy("f32"),
        tracker=NoopConfig(),
        train_batch_size=BATCH,
        num_train_steps=steps,
        steps_per_eval=100,
        max_eval_batches=2,
        require_accelerator=False,
        checkpointer=CheckpointerConfig(base_path="checkpoints", save_interval=None),
    )
    levanter.trainer.initialize(config)
    optimizer = AdamConfig(learning_rate=1e-3).build(steps)
    with Trainer(config, optimizer, loss_function) as trainer:
        model_key, training_key = jax.random.split(jax.random.PRNGKey(0))
        train = sequences(rng, steps * BATCH, model.max_Pos)
        words = Axis("vocab", WORDS)
        state = trainer.initial_state(
            training_key, model_init=lambda: model.build(words, key=model_key)
        )
        trainer.add_eval_hook(sequences(rng, 4 * BATCH, model.max_Pos))

        @trainer.add_hook(every=10)
        def show(info):
            print(f"step {info.step} loss {float(info.loss)!r}", flush=True)

        trainer.train(state, trainer.data_loader(train))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, required=True)
    main(parser.parse_args().steps)
