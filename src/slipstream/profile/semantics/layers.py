"""Names of a layer without its number: `x_layers_7/self_attention` is `x_layers_*/self_attention`.

Frameworks number the layers of an unrolled model in the names that they give to scopes and weights:

    x_layers_7      Praxis        h.7, layers[7]    NNX, Equinox, PyTorch's names
    layers/7        a list        Block_7           Flax, by the order of calls
    layer7          by hand       w1, ffn_layer1    no layers: the number is part of the name

A loop (`scan`) has no such names: its instructions exist once, and run once per turn.
"""

from __future__ import annotations

import re
from functools import lru_cache

ANY = "*"
"""what stands for the number of a layer"""
_WORDS = r"(?:layers?|blocks?|stages?|cells?|decoder|encoder)"
_IN_SCOPE = re.compile(
    rf"(?:(?<=[_.\[/])|^)\d+(?=$|[_.\]/])|(?<![A-Za-z0-9_]){_WORDS}(?P<glued>\d+)(?=$|[_.\]/])",
    re.IGNORECASE,
)
# In a description, only what leads to another name is a layer: `h_0.kernel`, not `w_1`.
_IN_DESCRIPTION = re.compile(r"(?<=[A-Za-z_])_\d+(?=\.[A-Za-z_])")


@lru_cache(maxsize=16384)
def rolled_scope(scope: str) -> str:
    """A scope with `*` in place of each layer's number."""
    return _IN_SCOPE.sub(_starred, scope)


@lru_cache(maxsize=16384)
def rolled_description(description: str) -> str:
    """A description with `*` in place of the numbers of layers in the names of weights."""
    return _IN_DESCRIPTION.sub("_*", description)


def _starred(found: re.Match[str]) -> str:
    number = found["glued"]
    return ANY if number is None else found[0].removesuffix(number) + ANY
