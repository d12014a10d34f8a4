"""Levanter: record three steps of a small GPT-2 with a callback.

python examples/trainers/levanter_lm.py
slipstream summary profiles
"""

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

import slipstream

WORDS, STEPS, BATCH = 64, 12, 8


def main() -> None:
    model = Gpt2Config(max_seq_len=64, hidden_dim=128, num_layers=2, num_heads=4)
    config = TrainerConfig(
        id="tiny",
        mp=jmp.get_policy("f32"),
        tracker=NoopConfig(),
        train_batch_size=BATCH,
        num_train_steps=STEPS,
        require_accelerator=False,
        checkpointer=CheckpointerConfig(base_path="checkpoints", save_interval=None),
    )
    levanter.trainer.initialize(config)
    tokens = np.random.default_rng(0).integers(0, WORDS, (STEPS * BATCH, 64), np.int32)
    examples = ListAsyncDataset([{"input_ids": row} for row in tokens])
    data = NamedLmDataset(CausalLmDataset(examples, model.max_Pos), model.max_Pos)

    def loss(model, example, *, key=None):
        return model.compute_next_token_loss(example, key=key)

    with Trainer(config, AdamConfig(learning_rate=1e-3).build(STEPS), loss) as trainer:
        words = Axis("vocab", WORDS)
        state = trainer.initial_state(
            jax.random.PRNGKey(0),
            model_init=lambda: model.build(words, key=jax.random.PRNGKey(1)),
        )
        trainer.add_hook(slipstream.levanter.Capture("profiles", start=5, steps=3))
        trainer.train(state, trainer.data_loader(data))


if __name__ == "__main__":
    main()
