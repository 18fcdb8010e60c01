"""Protocol 3 (PROTOCOL.md) in user space, in both roles: what the wire says, told a second time.

`Noise` is the handshake's arithmetic, `connect` and `welcome` are its two halves on a socket, `Connection` sends and
receives frames. `Borrower` and `Lender` are peers that keep to the protocol; bed/hostile.py has those that mean harm or
take their time, bed/liar.py those that send what they like.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import hashlib
import hmac
import itertools
import queue
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

MAGIC, VERSION, PROLOGUE = 0x45444954, 3, b"tidepool 3"
KIND = "x25519:"
CLEAR = 1  # a feature: what is beside pages is authenticated, not encrypted
FEATURES = CLEAR
PAGE, TAG, POINT, KEY = 4096, 16, 32, 32
REKEY_FRAMES = 16384
GET_CHANNEL, PUT_CHANNEL, LANE_CHANNEL = 0, 1, 2
MAX_LANES = 4  # of a session, its GET channel included
SILENCE_SECONDS = 60.0  # of a peer that may be a guest on a busy machine

MESSAGE_1, MESSAGE_2, MESSAGE_3, REJECTION = 1, 2, 3, 4
HEAD = struct.Struct("<IHBB")  # magic, version, type, code
HELLO = struct.Struct("<QQQQQB7s")  # session, resume, version, size, features, channel, limits
ANSWER = struct.Struct("<QB7s")  # features, code, limits
LIMITS = struct.Struct("<BHHH")  # lanes, and what a GET, a PUT and a notice name at most
VERSIONS = struct.Struct("<HH4x")  # of a rejection: oldest, newest
WELCOME, UNKNOWN, DISABLED, BAD_LIMITS = 0, 1, 2, 3
REJECT_VERSION, REJECT_IDENTITY, REJECT_FULL = 1, 2, 3
MESSAGE_1_BYTES = 2 * POINT + 2 * TAG + HELLO.size
MESSAGE_2_BYTES = POINT + TAG + ANSWER.size

GET, DATA, PUT, PUT_ACK, EVICTED, FORGET, PING, PONG, GRANT, RESIZE, EVICTED_BEFORE = range(1, 12)
EXCLUSIVE = 1  # a GET's flag
RESUMED = 1  # that of the first GRANT
GET_MAX, PUT_MAX, NOTICE_MAX = 512, 64, 128
FRAME = struct.Struct("<IBBHQ")  # length, type, flags, count, id
NUMBER = struct.Struct("<Q")
GET_ITEM = struct.Struct("<QQ")  # index, version
DATA_ITEM = struct.Struct(f"<Q{TAG}s")  # version, tag
GRANTED = struct.Struct("<QQ")  # bytes, milliseconds that the session lives without connections
PAGE_ID = struct.Struct("<QQQ")  # file, index, version
PUT_ITEM = struct.Struct(f"<QQQ{TAG}s")  # file, index, version, tag
FORGET_ITEM = struct.Struct("<QQQQ")  # file, first, last, before


class Refused(Exception):
    """A lender said no; `code` is of a message 2 or, if not `sealed`, of a rejection."""

    def __init__(self, code: int, *, sealed: bool, versions: tuple[int, int] = (0, 0)) -> None:
        super().__init__(f"code {code}, {'sealed' if sealed else 'in the clear'}")
        self.code, self.sealed, self.versions = code, sealed, versions


class Malformed(Exception):
    """What came is not of this protocol."""


# Who a peer is


class KeyPair:
    """A static or an ephemeral one, drawn unless the secret is given."""

    def __init__(self, secret: bytes | None = None) -> None:
        self._secret = X25519PrivateKey.from_private_bytes(secret) if secret else X25519PrivateKey.generate()
        self.point = self._secret.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)

    @property
    def secret(self) -> bytes:
        return self._secret.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption())

    def agree(self, point: bytes) -> bytes:
        """The secret shared with the owner of a point; ValueError for one of low order."""
        return self._secret.exchange(X25519PublicKey.from_public_bytes(point))

    @property
    def identity(self) -> str:
        return KIND + self.point.hex()


def somebody() -> str:
    """The identity of a guest that there is not."""
    return KeyPair().identity


def point_of(identity: str) -> bytes:
    return bytes.fromhex(identity.removeprefix(KIND))


# Noise_IK_25519_AESGCM_SHA256, revision 34 of the framework


class Cipher:
    """A key and its counter; the key is renewed (Noise's REKEY) after so many texts."""

    def __init__(self, key: bytes) -> None:
        self._aead, self._count = AESGCM(key), 0

    def _renew(self) -> bytes:
        """What follows the next key where that comes from."""
        fresh = self._aead.encrypt(_nonce((1 << 64) - 1), bytes(KEY + TAG), b"")
        self._aead = AESGCM(fresh[:KEY])
        return fresh[KEY : KEY + TAG]

    def _next(self) -> tuple[AESGCM, bytes]:
        if self._count and self._count % REKEY_FRAMES == 0:
            self._renew()
        self._count += 1
        return self._aead, _nonce(self._count - 1)

    def seal(self, text: bytes, header: bytes = b"") -> bytes:
        aead, nonce = self._next()
        return aead.encrypt(nonce, text, header)

    def open(self, sealed: bytes, header: bytes = b"") -> bytes:
        """What was sealed; Malformed when it is something else."""
        aead, nonce = self._next()
        try:
            return aead.decrypt(nonce, sealed, header)
        except InvalidTag:
            raise Malformed("it does not verify") from None

    def clear(self) -> Clear:
        """What goes on with this key and counter, but authenticates only."""
        return Clear(self._aead, self._count)


class Clear(Cipher):
    """Seals nothing, but for a tag."""

    def __init__(self, aead: AESGCM, count: int) -> None:
        self._aead, self._count = aead, count
        self._key = self._renew()

    def _tag(self, text: bytes, header: bytes) -> bytes:
        if self._count and self._count % REKEY_FRAMES == 0:
            self._key = self._renew()
        self._count += 1
        return siphash(self._key, (self._count - 1).to_bytes(8, "little") + header + text)

    def seal(self, text: bytes, header: bytes = b"") -> bytes:
        return text + self._tag(text, header)

    def open(self, sealed: bytes, header: bytes = b"") -> bytes:
        if self._tag(sealed[:-TAG], header) != sealed[-TAG:]:
            raise Malformed("it does not verify")
        return sealed[:-TAG]


SIP_CONSTANTS = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)


def siphash(key: bytes, text: bytes) -> bytes:
    """SipHash-2-4 with a tag of 128 bits."""
    low, high = struct.unpack("<QQ", key)
    key_words = (low, high ^ 0xEE, low, high)
    v = [constant ^ word for constant, word in zip(SIP_CONSTANTS, key_words, strict=True)]
    last = text[len(text) // 8 * 8 :].ljust(7, b"\0") + bytes([len(text) % 256])
    for (word,) in struct.iter_unpack("<Q", text[: len(text) // 8 * 8] + last):
        v[3] ^= word
        _sip_rounds(v, 2)
        v[0] ^= word
    tag = b""
    for which, mark in ((2, 0xEE), (1, 0xDD)):
        v[which] ^= mark
        _sip_rounds(v, 4)
        tag += (v[0] ^ v[1] ^ v[2] ^ v[3]).to_bytes(8, "little")
    return tag


def _sip_rounds(v: list[int], rounds: int) -> None:
    for _ in range(rounds):
        for a, b, turn, whole in ((0, 1, 13, True), (2, 3, 16, False), (0, 3, 21, False), (2, 1, 17, True)):
            v[a] = (v[a] + v[b]) % (1 << 64)
            v[b] = _turned(v[b], turn) ^ v[a]
            v[a] = _turned(v[a], 32) if whole else v[a]


def _turned(word: int, bits: int) -> int:
    return (word << bits | word >> (64 - bits)) % (1 << 64)


def _as_agreed(features: int, sending: Cipher, receiving: Cipher) -> tuple[Cipher, Cipher]:
    """After the handshake: what seals, or what only authenticates."""
    return (sending.clear(), receiving.clear()) if features & CLEAR else (sending, receiving)


def _nonce(number: int) -> bytes:
    return bytes(4) + number.to_bytes(8, "big")


class Noise:
    """One side of a handshake: the initiator, if it knows the responder's static point, or the responder."""

    def __init__(
        self, own: KeyPair, responder: bytes | None = None, prologue: bytes = PROLOGUE, fresh: KeyPair | None = None
    ) -> None:
        self.own, self.fresh = own, fresh or KeyPair()
        self.peer, self.peer_fresh = responder or b"", b""
        self.hash = self._chain = b"Noise_IK_25519_AESGCM_SHA256".ljust(32, b"\0")
        self._cipher: Cipher | None = None
        self._mix_hash(prologue)
        self._mix_hash(responder or own.point)

    def write_1(self, payload: bytes) -> bytes:
        message = self._write_fresh()
        self._mix_key(self.fresh.agree(self.peer))
        message += self._seal(self.own.point)
        self._mix_key(self.own.agree(self.peer))
        return message + self._seal(payload)

    def read_1(self, message: bytes) -> bytes:
        self._read_fresh(message)
        self._mix_key(self.own.agree(self.peer_fresh))
        self.peer = self._open(message[POINT : 2 * POINT + TAG])
        self._mix_key(self.own.agree(self.peer))
        return self._open(message[2 * POINT + TAG :])

    def write_2(self, payload: bytes) -> bytes:
        message = self._write_fresh()
        self._mix_key(self.fresh.agree(self.peer_fresh))
        self._mix_key(self.fresh.agree(self.peer))
        return message + self._seal(payload)

    def read_2(self, message: bytes) -> bytes:
        self._read_fresh(message)
        self._mix_key(self.fresh.agree(self.peer_fresh))
        self._mix_key(self.own.agree(self.peer_fresh))
        return self._open(message[POINT:])

    def split(self) -> tuple[Cipher, Cipher]:
        """For what the initiator sends, and for what the responder sends."""
        first, second = _derive(self._chain, b"")
        return Cipher(first), Cipher(second)

    def _write_fresh(self) -> bytes:
        self._mix_hash(self.fresh.point)
        return self.fresh.point

    def _read_fresh(self, message: bytes) -> None:
        self.peer_fresh = message[:POINT]
        self._mix_hash(self.peer_fresh)

    def _mix_hash(self, data: bytes) -> None:
        self.hash = hashlib.sha256(self.hash + data).digest()

    def _mix_key(self, shared: bytes) -> None:
        self._chain, key = _derive(self._chain, shared)
        self._cipher = Cipher(key)

    def _seal(self, text: bytes) -> bytes:
        assert self._cipher
        sealed = self._cipher.seal(text, self.hash)
        self._mix_hash(sealed)
        return sealed

    def _open(self, sealed: bytes) -> bytes:
        assert self._cipher
        text = self._cipher.open(sealed, self.hash)
        self._mix_hash(sealed)
        return text


def _derive(chain: bytes, material: bytes) -> tuple[bytes, bytes]:
    key = hmac.digest(chain, material, "sha256")
    first = hmac.digest(key, b"\1", "sha256")
    return first, hmac.digest(key, first + b"\2", "sha256")


# The handshake on a socket


@dataclass(frozen=True)
class Limits:
    """What a peer takes at once: connections that carry requests, and what each frame names."""

    lanes: int = MAX_LANES
    get: int = GET_MAX
    put: int = PUT_MAX
    notices: int = NOTICE_MAX

    @classmethod
    def unpack(cls, packed: bytes) -> Limits:
        return cls(*LIMITS.unpack(packed))

    def pack(self) -> bytes:
        return LIMITS.pack(self.lanes, self.get, self.put, self.notices)

    @property
    def valid(self) -> bool:
        most = ((self.lanes, 255), (self.get, GET_MAX), (self.put, PUT_MAX), (self.notices, NOTICE_MAX))
        return all(1 <= limit <= bound for limit, bound in most)

    def agree(self, peer: Limits) -> Limits:
        """What both keep to."""
        return Limits(
            min(self.lanes, peer.lanes),
            min(self.get, peer.get),
            min(self.put, peer.put),
            min(self.notices, peer.notices),
        )


MOST = Limits()


@dataclass(frozen=True)
class Hello:
    """What message 1 carries."""

    session: int
    size: int
    channel: int
    resume: int = 0
    version: int = 0
    features: int = 0
    limits: Limits = MOST

    @classmethod
    def unpack(cls, packed: bytes) -> Hello:
        session, resume, version, size, features, channel, limits = HELLO.unpack(packed)
        return cls(session, size, channel, resume, version, features, Limits.unpack(limits))

    def pack(self) -> bytes:
        limits = self.limits.pack()
        return HELLO.pack(self.session, self.resume, self.version, self.size, self.features, self.channel, limits)


def exactly(sock: socket.socket, length: int) -> bytes:
    """So many bytes; EOFError when the peer has closed before."""
    data = bytearray()
    while len(data) < length:
        chunk = sock.recv(min(length - len(data), 1 << 20))
        if not chunk:
            raise EOFError
        data += chunk
    return bytes(data)


def message_1(own: KeyPair, lender: bytes, hello: Hello) -> tuple[Noise, bytes]:
    noise = Noise(own, lender)
    return noise, HEAD.pack(MAGIC, VERSION, MESSAGE_1, 0) + noise.write_1(hello.pack())


def message_3(sending: Cipher) -> bytes:
    head = HEAD.pack(MAGIC, VERSION, MESSAGE_3, 0)
    return head + sending.seal(b"", head)


def read_answer(sock: socket.socket, noise: Noise) -> tuple[int, Limits]:
    """The features and limits in message 2; Refused when it, or what comes in its place, says no."""
    magic, version, kind, code = HEAD.unpack(exactly(sock, HEAD.size))
    if magic != MAGIC:
        raise Malformed("no magic")
    if kind == REJECTION:
        raise Refused(code, sealed=False, versions=VERSIONS.unpack(exactly(sock, VERSIONS.size)))
    if (version, kind) != (VERSION, MESSAGE_2):
        raise Malformed(f"version {version}, type {kind}")
    features, code, packed = ANSWER.unpack(noise.read_2(exactly(sock, MESSAGE_2_BYTES)))
    if code != WELCOME:
        raise Refused(code, sealed=True)
    if not (limits := Limits.unpack(packed)).valid:
        raise Malformed(f"{limits}")
    return features, limits


def connect(address: tuple[str, int], own: KeyPair, lender: bytes, hello: Hello) -> Connection:
    """The borrower's half."""
    sock = dial(address)
    try:
        noise, message = message_1(own, lender, hello)
        sock.sendall(message)
        features, limits = read_answer(sock, noise)
        sending, receiving = noise.split()
        sock.sendall(message_3(sending))
    except BaseException:
        sock.close()
        raise
    return Connection(sock, *_as_agreed(features, sending, receiving), hello.limits.agree(limits))


def dial(address: tuple[str, int]) -> socket.socket:
    sock = socket.create_connection(address, SILENCE_SECONDS)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def reject(sock: socket.socket, code: int, oldest: int = VERSION, newest: int = VERSION) -> None:
    sock.sendall(HEAD.pack(MAGIC, newest, REJECTION, code) + VERSIONS.pack(oldest, newest))


def welcome(
    sock: socket.socket, own: KeyPair, code: Callable[[bytes], int], limits: Limits = MOST
) -> tuple[Connection, Hello]:
    """The lender's half; `code` says whether a borrower of that point is welcome."""
    sock.settimeout(SILENCE_SECONDS)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if exactly(sock, HEAD.size) != HEAD.pack(MAGIC, VERSION, MESSAGE_1, 0):
        reject(sock, REJECT_VERSION)
        raise Malformed("not message 1 of this version")
    noise = Noise(own)
    message = exactly(sock, MESSAGE_1_BYTES)
    try:
        hello = Hello.unpack(noise.read_1(message))
    except (Malformed, ValueError):
        reject(sock, REJECT_IDENTITY)
        raise Malformed("message 1 is for somebody else") from None
    verdict = code(noise.peer)
    if verdict == WELCOME and not hello.limits.valid:
        verdict = BAD_LIMITS
    features = hello.features & FEATURES
    answer = ANSWER.pack(features, verdict, limits.pack())
    sock.sendall(HEAD.pack(MAGIC, VERSION, MESSAGE_2, 0) + noise.write_2(answer))
    if verdict != WELCOME:
        raise Refused(verdict, sealed=True)
    receiving, sending = noise.split()
    head = exactly(sock, HEAD.size)
    if head != HEAD.pack(MAGIC, VERSION, MESSAGE_3, 0):
        raise Malformed("not message 3")
    receiving.open(exactly(sock, TAG), head)
    return Connection(sock, *_as_agreed(features, sending, receiving), limits.agree(hello.limits)), hello


# Frames


@dataclass(frozen=True)
class Frame:
    """One that came: `metadata` are its items, `pages` what follows them."""

    kind: int
    count: int = 0
    number: int = 0
    flags: int = 0
    metadata: bytes = b""
    pages: bytes = b""


# Bytes of a frame's metadata: fixed, and for each that it counts. DATA and PUT carry pages beside.
METADATA = {
    GET: (NUMBER.size, GET_ITEM.size),
    DATA: (0, DATA_ITEM.size),
    PUT: (0, PUT_ITEM.size),
    PUT_ACK: (NUMBER.size, 0),
    EVICTED: (0, PAGE_ID.size),
    FORGET: (0, FORGET_ITEM.size),
    PING: (0, 0),
    PONG: (0, 0),
    GRANT: (GRANTED.size, 0),
    RESIZE: (NUMBER.size, 0),
    EVICTED_BEFORE: (NUMBER.size, 0),
}


class Connection:
    """After the handshake: frames in both directions. Any thread may send; one receives.

    What is beside pages is sealed, the header authenticated with it. `limits` are what both ends keep to, `largest` is
    what the frames of each kind that came have counted at most.
    """

    def __init__(self, sock: socket.socket, sending: Cipher, receiving: Cipher, limits: Limits) -> None:
        self.sock, self.limits = sock, limits
        self.largest: dict[int, int] = {}
        self.lock = threading.Lock()  # of what is sent
        self._sending, self._receiving = sending, receiving

    def send(
        self, kind: int, count: int = 0, number: int = 0, metadata: bytes = b"", pages: bytes = b"", flags: int = 0
    ) -> None:
        self.send_raw(FRAME.pack(len(metadata) + TAG + len(pages), kind, flags, count, number), metadata, pages)

    def send_raw(self, head: bytes, metadata: bytes, pages: bytes = b"") -> None:
        """Metadata sealed with whatever header."""
        with self.lock:
            self.sock.sendall(head + self.seal(head, metadata) + pages)

    def seal(self, head: bytes, metadata: bytes) -> bytes:
        """The next thing to be sent, for who has the lock and sends it himself."""
        return self._sending.seal(metadata, head)

    def receive(self) -> Frame:
        """The next one; EOFError at the end, Malformed when it is none."""
        head = exactly(self.sock, FRAME.size)
        length, kind, flags, count, number = FRAME.unpack(head)
        if kind not in METADATA:
            raise Malformed(f"type {kind}")
        self.largest[kind] = max(count, self.largest.get(kind, 0))
        fixed, each = METADATA[kind]
        metadata = self._receiving.open(exactly(self.sock, fixed + count * each + TAG), head)
        return Frame(kind, count, number, flags, metadata, exactly(self.sock, length - len(metadata) - TAG))

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        self.sock.close()


def accept(listener: socket.socket, own: KeyPair, grant: int) -> tuple[Connection, Connection]:
    """The two connections of the next session, on which so much is granted; anybody is welcome.

    A borrower that has given one up between the two begins another.
    """
    get, hello = _accept(listener, own)
    while True:
        try:
            get.send(GRANT, metadata=GRANTED.pack(grant, 0))
            put, its = _accept(listener, own)
        except BaseException:
            get.close()
            raise
        if (its.channel, its.session) == (PUT_CHANNEL, hello.session):
            return get, put
        get.close()
        get, hello = put, its


def _accept(listener: socket.socket, own: KeyPair) -> tuple[Connection, Hello]:
    sock, _ = listener.accept()
    try:
        return welcome(sock, own, lambda _: WELCOME, Limits(lanes=1))
    except BaseException:
        sock.close()
        raise


# Peers that keep to the protocol


class Lane:
    """A connection on which pages are asked for."""

    def __init__(self, connection: Connection) -> None:
        self.get = connection
        self._ids = itertools.count(1)

    def load(self, file: int, index: int, version: int) -> bytes | None:
        """Get a page; None when the lender has not got it."""
        number = next(self._ids)
        self.get.send(GET, 1, number, NUMBER.pack(file) + GET_ITEM.pack(index, version))
        answer = self._answer(DATA, number)
        return answer.pages if DATA_ITEM.unpack(answer.metadata)[0] == version else None

    def ping(self) -> None:
        self.pings(1)

    def pings(self, count: int) -> None:
        """So many, and then their answers."""
        numbers = [next(self._ids) for _ in range(count)]
        for number in numbers:
            self.get.send(PING, 0, number)
        for number in numbers:
            self._answer(PONG, number)

    def close(self) -> None:
        self.get.close()

    def _answer(self, kind: int, number: int) -> Frame:
        while (frame := self.get.receive()).kind != kind or frame.number != number:
            pass
        return frame


class Borrower(Lane):
    """A session with a lender, both its connections; the first lane is its GET channel, `lane` adds others.

    `resume` is the number of a former session (`session`), `version` the newest that this borrower says it has given.
    """

    def __init__(
        self,
        address: tuple[str, int],
        own: KeyPair,
        lender: bytes,
        size: int,
        *,
        resume: int = 0,
        version: int = 0,
        features: int = 0,
        limits: Limits = MOST,
    ) -> None:
        self.offered = fresh = secrets.randbits(64) or 1
        self._hello = Hello(fresh, size, GET_CHANNEL, resume, version, features, limits)
        self._connect = functools.partial(connect, address, own, lender)
        super().__init__(self._connect(self._hello))
        try:
            first = self.get.receive()
            if first.kind != GRANT:
                raise Malformed(f"type {first.kind} comes first")
            self.granted, self.linger_ms = GRANTED.unpack(first.metadata)
            self.resumed = bool(first.flags & RESUMED)
            self.session = resume if self.resumed else fresh
            self.put = self._connect(replace(self._hello, channel=PUT_CHANNEL))
        except BaseException:
            self.get.close()
            raise

    def lane(self, offered: int | None = None) -> Lane:
        """One more lane, of the session with that number, or this one; whether it is one, its first answer says."""
        return Lane(self._connect(replace(self._hello, session=offered or self.offered, channel=LANE_CHANNEL)))

    def store(self, file: int, index: int, version: int, page: bytes, tag: bytes = bytes(TAG)) -> bool:
        """Put a page; whether the lender keeps it."""
        number = next(self._ids)
        self.put.send(PUT, 1, number, PUT_ITEM.pack(file, index, version, tag), page)
        return NUMBER.unpack(self._answer(PUT_ACK, number).metadata) == (1,)

    def close(self) -> None:
        super().close()
        self.put.close()


class _Late:
    """Sends on a connection, in order, each frame as late as it was said to be."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._frames: queue.SimpleQueue[tuple[float, Frame] | None] = queue.SimpleQueue()
        threading.Thread(target=self._send, daemon=True).start()

    def send(self, frame: Frame, delay: float = 0.0) -> None:
        self._frames.put((time.monotonic() + delay, frame))

    def close(self) -> None:
        self._frames.put(None)
        self.connection.close()

    def _send(self) -> None:
        with contextlib.suppress(OSError):
            while entry := self._frames.get():
                due, frame = entry
                time.sleep(max(0.0, due - time.monotonic()))
                self.connection.send(frame.kind, frame.count, frame.number, frame.metadata, frame.pages, frame.flags)


class Lender:
    """Lends to whoever comes, on this machine's loopback address; a session lingers as long as this lender lives.

    `answer` is what newcomers are told, and `limits`; on lanes beyond its `room` it hangs up. Everything that it sends
    on a session is `delay` seconds late; while it is `mute` it answers on the first lane only, and while it `withholds`
    it sends pages on that one only. If it `clings` a session lives on without a connection that has ended. `asked`
    counts requests by the lane that they came on: the session's first is 0.
    """

    def __init__(self, grant: int = 64 << 20, own: KeyPair | None = None, port: int = 0, limits: Limits = MOST) -> None:
        self.own = own or KeyPair()
        self.limits = limits
        self.largest: dict[int, int] = {}  # what frames of each kind counted at most
        self.delay = 0.0
        self.answer = WELCOME
        self.room = MAX_LANES
        self.mute = self.withholds = False
        self.clings = False
        self.asked: collections.Counter[int] = collections.Counter()
        self.grant = grant
        self.linger_ms = 60_000
        self.newest = 0  # version that was put
        self.pages: dict[tuple[int, int], tuple[int, bytes, bytes]] = {}
        self._sessions: set[int] = set()
        self._offered: dict[int, list[_Late]] = {}  # the lanes, by the number in the hello of the GET channel
        self._connections: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", port))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._listen, daemon=True).start()

    @property
    def identity(self) -> str:
        return self.own.identity

    def close(self) -> None:
        """Hang up, and answer nobody any more."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for sock in list(self._connections):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def evict_before(self, version: int) -> None:
        """Drop what is older, and say so in a frame."""
        self.pages = {page: kept for page, kept in self.pages.items() if kept[0] >= version}
        self.say(Frame(EVICTED_BEFORE, metadata=NUMBER.pack(version)))

    def say(self, frame: Frame) -> None:
        """Send that on the first lane of each session."""
        for lanes in self._offered.values():
            lanes[0].send(frame, self.delay)

    def cut(self, number: int) -> None:
        """End that lane of each session."""
        for lanes in self._offered.values():
            lanes[number].connection.close()

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self._listener.accept()
                self._connections.add(sock)
                threading.Thread(target=self._meet, args=(sock,), daemon=True).start()

    def _meet(self, sock: socket.socket) -> None:
        with contextlib.suppress(OSError, EOFError, Malformed, Refused):
            connection, hello = welcome(sock, self.own, lambda _: self.answer, self.limits)
            connection.largest = self.largest
            sock.settimeout(None)  # a borrower whose breaker is open puts nothing for long
            if hello.channel == GET_CHANNEL:
                resumed = self._resumes(hello)
                number = hello.resume if resumed else hello.session
                self._sessions.add(number)
                self._offered[hello.session] = lanes = [_Late(connection)]
                self._grant(lanes[0], hello.size, RESUMED if resumed else 0)
            else:
                lanes = self._offered[hello.session]
            late = lanes[0]
            if hello.channel == LANE_CHANNEL:
                if len(lanes) >= self.room:
                    raise EOFError
                lanes.append(late := _Late(connection))
            self._serve(connection, lanes, lanes.index(late))
        sock.close()
        self._connections.discard(sock)

    def _resumes(self, hello: Hello) -> bool:
        """May the former session go on? Only if its borrower has gone on from what is here, and not from before."""
        return hello.resume in self._sessions and hello.version >= self.newest

    def _grant(self, late: _Late, wanted: int, flags: int = 0) -> None:
        metadata = GRANTED.pack(min(self.grant, wanted), self.linger_ms)
        late.send(Frame(GRANT, metadata=metadata, flags=flags), self.delay)

    def _serve(self, connection: Connection, lanes: list[_Late], number: int) -> None:
        """Frames of one connection, until it ends; answers go out on a lane, which for PUT is the first."""
        late = lanes[number]
        try:
            while True:
                frame = connection.receive()
                self.asked[number] += frame.kind == GET
                if number and (self.mute or (self.withholds and frame.kind == GET)):
                    continue
                if frame.kind == GET:
                    late.send(self._look_up(frame), self.delay)
                elif frame.kind == PUT:
                    kept = NUMBER.pack(self._keep(frame))
                    late.send(Frame(PUT_ACK, frame.count, frame.number, metadata=kept), self.delay)
                elif frame.kind == PING:
                    late.send(Frame(PONG, number=frame.number), self.delay)
                elif frame.kind == RESIZE:
                    self._grant(late, NUMBER.unpack(frame.metadata)[0])
        finally:
            for each in [] if self.clings else lanes:
                each.close()
            connection.close()

    def _look_up(self, frame: Frame) -> Frame:
        (file,) = NUMBER.unpack_from(frame.metadata)
        items, pages = [], []
        for index, version in GET_ITEM.iter_unpack(frame.metadata[NUMBER.size :]):
            kept, tag, page = self.pages.get((file, index), (0, bytes(TAG), b""))
            hit = kept == version
            items.append(DATA_ITEM.pack(kept if hit else 0, tag if hit else bytes(TAG)))
            pages.append(page if hit else b"")
        return Frame(DATA, frame.count, frame.number, metadata=b"".join(items), pages=b"".join(pages))

    def _keep(self, frame: Frame) -> int:
        """Which pages of a batch it keeps, a bit for each."""
        for place, (file, index, version, tag) in enumerate(PUT_ITEM.iter_unpack(frame.metadata)):
            self.newest = max(self.newest, version)
            self.pages[file, index] = version, tag, frame.pages[place * PAGE : (place + 1) * PAGE]
        return (1 << frame.count) - 1
