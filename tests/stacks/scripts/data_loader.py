"""Augmentation and shuffling are jitted too, and called far more often than the step."""

import argparse
import functools

import jax
import jax.numpy as jnp
import numpy as np

BATCH, SIZE, PER_BATCH = 128, 16, 4


@jax.jit
def augment(key, image):
    """One image: flipped, shifted, with noise and its contrast changed by a small product."""
    flip, shift, noise = jax.random.split(key, 3)
    image = jnp.where(jax.random.bernoulli(flip), image[:, ::-1], image)
    image = jnp.roll(image, jax.random.randint(shift, (), -2, 3), axis=0)
    blur = jnp.eye(SIZE) * 0.8 + jnp.eye(SIZE, k=1) * 0.1 + jnp.eye(SIZE, k=-1) * 0.1
    return blur @ image + 0.1 * jax.random.normal(noise, image.shape)


@jax.jit
def shuffle(key, indices):
    return jax.random.permutation(key, indices)


def batches(images, labels, seed):
    key = jax.random.key(seed)
    while True:
        key, order_key = jax.random.split(key)
        order = np.asarray(shuffle(order_key, np.arange(len(images))))
        for at in range(0, len(order) - BATCH + 1, BATCH):
            chosen = images[order[at : at + BATCH]].copy()
            for row in range(PER_BATCH):
                key, image_key = jax.random.split(key)
                chosen[row] = augment(image_key, chosen[row])
            yield chosen, labels[order[at : at + BATCH]]


def loss_fn(params, images, labels):
    x = images[..., None]
    for kernel in params["convolutions"]:
        x = jax.nn.relu(
            jax.lax.conv_general_dilated(
                x, kernel, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
            )
        )
    logits = jax.nn.log_softmax(x.mean((1, 2)) @ params["head"])
    return -jnp.take_along_axis(logits, labels[:, None], axis=1).mean()


@functools.partial(jax.jit, donate_argnums=0)
def train_step(params, images, labels):
    loss, grads = jax.value_and_grad(loss_fn)(params, images, labels)
    return jax.tree.map(lambda p, g: p - 0.05 * g, params, grads), loss


def main(steps):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, 1024)
    images = rng.normal(size=(1024, SIZE, SIZE)).astype(np.float32) + labels[:, None, None]
    # A look at what augmentation does, before any training.
    shown = [np.asarray(augment(jax.random.key(n), images[0])) for n in range(100)]
    print(f"augmented mean {np.mean(shown)!r}")
    params = {
        "convolutions": [
            rng.normal(size=(3, 3, m, n)).astype(np.float32) * (9 * m) ** -0.5
            for m, n in ((1, 64), (64, 128))
        ],
        "head": rng.normal(size=(128, 4)).astype(np.float32) / 8,
    }
    data = batches(images, labels, 0)
    for step in range(steps):
        params, loss = train_step(params, *next(data))
        print(f"step {step} loss {float(loss)!r}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, required=True)
    main(parser.parse_args().steps)
