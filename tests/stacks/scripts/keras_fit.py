"""A small GPT as people write it in Keras 3: compile, fit, validate, save. The backend is JAX."""

import argparse
import os

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import numpy as np
from keras import layers


def build(words, tokens, width, heads, blocks):
    inputs = keras.Input((tokens,), dtype="int32")
    positions = np.arange(tokens)[None]
    x = layers.Embedding(words, width)(inputs)
    x = x + layers.Embedding(tokens, width)(positions)
    for _ in range(blocks):
        y = layers.LayerNormalization()(x)
        x = x + layers.MultiHeadAttention(heads, width // heads)(y, y, use_causal_mask=True)
        y = layers.LayerNormalization()(x)
        x = x + layers.Dense(width)(layers.Dense(4 * width, activation="gelu")(y))
    x = layers.LayerNormalization()(x)
    return keras.Model(inputs, layers.Dense(words, dtype="float32")(x))


def sequences(rng, count, tokens, words):
    """Each word is the one before it plus a step that the sequence keeps."""
    steps = rng.integers(1, 4, (count, 1))
    return (rng.integers(0, words, (count, 1)) + steps * np.arange(tokens + 1)) % words


class Losses(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        print(f"epoch {epoch} " + " ".join(f"{k} {v!r}" for k, v in sorted((logs or {}).items())))


def main(given):
    keras.utils.set_random_seed(0)
    keras.config.set_dtype_policy(given.policy)
    rng = np.random.default_rng(0)
    data = sequences(rng, given.batch * given.steps, given.tokens, given.words)
    held_out = sequences(rng, given.batch * 2, given.tokens, given.words)
    model = build(given.words, given.tokens, given.width, given.heads, given.blocks)
    model.compile(
        optimizer=keras.optimizers.AdamW(3e-4, clipnorm=1.0),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    model.fit(
        data[:, :-1],
        data[:, 1:],
        batch_size=given.batch,
        epochs=given.epochs,
        validation_data=(held_out[:, :-1], held_out[:, 1:]),
        callbacks=[Losses(), keras.callbacks.CSVLogger("history.csv")],
        verbose=0,
    )
    model.save_weights("gpt.weights.h5")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, required=True, help="in an epoch")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--words", type=int, default=64)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--blocks", type=int, default=2)
    parser.add_argument("--policy", default="float32")
    main(parser.parse_args())
