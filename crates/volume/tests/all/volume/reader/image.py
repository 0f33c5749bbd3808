"""The bytes of a volume, its seeds and its superblocks."""

import struct

from xxh3 import M32, M64, fold, half, word, xxh3

BLOCK = 4096
LINE = 64


def mix(a, b):
    return fold(a ^ 0x9E3779B97F4A7C15, b ^ 0xD1B54A32D192ED03)


class Seeds:
    """The words that seeds are made of."""

    def __init__(self, volume_id, incarnation):
        self.volume = xxh3(0x574C59564F4C554D, volume_id)
        self.log = mix(self.volume ^ 0x4C4F475F4C414E45, incarnation)
        self.heads = self.volume ^ 0x484541445F4F465F

    def stream(self, ino, generation, stream):
        return mix(self.volume ^ ino, generation << 8 | stream)

    def at(self, place, part):
        return mix(self.volume ^ place, part)

    def lane(self, lane):
        return mix(self.log, lane)

    def in_place(self, byte):
        return mix(self.log, byte) ^ 2


class Damage(Exception):
    """A structure that cannot be believed."""


class Superblock:
    ENGINES = ["none", "fine_grained_wal", "hybrid_log", "undo", "shadow", "page_cache_wal", "shortcut_jfs", "op_log"]
    ENGINES += ["multi_queue"]
    BITMAPS = 1
    REPAIR = 2
    KNOWN = 1 | 2 | 4

    def __init__(self, raw, at):
        magic, check, is_first = raw[:8], word(raw, 8), raw[8:16] == b"WHOLLYVL"
        if is_first:
            magic, check = raw[8:16], word(raw, 0)
        if magic != b"WHOLLYVL" or check != xxh3(0x5355504552564F4C ^ at, magic + raw[16:512]):
            raise Damage(f"block {at} has no superblock")
        version, block_bytes, features = struct.unpack_from("<IIQ", raw, 16)
        if (version == 1) != is_first or version not in (1, 2, 4) or block_bytes != BLOCK or features & ~self.KNOWN:
            raise Damage(f"the superblock in block {at} is of another version")
        self.version, self.features = version, features
        self.volume_id = bytes(raw[48:64])
        self.blocks, self.generation, self.incarnation = struct.unpack_from("<3Q", raw, 64)
        engine, state, self.inode_root, _, self.inodes = struct.unpack_from("<II3Q", raw, 88)
        self.saved, self.saved_check, self.inode_depth = struct.unpack_from("<QQB", raw, 120)
        self.engine, self.is_clean = self.ENGINES[engine], state & 1 == 1
        self.label = bytes(raw[144:208]).rstrip(b"\0")
        self.log, self.half_blocks, self.lanes, self.repair, self.repair_check = struct.unpack_from("<QIIQQ", raw, 208)
        self.heads, self.heads_blocks, self.generation_floor, self.pairs = struct.unpack_from("<QQII", raw, 240)

    def set_inode_file(self, root, depth, inodes, generation_floor):
        self.inode_root, self.inode_depth, self.inodes = root, depth, inodes
        self.generation_floor = generation_floor


class Image:
    """The bytes of a volume, in memory, and what was verified."""

    def __init__(self, image):
        self.image = bytearray(image)
        self.counts, self.faults = {}, []
        self.superblock = self.newest()
        self.seeds = Seeds(self.superblock.volume_id, self.superblock.incarnation)

    def right(self, kind, at):
        """A check is right. `at` is a byte that it covers."""
        self.counts[kind] = [self.counts.get(kind, [0])[0] + 1, at]

    def fault(self, text):
        self.faults.append(text)

    def verify(self, kind, at, one, other, what):
        if one != other:
            self.fault(f"{what}: a wrong check")
            return False
        self.right(kind, at)
        return True

    def get(self, at, count):
        if at + count > len(self.image):
            raise Damage(f"byte {at} is beyond the end")
        return self.image[at : at + count]

    def block(self, block):
        return self.get(block * BLOCK, BLOCK)

    def put(self, at, data):
        self.get(at, len(data))
        self.image[at : at + len(data)] = data

    def newest(self):
        """The current superblock: of the volume that most copies are of, the one with the highest generation."""
        ends = {len(self.image) // BLOCK}
        found = []
        for at in [0, 1]:
            try:
                found.append((at, Superblock(self.block(at), at)))
                ends.add(found[-1][1].blocks)
            except Damage:
                pass
        for end in ends:
            try:
                copy = Superblock(self.block(end - 1), end - 1)
                if copy.blocks == end:
                    found.append((end - 1, copy))
            except Damage:
                pass
        ids = [copy.volume_id for _, copy in found]
        most = [volume_id for volume_id in set(ids) if ids.count(volume_id) == max(map(ids.count, ids))]
        if len(most) != 1:
            raise Damage("there is no superblock")
        found = [(at, copy) for at, copy in found if copy.volume_id == most[0]]
        # It is looked for twice, and counted once.
        self.counts["superblock"] = [len(found), found[0][0] * BLOCK + 72]
        return max((copy for _, copy in found), key=lambda copy: copy.generation)
