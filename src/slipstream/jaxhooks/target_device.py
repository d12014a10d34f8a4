"""Questions that JAX asks about the local device while it traces, answered for another one.

    jax.nn.dot_product_attention(implementation="cudnn")    version of cuDNN, compute capability
    Pallas kernels                                          compute capability, number of SMs
    Pallas kernels for TPUs                                 device kind, number of cores
    jax.pure_callback, jax.debug.print                      the client, which none uses
    NamedSharding(…, memory_kind="pinned_host")             the memories of its devices

Where nothing is installed that could answer, tracing fails, although lowering needs none of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from slipstream.jaxhooks import private_api
from slipstream.jaxhooks.compat import Feature, JaxChanged, PrivatePart, jax_version, warn_once


@dataclass(frozen=True)
class TargetGpu:
    """A GPU as JAX's devices describe theirs."""

    device_kind: str
    """the driver's name: `NVIDIA H200`"""
    capability: tuple[int, int]
    core_count: int
    """streaming multiprocessors"""
    cudnn: int
    """version of cuDNN, as cuDNN writes it: 91900"""
    platform: str = "gpu"
    lowering_platform: str = "cuda"

    @property
    def compute_capability(self) -> str:
        return ".".join(map(str, self.capability))


@dataclass(frozen=True)
class TargetTpu:
    """A TPU as JAX's devices describe theirs."""

    device_kind: str
    """`TPU v5 lite`"""
    core_count: int
    """TensorCores"""
    platform: str = "tpu"
    lowering_platform: str = "tpu"


@contextmanager
def answering_for(target: TargetGpu | TargetTpu) -> Iterator[None]:
    """Trace and lower as on this device.

    On a JAX that asks in another way, functions that don't ask are lowered as before.
    """
    if isinstance(target, TargetTpu):  # its kernels ask the abstract device
        with _answering({private_api.LOWERING_BACKEND: _callback_client}):
            yield
        return

    def at_least(capability: str) -> bool:
        return target.capability >= _pair(capability)

    def equal(capability: str) -> bool:
        return target.capability == _pair(capability)

    own: dict[PrivatePart, Any] = {}

    def backend(context: Any, optional: bool = False) -> Any:
        try:
            return own[private_api.LOWERING_BACKEND](context, optional)
        except (RuntimeError, ValueError):  # there is no GPU here
            return None if optional else context.backend

    answers: dict[PrivatePart, Callable[..., Any]] = {
        private_api.CUDNN_VERSION: lambda: target.cudnn,
        private_api.CAPABILITY_AT_LEAST: at_least,
        private_api.CAPABILITY_EQUAL: equal,
        private_api.DEFAULT_DEVICE: lambda: target,
        private_api.LOWERING_BACKEND: backend,
    }
    with _answering(answers) as replaced:
        own.update(replaced)
        yield


def _callback_client(context: Any, optional: bool = False) -> Any:
    return None if optional else _CallbackClient()


class _CallbackClient:
    """The client of a TPU, as far as host callbacks need it: nobody calls them."""

    def make_python_callback_from_host_send_and_recv(self, *_: Any) -> None:
        return None


@contextmanager
def _answering(
    answers: Mapping[PrivatePart, Callable[..., Any]],
) -> Iterator[dict[PrivatePart, Any]]:
    """Replace JAX's own functions, which are yielded."""
    try:
        own = {part: part.get() for part in answers}
    except JaxChanged as changed:
        warn_once(str(changed))
        own = {}
    try:
        for part in own:
            part.replace(answers[part])
        yield own
    finally:
        for part, function in own.items():
            part.replace(function)


def needs_abstract_device(error: Exception) -> bool:
    """Whether a Pallas kernel can't be lowered without an abstract device.

    Kernels for TPUs ask for it if they depend on the kind of TPU, others from JAX 0.12 on.
    """
    return "AbstractDevice" in str(error) or "Unsupported TPU device kind" in str(error)


@contextmanager
def abstract_device(target: TargetGpu | TargetTpu) -> Iterator[None]:
    """Lower below a mesh without axes that names the device."""
    import jax

    sharding: Any = jax.sharding
    device = sharding.AbstractDevice(
        device_kind=target.device_kind, num_cores=target.core_count, platform=target.platform
    )
    with sharding.use_abstract_mesh(sharding.AbstractMesh((), (), abstract_device=device)):
        yield


class Memory(str):
    """A memory of a GPU. JAX compares it with the kind that is asked for, so it is its kind."""

    @property
    def kind(self) -> str:
        return str(self)


GPU_MEMORIES = (Memory("device"), Memory("pinned_host"))
"""as JAX's client of a GPU that is here has them"""
NO_SUCH_MEMORY = "Could not find memory addressable by device"
"""JAX's error for a memory kind that a device doesn't have"""


class GpuWithMemories:
    """A GPU that XLA only compiles for, with the memories that its client leaves out.

    JAX silently ignores the memory kinds of shardings on devices without memories.
    """

    def __init__(self, device: Any) -> None:
        self._device = device

    def addressable_memories(self) -> list[Memory]:
        return list(GPU_MEMORIES)

    def default_memory(self) -> Memory:
        return GPU_MEMORIES[0]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # a protocol that devices don't have
            raise AttributeError(name)
        return getattr(self._device, name)

    def __repr__(self) -> str:
        return repr(self._device)

    def __str__(self) -> str:
        return str(self._device)


def with_memories(devices: Sequence[Any]) -> list[Any]:
    """Devices for which JAX keeps the memory kinds of shardings; they can only be lowered for.

    JaxChanged if this JAX doesn't.
    """
    import jax

    if devices[0].platform != "gpu" or devices[0].addressable_memories():
        return list(devices)
    private_api.DEVICE_MEMORIES.get()
    made = [GpuWithMemories(device) for device in devices]
    first: Any = made[0]
    host = GPU_MEMORIES[1].kind
    try:
        kept: Any = jax.sharding.SingleDeviceSharding(first, memory_kind=host).memory_kind
    except (AttributeError, TypeError, ValueError) as error:
        kept = type(error).__name__
    if kept != host:
        part, seen = private_api.DEVICE_MEMORIES.name, f"makes {kept} of {host}"
        raise JaxChanged(Feature.MEMORIES, part, f"{seen} in JAX {jax_version()}", host)
    return made


def _pair(capability: str) -> tuple[int, ...]:
    return tuple(int(number) for number in capability.split("."))
