"""Hugging Face's `run_clm_flax.py`, shortened: a small GPT-2, `datasets` in memory.

Nothing is downloaded: the weights are random, and the tokenizer is the characters of the text.
"""

import argparse
import json

import jax
import jax.numpy as jnp
import numpy as np
import optax
from datasets import Dataset
from flax.jax_utils import replicate, unreplicate
from flax.training import train_state
from flax.training.common_utils import onehot, shard
from transformers import FlaxGPT2LMHeadModel, GPT2Config

BLOCK, PER_DEVICE = 32, 4
TEXT = "the quick brown fox jumps over the lazy dog and runs back to where it came from. " * 60


def blocks():
    """The text in blocks of equal length, grouped as the original script does it."""
    words = sorted(set(TEXT))
    raw = Dataset.from_dict({"text": [TEXT[at : at + 200] for at in range(0, len(TEXT), 200)]})

    def tokenize(examples):
        return {"input_ids": [[words.index(c) for c in text] for text in examples["text"]]}

    def group(examples):
        joined = sum(examples["input_ids"], [])
        length = len(joined) // BLOCK * BLOCK
        ids = [joined[at : at + BLOCK] for at in range(0, length, BLOCK)]
        return {"input_ids": ids, "labels": ids}

    tokens = raw.map(tokenize, batched=True, remove_columns=["text"])
    return tokens.map(group, batched=True), len(words)


def data_loader(rng, dataset, batch_size):
    order = np.asarray(jax.random.permutation(rng, len(dataset)))
    for at in range(len(dataset) // batch_size):
        batch = dataset[order[at * batch_size : (at + 1) * batch_size]]
        yield {name: np.array(column) for name, column in batch.items()}


class TrainState(train_state.TrainState):
    dropout_rng: jnp.ndarray

    def replicate(self):
        replicated = replicate(self)
        keys = jax.random.split(self.dropout_rng, jax.local_device_count())
        return replicated.replace(dropout_rng=keys)


def loss_fn(logits, labels):
    shifted = onehot(labels[..., 1:], logits.shape[-1])
    return optax.softmax_cross_entropy(logits[..., :-1, :], shifted).mean()


def main(steps):
    dataset, words = blocks()
    size = GPT2Config(
        vocab_size=words, n_positions=BLOCK, n_embd=64, n_layer=2, n_head=2, bos_token_id=0,
        eos_token_id=0,
    )  # fmt: skip
    model = FlaxGPT2LMHeadModel(size, seed=0, input_shape=(1, BLOCK))
    rng, dropout_rng = jax.random.split(jax.random.PRNGKey(0))
    optimizer = optax.adamw(1e-3, weight_decay=0.01)
    state = TrainState.create(
        apply_fn=model.__call__, params=model.params, tx=optimizer, dropout_rng=dropout_rng
    ).replicate()

    def train_step(state, batch):
        dropout_rng, new_dropout_rng = jax.random.split(state.dropout_rng)

        def compute_loss(params):
            labels = batch.pop("labels")
            logits = state.apply_fn(**batch, params=params, dropout_rng=dropout_rng, train=True)[0]
            return loss_fn(logits, labels)

        loss, grad = jax.value_and_grad(compute_loss)(state.params)
        grad = jax.lax.pmean(grad, "batch")
        new_state = state.apply_gradients(grads=grad, dropout_rng=new_dropout_rng)
        return new_state, jax.lax.pmean({"loss": loss}, axis_name="batch")

    p_train_step = jax.pmap(train_step, "batch", donate_argnums=(0,))
    step = 0
    while step < steps:
        rng, input_rng = jax.random.split(rng)
        for batch in data_loader(input_rng, dataset, PER_DEVICE * jax.local_device_count()):
            state, metrics = p_train_step(state, shard(batch))
            step += 1
            if step % 10 == 0:
                print(f"step {step} loss {float(unreplicate(metrics)['loss'])!r}")
            if step == steps:
                break
    params = jax.device_get(unreplicate(state).params)
    model.save_pretrained("gpt2", params=params)
    with open("results.json", "w") as file:
        json.dump({"steps": step, "loss": float(unreplicate(metrics)["loss"])}, file)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, required=True)
    main(parser.parse_args().steps)
