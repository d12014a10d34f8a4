"""The tracks of a Perfetto trace and the texts that its packets refer to."""

from __future__ import annotations

from slipstream.outputs.perfetto.packets import SEQUENCE, STARTS_SEQUENCE, packet
from slipstream.outputs.wire import message, number, string
from slipstream.profile.profile import Profile


class InternedTexts:
    """Interned texts by use; Perfetto numbers each sort from 1."""

    _FIELDS = {"category": 1, "name": 2, "annotation": 3, "value": 29}

    def __init__(self) -> None:
        self._indices: dict[str, dict[str, int]] = {sort: {} for sort in self._FIELDS}

    def index(self, sort: str, text: str) -> int:
        indices = self._indices[sort]
        return indices.setdefault(text, len(indices) + 1)

    def packet(self) -> bytes:
        entries = (
            message(self._FIELDS[sort], number(1, index), string(2, text))
            for sort, indices in self._indices.items()
            for text, index in indices.items()
        )
        flags = number(10, SEQUENCE) + number(13, STARTS_SEQUENCE)
        return packet(flags, message(12, *entries))


class TrackDescriptors:
    """Numbers tracks on first use, with one descriptor packet each."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.descriptors: list[bytes] = []
        self._uuids: dict[tuple[str, int, int], int] = {}

    def lane(self, lane: int, level: int) -> int:
        """The track of a lane; higher levels hold slices that overlap on lower ones."""
        if found := self._uuids.get(("lane", lane, level)):
            return found
        name = self.profile.lanes[lane].name or f"lane {lane}"
        if level:
            parent = self.lane(lane, 0)
            fields = string(2, f"{name}, overlapping {level}") + number(5, parent)
        else:
            # Thread ids differ from process ids: equal ones would mean a main thread.
            pid = self._process(self.profile.lanes[lane].device, self.profile.lanes[lane].host)
            tid = 1 + len(self.profile.devices) + len(self.profile.hosts) + lane
            fields = message(4, number(1, pid), number(2, tid), string(5, name))
        return self._describe(("lane", lane, level), fields)

    def steps(self, device: int) -> int:
        """The track of a device's steps."""
        return self._beside(device, "steps", b"")

    def counter(self, device: int, name: str, unit: str) -> int:
        """The track of a device's counter."""
        return self._beside(device, name, message(8, string(6, unit)))

    def _beside(self, device: int, name: str, fields: bytes) -> int:
        """A track of a device that is not a stream."""
        key = (name, device, 0)
        if key not in self._uuids:
            self._process(device, self.profile.devices[device].host)
            parent = self._uuids["process", 1 + device, 0]
            self._describe(key, string(2, name) + number(5, parent) + fields)
        return self._uuids[key]

    def _process(self, device: int | None, host: int) -> int:
        pid = 1 + (len(self.profile.devices) + host if device is None else device)
        if ("process", pid, 0) not in self._uuids:
            process = message(3, number(1, pid), string(6, self._process_name(device, host)))
            self._describe(("process", pid, 0), process)
        return pid

    def _process_name(self, device: int | None, host: int) -> str:
        host_name = self.profile.hosts[host].name
        if device is None:
            return f"host {host_name}"
        name = f"{self.profile.devices[device].name} {self.profile.devices[device].model}".strip()
        return f"{host_name} {name}" if len(self.profile.hosts) > 1 else name

    def _describe(self, key: tuple[str, int, int], fields: bytes) -> int:
        uuid = self._uuids[key] = len(self._uuids) + 1
        self.descriptors.append(packet(number(10, SEQUENCE), message(60, number(1, uuid), fields)))
        return uuid
