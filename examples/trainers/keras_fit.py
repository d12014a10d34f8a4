"""Keras: record three batches of `fit` with a callback.

python examples/trainers/keras_fit.py
slipstream summary profiles
"""

import os

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import numpy as np

import slipstream

keras.utils.set_random_seed(0)
x = np.random.default_rng(0).normal(size=(2048, 64)).astype("float32")
y = (x[:, :1] * x[:, 1:2] > 0).astype("float32")

model = keras.Sequential(
    [
        keras.layers.Dense(256, activation="gelu"),
        keras.layers.Dense(256, activation="gelu"),
        keras.layers.Dense(1, activation="sigmoid"),
    ]
)
model.compile(optimizer="adam", loss="binary_crossentropy", metrics=["accuracy"])

recorded = slipstream.keras.Capture("profiles", start=40, steps=3)
model.fit(x, y, batch_size=64, epochs=2, verbose=2, callbacks=[recorded])
