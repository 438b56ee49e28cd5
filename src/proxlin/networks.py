"""Networks as plain functions of a pytree, with smooth activations (Proposition 1 needs a smooth
phi).
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .checks import described, flag, one_of, whole
from .types import Key, Params

ACTIVATIONS: dict[str, Callable] = {
    "tanh": jnp.tanh,
    "elu": jax.nn.elu,
    "softplus": jax.nn.softplus,
    "gelu": jax.nn.gelu,
    "sigmoid": jax.nn.sigmoid,
}


def activation_named(name: str) -> Callable:
    return ACTIVATIONS[one_of(name, "A smooth activation", ACTIVATIONS)]


class MLP(eqx.Module):
    """The network x -> W_L act(... act(W_1 x + b_1) ...) + b_L, a function of w = [{"W", "b"}, ...].

    Parameters
    ----------
    sizes : a tuple of integers
        The sizes of the input, of the hidden layers and of the output.
    activation : a word
        "tanh", "elu", "softplus", "gelu" or "sigmoid"; all of them are smooth.
    bias : True or False
        Whether the layers have b.

    Raises
    ------
    ValueError
        There are fewer than two sizes.

    See Also
    --------
    CNN : a network for images.
    residual : makes an inner map of it.

    Examples
    --------
    >>> import jax
    >>> import jax.numpy as jnp
    >>> import proxlin as px
    >>> predict = px.MLP((3, 8, 2))
    >>> w = predict.init(jax.random.key(0))
    >>> predict(w, jnp.ones(3)).shape
    (2,)
    """

    sizes: tuple[int, ...] = eqx.field(static=True)
    activation: str = eqx.field(static=True)
    bias: bool = eqx.field(static=True)

    def __init__(
        self, sizes: Sequence[int], activation: str = "tanh", bias: bool = True
    ):
        activation_named(activation)
        if not isinstance(sizes, Sequence) or len(sizes) < 2:
            raise ValueError(
                f"An MLP needs at least an input and an output size; it got {described(sizes)}."
            )
        self.sizes = tuple(whole(size, "A size of an MLP") for size in sizes)
        self.activation = activation
        self.bias = flag(bias, "bias")

    def init(self, key: Key, dtype: jnp.dtype | type | None = None) -> Params:
        """Return weights N(0, 1/fan-in), and biases 0.

        Parameters
        ----------
        key : a key of `jax.random`
            The randomness of the weights.
        dtype : a dtype
            That of the parameters; None is JAX's default.

        Returns
        -------
        a list of dicts
            w, the parameters.
        """
        keys = jax.random.split(key, len(self.sizes) - 1)
        layers = []
        for key, (inputs, outputs) in zip(
            keys, itertools.pairwise(self.sizes), strict=True
        ):
            layer = {"W": _weights(key, (outputs, inputs), inputs, dtype)}
            if self.bias:
                layer["b"] = jnp.zeros(outputs, dtype)
            layers.append(layer)
        return layers

    def __call__(self, w: Params, x: Float[Array, " p"]) -> Float[Array, " k"]:
        act = activation_named(self.activation)
        for layer in w[:-1]:
            x = act(_affine(layer, x))
        return _affine(w[-1], x)


class WithLinear(eqx.Module):
    """x -> network(x) + scale A x: a linear model and what it leaves. From a start at 0 the network
    stays 0.

    >>> predict = WithLinear(MLP((3, 8, 2)))
    >>> predict(predict.init(jax.random.key(0)), jnp.ones(3)).shape
    (2,)
    """

    network: MLP
    scale: float = eqx.field(default=3.0, static=True)

    def init(self, key: Key, dtype: jnp.dtype | type | None = None) -> Params:
        """Return the network's own start, with A = 0."""
        sizes = self.network.sizes
        linear = jnp.zeros((sizes[-1], sizes[0]), dtype)
        return {"network": self.network.init(key, dtype), "A": linear}

    def __call__(self, w: Params, x: Float[Array, " p"]) -> Float[Array, " k"]:
        return self.network(w["network"], x) + self.scale * (w["A"] @ x)


class Trees(eqx.Module):
    """x -> the sum of the leaves that x falls into, in `count` complete binary trees.

    w = {"feature", "cut", "leaf"}: node j of a tree sends x to its right child 2j + 2 where
    x[feature_j] > cut_j, and to its left child 2j + 1 elsewhere. All of them are floating-point
    numbers, as parameters are.

    >>> predict = Trees((3, 2), count=4, depth=2)
    >>> predict(predict.init(jax.random.key(0)), jnp.ones(3)).tolist()
    [0.0, 0.0]
    """

    sizes: tuple[int, int] = eqx.field(static=True)  # of input and output
    count: int = eqx.field(static=True)
    depth: int = eqx.field(static=True)

    def init(self, key: Key, dtype: jnp.dtype | type | None = None) -> Params:
        """Return trees whose leaves are 0."""
        nodes = (self.count, 2**self.depth - 1)
        return {
            "feature": jnp.zeros(nodes, dtype),
            "cut": jnp.full(
                nodes, jnp.finfo(jnp.result_type(dtype or float)).max, dtype
            ),
            "leaf": jnp.zeros((self.count, 2**self.depth, self.sizes[1]), dtype),
        }

    def __call__(self, w: Params, x: Float[Array, " p"]) -> Float[Array, " k"]:
        each = jnp.arange(self.count)
        feature = w["feature"].astype(jnp.int32)
        node = jnp.zeros(self.count, jnp.int32)
        for _ in range(self.depth):
            right = x[feature[each, node]] > w["cut"][each, node]
            node = 2 * node + 1 + right.astype(jnp.int32)
        leaves = w["leaf"][each, node - (2**self.depth - 1)]
        return leaves.sum(axis=0)


class WithTrees(eqx.Module):
    """x -> network(x) + trees(x).

    >>> predict = WithTrees(WithLinear(MLP((3, 8, 2))), Trees((3, 2), count=4, depth=2))
    >>> predict(predict.init(jax.random.key(0)), jnp.ones(3)).shape
    (2,)
    """

    network: WithLinear
    trees: Trees

    def init(self, key: Key, dtype: jnp.dtype | type | None = None) -> Params:
        """Return the network's own start, and trees whose leaves are 0."""
        return {
            "network": self.network.init(key, dtype),
            "trees": self.trees.init(key, dtype),
        }

    def __call__(self, w: Params, x: Float[Array, " p"]) -> Float[Array, " k"]:
        return self.network(w["network"], x) + self.trees(w["trees"], x)


class CNN(eqx.Module):
    """The network that takes an image (rows, cols, colours) to R^k: stages of a 3x3 convolution,
    activation and 2x2 mean, then linear.

    Parameters
    ----------
    shape : a tuple of three integers
        The rows, columns and colours of an image.
    channels : a tuple of integers
        The channels after each stage; a stage halves the sides.
    outputs : an integer
        k.
    activation : a word
        "tanh", "elu", "softplus", "gelu" or "sigmoid"; all of them are smooth.

    Raises
    ------
    TypeError
        shape or channels is no tuple.
    ValueError
        The sides cannot be halved as often as there are stages.

    See Also
    --------
    MLP : a network for vectors.
    residual : makes an inner map of it.

    Examples
    --------
    >>> import jax
    >>> import jax.numpy as jnp
    >>> import proxlin as px
    >>> predict = px.CNN((8, 8, 3), channels=(4, 8), outputs=1)
    >>> predict(predict.init(jax.random.key(0)), jnp.ones((8, 8, 3))).shape
    (1,)
    """

    shape: tuple[int, int, int] = eqx.field(static=True)
    channels: tuple[int, ...] = eqx.field(static=True)
    outputs: int = eqx.field(static=True)
    activation: str = eqx.field(static=True)

    def __init__(
        self,
        shape: Sequence[int],
        channels: Sequence[int] = (16, 32),
        outputs: int = 1,
        activation: str = "elu",
    ):
        activation_named(activation)
        for sizes, name in ((shape, "shape"), (channels, "channels")):
            if not isinstance(sizes, Sequence):
                raise TypeError(
                    f"{name} of a CNN must be a tuple of sizes; it is {described(sizes)}."
                )
        shape = [whole(size, "A size in the shape of a CNN") for size in shape]
        channels = [whole(size, "A size in the channels of a CNN") for size in channels]
        side = 2 ** len(channels)
        if len(shape) != 3 or shape[0] % side or shape[1] % side:
            raise ValueError(
                f"A CNN with {len(channels)} stages needs images (rows, cols, colours) whose sides are multiples of "
                f"{side}; they are {tuple(shape)}."
            )
        rows, cols, colours = shape
        self.shape = (rows, cols, colours)
        self.channels = tuple(channels)
        self.outputs = whole(outputs, "outputs of a CNN")
        self.activation = activation

    def init(self, key: Key, dtype: jnp.dtype | type | None = None) -> Params:
        """Return weights N(0, 1/fan-in), and biases 0.

        Parameters
        ----------
        key : a key of `jax.random`
            The randomness of the weights.
        dtype : a dtype
            That of the parameters; None is JAX's default.

        Returns
        -------
        a list of dicts
            w, the parameters.
        """
        rows, cols, colours = self.shape
        depths = (colours, *self.channels)
        *stage_keys, last_key = jax.random.split(key, len(depths))
        stages = []
        for key, (before, after) in zip(
            stage_keys, itertools.pairwise(depths), strict=True
        ):
            # They are drawn flat: the numbers are the same, but XLA takes seconds to compile a draw
            # of four axes.
            weights = _weights(key, (9 * before * after,), 9 * before, dtype)
            stages.append(
                {
                    "W": weights.reshape(3, 3, before, after),
                    "b": jnp.zeros(after, dtype),
                }
            )
        side = 2 ** len(self.channels)
        features = (rows // side) * (cols // side) * depths[-1]
        return stages + MLP((features, self.outputs)).init(last_key, dtype)

    def __call__(
        self, w: Params, x: Float[Array, "rows cols colours"]
    ) -> Float[Array, " k"]:
        act = activation_named(self.activation)
        for stage in w[:-1]:
            axes = ("NHWC", "HWIO", "NHWC")
            images = jax.lax.conv_general_dilated(
                x[None], stage["W"], (1, 1), "SAME", dimension_numbers=axes
            )
            _, rows, cols, depth = images.shape
            x = act(images[0] + stage["b"][None, None, :])
            x = x.reshape(rows // 2, 2, cols // 2, 2, depth).mean((1, 3))
        return _affine(w[-1], x.ravel())


def _weights(key: Key, shape: tuple[int, ...], inputs: int, dtype: Any) -> Array:
    """Draw N(0, 1/inputs)."""
    normal = jax.random.normal(key, shape, dtype)
    return normal / jnp.sqrt(jnp.asarray(inputs, normal.dtype))


def _affine(layer: Params, x: Array) -> Array:
    image = layer["W"] @ x
    if "b" in layer:
        return image + layer["b"]
    return image
