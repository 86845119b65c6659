"""How records lie in Redis: keys, scripts, and the messages that tell of changes. Redis 6.2 commands only.

A record is a hash: ``h`` the first ``HEAD_BYTES`` of its value, ``v`` the rest, ``n`` its version, ``w`` the id of the
write that made it. All records of one
tenant and kind share a hash tag, so that in a cluster they lie in one slot with their index, a sorted set of the keys
by the time (Unix milliseconds by the server's clock) at which they expire.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha1
from urllib.parse import quote

from adapters.stores.names import MAX_VERSION, Name
from sidecar.ports import Invalidation, Stored

HEAD_BYTES = 1_024
"""So much of a value can be listed without reading the rest of it."""

MAX_MESSAGE_BYTES = 16 * 1024

MOST_KEYS_SEARCHED = 250_000
"""A list that is lost is made anew on servers with at most so many keys: a quarter of a second's work."""

DAMAGED = Stored(b"", 0)
"""What a record reads as whose version is damaged, or that is no hash."""

_HEAD = struct.Struct(">dI")

ANY = b"*"
ABSENT = b""
"""What ``WRITE`` may expect of a version besides a number."""


@dataclass(frozen=True, slots=True)
class Script:
    """A Lua script and its name for EVALSHA."""

    source: str
    sha: str

    @classmethod
    def of(cls, source: str) -> Script:
        """Names it as Redis does."""
        # Redis names scripts by SHA-1; nothing here is protected by it.
        return cls(source, sha1(source.encode(), usedforsecurity=False).hexdigest())


_VERSION = """
local function version(record, n)
  if n and #n < 17 and string.find(n, '^[1-9]%d*$') and tonumber(n) <= 9007199254740991 then return n end
  if n or redis.call('HEXISTS', record, 'h') == 1 or redis.call('HEXISTS', record, 'v') == 1 then return '0' end
  return ''
end
"""
"""Lua: the version of a hash whose field ``n`` is given: ``0`` if it is damaged, empty for what is no record."""

_INDEX_ENDS = """
local function keep_index_until_last(index)
  local last = redis.call('ZREVRANGE', index, 0, 0, 'WITHSCORES')
  if not last[2] or last[2] == 'inf' then
    redis.call('PERSIST', index)
  else
    redis.call('PEXPIREAT', index, string.format('%d', tonumber(last[2]) + 1000))
  end
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
"""
"""Lua: has an index go when the last of its records has; ``now`` in Unix milliseconds."""

WRITE = Script.of(
    _VERSION
    + _INDEX_ENDS
    + """
local old = redis.pcall('HMGET', KEYS[1], 'n', 'w')
local there = '0'
if not old.err then
  there = version(KEYS[1], old[1])
  if old[2] == ARGV[5] and there ~= '0' and there ~= '' then return tonumber(there) end
end
if ARGV[4] ~= '*' and ARGV[4] ~= there then return 0 end
local new = (tonumber(there) or 0) % 9007199254740991 + 1
if old.err then redis.call('DEL', KEYS[1]) end
redis.call('HSET', KEYS[1], 'h', ARGV[2], 'v', ARGV[8], 'n', string.format('%d', new), 'w', ARGV[5])
if ARGV[3] == '' then
  redis.call('PERSIST', KEYS[1])
else
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
end
local kept = redis.call('TYPE', KEYS[2]).ok
if kept == 'zset' or kept == 'none' then
  redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', '(' .. string.format('%d', now))
  redis.call('ZADD', KEYS[2], ARGV[3] == '' and '+inf' or string.format('%d', now + ARGV[3]), ARGV[1])
  keep_index_until_last(KEYS[2])
end
redis.call('PUBLISH', ARGV[6], ARGV[7])
return new
"""
)
"""Keys: record, index. Arguments: key, head, time to live in ms or empty, expected version (``ANY``, ``ABSENT`` or a
number), id of the write, channel, message, rest of the value. Returns the new version, or 0 if another one was there.

A value of another type under the record's key counts as a damaged record, of version 0. The same write again changes
nothing. An index of another type is left to ``REBUILD``, which knows all of its records. HSET comes before
whatever else writes: a script that has written is not told any more that the memory is full."""

DELETE = Script.of("""
redis.pcall('ZREM', KEYS[2], ARGV[1])
if redis.call('DEL', KEYS[1]) == 0 then return 0 end
redis.call('PUBLISH', ARGV[2], ARGV[3])
return 1
""")
"""Keys: record, index. Arguments: key, channel, message. Returns 1 if there was something to delete."""

INDEX = Script.of("""
local found = {}
for _, key in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
  found[#found + 1] = struct.pack('>I4', #key) .. key
end
return table.concat(found)
""")
"""Keys: index. Returns its keys, each after its length (uint32, big-endian), in one string: that reads faster."""

REBUILD = Script.of(
    _INDEX_ENDS
    + """
local kept = redis.call('TYPE', KEYS[1]).ok
if kept == 'zset' or kept == 'none' then return 1 end
if redis.call('DBSIZE') > tonumber(ARGV[3]) then return 0 end
local cursor, found = '0', {}
repeat
  local part = redis.call('SCAN', cursor, 'MATCH', ARGV[1], 'COUNT', 1000)
  cursor = part[1]
  for _, record in ipairs(part[2]) do found[record] = redis.call('PTTL', record) end
until cursor == '0'
redis.call('DEL', KEYS[1])
for record, left in pairs(found) do
  local key = string.gsub(string.sub(record, ARGV[2] + 1), '%%(%x%x)', function(code)
    return string.char(tonumber(code, 16))
  end)
  if left ~= -2 then
    redis.call('ZADD', KEYS[1], left < 0 and '+inf' or string.format('%d', now + left), key)
  end
end
keep_index_until_last(KEYS[1])
return 1
"""
)
"""Keys: index. Arguments: pattern of its records' keys, bytes before the quoted name in each, most keys of the server.

Makes an index that is of another type anew from the records there are. Returns 0 if that would take the server too
long. The records' keys are not declared, they lie in the index's slot."""

HEADS = Script.of(
    _VERSION
    + """
local found = {}
local wanted = tonumber(ARGV[1])
for i = 2, #KEYS do
  local got
  if wanted == 0 then
    got = redis.pcall('HMGET', KEYS[i], 'n')
  elseif wanted <= 1024 then
    got = redis.pcall('HMGET', KEYS[i], 'n', 'h')
  else
    got = redis.pcall('HMGET', KEYS[i], 'n', 'h', 'v')
  end
  local there = '0'
  if got.err then
    got = {}
  else
    there = version(KEYS[i], got[1])
  end
  local head = ''
  if there == '' then
    redis.call('ZREM', KEYS[1], ARGV[i])
    there = '-1'
  elseif there ~= '0' and got[2] ~= false and got[3] ~= false then
    head = string.sub((got[2] or '') .. (got[3] or ''), 1, wanted)
  end
  found[#found + 1] = struct.pack('>dI4', tonumber(there), #head) .. head
end
return table.concat(found)
"""
)
"""Keys: index, records. Arguments: bytes of each value that are wanted, then the records' keys. Returns for each its
version (float64), the length of its head (uint32, both big-endian) and the head, in one string. The version is 0 for a
damaged record, -1 for what is not there (any more); that leaves the index too."""


def stored(version: object, head: object, rest: object) -> Stored | None:
    """The record of a hash with these fields ``n``, ``h`` and ``v``; None for a hash that is none of ours."""
    if version is head is rest is None:
        return None
    sound = isinstance(version, bytes) and len(version) < 17 and re.fullmatch(rb"[1-9][0-9]*", version)
    if not (isinstance(version, bytes) and sound and int(version) <= MAX_VERSION):
        return DAMAGED
    if not (isinstance(head, bytes) and isinstance(rest, bytes)):
        return Stored(b"", int(version))
    return Stored(head + rest, int(version))


def index_keys(packed: bytes) -> list[bytes]:
    """What ``INDEX`` returned, taken apart. Raises ``ValueError``."""
    keys, place = [], 0
    while place < len(packed):
        start = place + 4
        place = start + int.from_bytes(packed[place:start])
        keys.append(packed[start:place])
    if place != len(packed):
        raise ValueError("cut off")
    return keys


def heads(packed: bytes) -> list[tuple[int, bytes]]:
    """What ``HEADS`` returned, taken apart: version and head of each. Raises ``ValueError``."""
    found, place = [], 0
    try:
        while place < len(packed):
            version, size = _HEAD.unpack_from(packed, place)
            start = place + _HEAD.size
            place = start + size
            found.append((int(version), packed[start:place]))
    except (struct.error, OverflowError) as error:
        raise ValueError("cut off") from error
    if place != len(packed):
        raise ValueError("cut off")
    return found


@dataclass(frozen=True, slots=True)
class Layout:
    """Keys under one prefix."""

    prefix: str

    @property
    def channel(self) -> str:
        """Where changes are announced."""
        return f"{self.prefix}:changes"

    def record(self, name: Name) -> str:
        """The key of a record."""
        return self.records(name[0], name[1], (name[2],))[0]

    def records(self, tenant: str, kind: str, keys: Iterable[str]) -> list[str]:
        """The keys of several records."""
        group = self._group(tenant, kind)
        return [f"{group}:r:{quote(key, safe='')}" for key in keys]

    def index(self, tenant: str, kind: str) -> str:
        """The key of the index of one tenant and kind."""
        return f"{self._group(tenant, kind)}:i"

    def search(self, tenant: str, kind: str) -> tuple[str, int]:
        """A pattern for the keys of all records of one tenant and kind, and the bytes before the name in each."""
        start = f"{self._group(tenant, kind)}:r:"
        return re.sub(r"([*?\[\]\\])", r"\\\1", start) + "*", len(start.encode())

    def _group(self, tenant: str, kind: str) -> str:
        # A hash tag ends at the first brace, an empty one counts for nothing: quoted names have no braces.
        return f"{self.prefix}:{{{quote(tenant, safe='')}/{quote(kind, safe='')}}}"


@dataclass(frozen=True, slots=True)
class Announcement:
    """A change as it is published: which write of which sender, and what it changed."""

    sender: str
    number: int
    change: Invalidation

    def to_bytes(self) -> bytes:
        """JSON."""
        change = self.change
        return json.dumps([self.sender, self.number, change.tenant, change.kind, change.key]).encode()

    @classmethod
    def from_bytes(cls, data: object) -> Announcement | None:
        """None for anything else."""
        if not isinstance(data, bytes) or len(data) > MAX_MESSAGE_BYTES:
            return None
        try:
            sender, number, *name = json.loads(data)
        except (ValueError, TypeError, RecursionError):
            return None
        if not isinstance(sender, str) or type(number) is not int or len(name) != 3:
            return None
        if not all(isinstance(part, str) for part in name):
            return None
        return cls(sender, number, Invalidation(*name))
