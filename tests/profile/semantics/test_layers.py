import pytest

from slipstream.profile.semantics.layers import rolled_description, rolled_scope


@pytest.mark.parametrize(
    ("scope", "expected"),
    [
        ("lm/x_layers_7/self_attention", "lm/x_layers_*/self_attention"),
        ("h.31/attn", "h.*/attn"),
        ("layers[3].mlp", "layers[*].mlp"),
        ("layers/12/mlp", "layers/*/mlp"),
        ("Block_0/Dense_1", "Block_*/Dense_*"),
        ("layer7/mlp", "layer*/mlp"),
        ("decoder12", "decoder*"),
        # The number is part of these names.
        ("ffn_layer1/linear", "ffn_layer1/linear"),
        ("conv1/w2", "conv1/w2"),
        ("fp8/mlp", "fp8/mlp"),
        ("", ""),
    ],
)
def test_scopes_without_the_number_of_a_layer(scope, expected):
    assert rolled_scope(scope) == expected


@pytest.mark.parametrize(
    ("description", "expected"),
    [
        ("x @ h_0.kernel", "x @ h_*.kernel"),
        ("∂block_11.w = xᵀ @ dy", "∂block_*.w = xᵀ @ dy"),
        ("x @ w_1", "x @ w_1"),
        ("all-gather w1 70.9 MB", "all-gather w1 70.9 MB"),
        ("loop ×8", "loop ×8"),
    ],
)
def test_descriptions_without_the_number_of_a_layer(description, expected):
    assert rolled_description(description) == expected
