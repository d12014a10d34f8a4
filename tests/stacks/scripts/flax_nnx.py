"""A convolutional classifier in Flax NNX: batch norm, dropout, metrics, periodic evaluation."""

import argparse

import jax
import numpy as np
import optax
from flax import nnx

BATCH, SIZE, CLASSES = 32, 12, 4


class CNN(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.conv1 = nnx.Conv(1, 16, kernel_size=(3, 3), rngs=rngs)
        self.norm = nnx.BatchNorm(16, rngs=rngs)
        self.conv2 = nnx.Conv(16, 32, kernel_size=(3, 3), strides=2, rngs=rngs)
        self.dropout = nnx.Dropout(0.1, rngs=rngs)
        self.head = nnx.Linear(32, CLASSES, rngs=rngs)

    def __call__(self, x):
        x = nnx.relu(self.norm(self.conv1(x)))
        x = nnx.relu(self.conv2(x))
        return self.head(self.dropout(x.mean((1, 2))))


def loss_fn(model, batch):
    logits = model(batch["image"])
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, batch["label"])
    return losses.mean(), logits


@nnx.jit
def train_step(model, optimizer, metrics, batch):
    (loss, logits), grads = nnx.value_and_grad(loss_fn, has_aux=True)(model, batch)
    metrics.update(loss=loss, logits=logits, labels=batch["label"])
    optimizer.update(model, grads)
    return loss


@nnx.jit
def eval_step(model, metrics, batch):
    loss, logits = loss_fn(model, batch)
    metrics.update(loss=loss, logits=logits, labels=batch["label"])


def batch_of(rng):
    label = rng.integers(0, CLASSES, BATCH)
    image = rng.normal(size=(BATCH, SIZE, SIZE, 1)).astype(np.float32)
    return {"image": image + label[:, None, None, None] / 2, "label": label}


def main(steps):
    rng = np.random.default_rng(0)
    model = CNN(rngs=nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adamw(1e-3), wrt=nnx.Param)
    metrics = nnx.MultiMetric(accuracy=nnx.metrics.Accuracy(), loss=nnx.metrics.Average("loss"))
    held_out = [batch_of(rng) for _ in range(4)]
    for step in range(steps):
        model.train()
        train_step(model, optimizer, metrics, batch_of(rng))
        if (step + 1) % 50 == 0:
            print(f"step {step} train {said(metrics)}")
            model.eval()
            for batch in held_out:
                eval_step(model, metrics, batch)
            print(f"step {step} held out {said(metrics)}")
    np.savez("params.npz", *jax.tree.leaves(nnx.state(model, nnx.Param)))


def said(metrics):
    found = {name: float(value) for name, value in metrics.compute().items()}
    metrics.reset()
    return f"loss {found['loss']!r} accuracy {found['accuracy']!r}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, required=True)
    main(parser.parse_args().steps)
