"""HLO through XLA's own parser, printer and converter."""

from __future__ import annotations

from slipstream.jaxhooks import private_api


def proto_from_text(text: str) -> bytes:
    """HLO text as a serialized HloModuleProto."""
    module = private_api.HLO_FROM_TEXT.get()(text)
    return bytes(module.as_serialized_hlo_module_proto())


def text_from_proto(proto: bytes) -> str:
    """A serialized HloModuleProto as XLA prints it."""
    return str(private_api.HLO_MODULE.get().from_serialized_hlo_module_proto(proto).to_string())


def to_stablehlo(proto: bytes) -> bytes:
    """A serialized HloModuleProto as StableHLO bytecode."""
    return bytes(private_api.HLO_TO_STABLEHLO.get()(proto))
