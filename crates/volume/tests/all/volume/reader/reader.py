#!/usr/bin/env python3
"""Reads Wholly's volumes, as docs/volume-format.md describes them: an example of a reader, and its test.

    reader.py VOLUME...

Lists what each volume has, and verifies all its checks. It needs no other package and writes nothing: the volume is in
memory, and recovered there. Lines of its output:

    volume PATH
    check KIND: COUNT, AT                   so many checks of a kind are right; one of them covers the byte AT
    entry INODE MODE UID:GID DEVICE SIZE CONTENT XATTRS PATH
                                            a name, with the CRC-32 of the content, or of a link's target, and of all
                                            attributes
    fault TEXT                              something is wrong

The exit code is 1 if there are faults.

    xxh3.py      the hash of all checks
    image.py     the bytes of a volume, its seeds and its superblocks
    logs.py      what is applied before a volume is read: the logs of all engines, unfinished repairs
    reader.py    maps, inodes, directories, extended attributes, content, saved allocators
"""

import struct
import sys
import zlib

sys.dont_write_bytecode = True

from image import BLOCK, LINE, Damage, mix
from logs import Recovered, lines_of
from xxh3 import M32, half, word, xxh3


class Inode:
    def __init__(self, ino, raw):
        self.ino = ino
        self.mode, self.uid, self.gid, self.links, self.generation, _, self.size = struct.unpack_from("<6IQ", raw)
        self.root, self.blocks, self.depth = struct.unpack_from("<QQB", raw, 32)
        self.xattr_root, self.xattr_blocks, self.xattr_bytes, self.xattr_sum = struct.unpack_from("<QQII", raw, 128)
        self.parent, self.device, self.xattr_depth = word(raw, 128 + 24), word(raw, 128 + 32), raw[128 + 44]
        self.short_target, self.target_sum = bytes(raw[192:248]), half(raw, 248)
        self.kind = self.mode >> 12


DIRECTORY, REGULAR, SYMLINK = 4, 8, 10


class Volume(Recovered):
    """A volume. `list` reads all of it."""

    def map(self, seed, root, depth, what, at):
        """The blocks of a map: (number, block or None for zeros). `at` is the byte with the root."""
        found, work = {}, [(depth, 0, root, at)]
        while work:
            level, index, pointer, at = work.pop()
            if pointer == 0:
                continue
            low = pointer & (1 << 40) - 1
            check = max(1, mix(mix(seed, index << 3 | level), low) >> 40)
            if not self.verify("pointer", at, pointer >> 40, check, f"{what}, level {level}, index {index}"):
                continue
            block, is_reserved = low & (1 << 39) - 1, low >> 39
            self.used.add(block)
            if level == 0:
                found[index] = None if is_reserved else block
                continue
            node = struct.unpack("<512Q", self.block(block))
            work += [(level - 1, 512 * index + i, node[i], block * BLOCK + 8 * i) for i in range(512) if node[i]]
        return found

    def list(self):
        """All names: path, inode, content and attributes."""
        superblock = self.superblock
        self.inodes, self.names, self.used = {}, {}, set()
        seed = self.seeds.stream(2, 0, 0)
        of_inodes = self.map(seed, superblock.inode_root, superblock.inode_depth, "inode file", 96)
        for index, block in sorted(of_inodes.items()):
            for slot in range(16):
                self.read_inode(16 * index + slot, block * BLOCK + 256 * slot)
        # Before content is read: a block that a map has is not pending.
        for inode in self.inodes.values():
            seed = self.seeds.stream(inode.ino, inode.generation, 0)
            inode.content = self.map(seed, inode.root, inode.depth, f"inode {inode.ino}", inode.at + 32)
            seed = self.seeds.stream(inode.ino, inode.generation, 1)
            of = f"attributes of inode {inode.ino}"
            inode.of_xattrs = self.map(seed, inode.xattr_root, inode.xattr_depth, of, inode.at + 128)
        for inode in self.inodes.values():
            inode.xattrs = self.read_xattrs(inode)
            if inode.kind == DIRECTORY:
                self.names[inode.ino] = self.read_directory(inode)
        for inode in self.inodes.values():
            inode.bytes = self.read_content(inode)
        if superblock.is_clean and superblock.saved:
            self.check_saved(sorted(of_inodes))
        if superblock.features & superblock.BITMAPS:
            self.check_bitmaps(of_inodes)
        todo, listed = [(b"", 1)], []
        while todo:
            path, ino = todo.pop()
            inode = self.inodes.get(ino)
            if inode is None:
                self.fault(f"{path!r} names inode {ino}, which is not in use")
                continue
            listed.append((path or b"/", inode))
            if inode.kind == DIRECTORY:
                todo += [(path + b"/" + name, ino) for name, ino in self.names[ino]]
        return sorted(listed, key=lambda it: it[0])

    def read_inode(self, ino, at):
        raw = self.get(at, 256)
        for line in range(4):
            part = raw[LINE * line : LINE * (line + 1)]
            if any(part):
                check = xxh3(self.seeds.at(ino, line), part[:60]) & M32
                what = f"line {line} of inode {ino}"
                if not self.verify(f"line {line} of an inode", at + LINE * line, half(part, 60), check, what):
                    return
        inode = Inode(ino, raw)
        if inode.mode:
            inode.at = at
            self.inodes[ino] = inode

    def read_xattrs(self, inode):
        size = inode.xattr_bytes
        if size == 0:
            return {}
        blocks = [inode.of_xattrs.get(i) for i in range((size + BLOCK - 1) // BLOCK)]
        if None in blocks:
            self.fault(f"attributes of inode {inode.ino}: a block is not there")
            return {}
        content = b"".join(map(self.block, blocks))[:size]
        check = xxh3(self.seeds.at(inode.ino, inode.generation << 8 | 6), content) & M32
        what = f"attributes of inode {inode.ino}"
        if not self.verify("extended attributes", blocks[0] * BLOCK, inode.xattr_sum, check, what):
            return {}
        xattrs, at = {}, 0
        while at < size:
            name_len, value_len = content[at], half(content, at + 4)
            name = bytes(content[at + 8 : at + 8 + name_len])
            xattrs[name] = bytes(content[at + 8 + name_len : at + 8 + name_len + value_len])
            at += 8 + name_len + value_len
        return xattrs

    def read_directory(self, inode):
        seed, names = self.seeds.stream(inode.ino, inode.generation, 0), []
        covered = sum(1 << 35 - (number.bit_length() - 1) for number in inode.content)
        if inode.content and covered != 1 << 35:
            self.fault(f"directory {inode.ino}: its leaves do not cover each hash once")
        for number, block in inode.content.items():
            leaf, depth, slot = self.block(block), number.bit_length() - 1, 0
            what = f"directory {inode.ino}, leaf {number}"
            while slot < 64:
                live, key, check, name_check = struct.unpack_from("<QQII", leaf, 64 * slot)
                at, size = block * BLOCK + 64 * slot, live >> 52
                slot += 1
                if live == 0:
                    continue
                if not self.verify("directory entry", at, check, mix(mix(seed, live), key) >> 32, what):
                    continue
                slots = (max(0, size - 40) + 55) // 56
                parts = [leaf[64 * (slot - 1) + 24 : 64 * slot]]
                parts += [leaf[64 * (slot + i) + 8 : 64 * (slot + i + 1)] for i in range(slots)]
                name = bytes(b"".join(parts)[:size])
                slot += slots
                if not self.verify("name", at + 24, name_check, xxh3(seed ^ key, name) & M32, what):
                    continue
                hashed = xxh3(self.seeds.volume, name) >> 9
                if self.verify("hash of a name", at + 8, key >> 7, hashed, what) and depth != 0:
                    if hashed >> 55 - depth != number ^ 1 << depth:
                        self.fault(f"{what}: {name!r} belongs to another leaf")
                ino = live & (1 << 48) - 1
                if ino in self.inodes and self.inodes[ino].kind != live >> 48 & 15:
                    self.fault(f"{what}: {name!r} has another type than inode {ino}")
                names.append((name, ino))
        return names

    def read_content(self, inode):
        if inode.kind == SYMLINK and inode.size <= 56:
            return inode.short_target[: inode.size]
        if inode.kind == SYMLINK:
            block = inode.content[0]
            target = bytes(self.get(block * BLOCK, inode.size))
            check = xxh3(self.seeds.at(inode.ino, inode.generation << 8 | 7), target) & M32
            self.verify("long target", block * BLOCK, inode.target_sum, check, f"target of inode {inode.ino}")
            return target
        if inode.kind != REGULAR:
            return b""
        content = bytearray(inode.size)
        for index, block in inode.content.items():
            if block is not None and index * BLOCK < inode.size:
                part = self.content_of(block)[: inode.size - index * BLOCK]
                content[index * BLOCK : index * BLOCK + len(part)] = part
        return content

    def content_of(self, block):
        """The content of a block of a file: lines of it may be in pending blocks."""
        content = self.block(block)
        for head in sorted(self.pending.get(block, []), key=lambda head: head.order):
            if head.block in self.used:
                continue
            what = f"pending block {head.block}"
            at = head.block * BLOCK + LINE * lines_of(head.lines)[0]
            if self.verify("hybrid_log: lines", at, head.sum, self.sum_of_lines(head) & M32, what):
                lines = self.block(head.block)
                for i in lines_of(head.lines):
                    content[LINE * i : LINE * (i + 1)] = lines[LINE * i : LINE * (i + 1)]
        return content

    # Bitmaps

    UNITS = 8 * (BLOCK - LINE)

    def place_of(self, kind, index):
        """The block of a bitmap block: kind 0 is of blocks, 1 of inodes, 2 of orphans."""
        pairs = self.superblock.pairs
        if kind == 0:
            section, pair = index, 0
        elif index < pairs:
            section, pair = 0, index
        else:
            section, pair = 1 + (index - pairs) // 4, (index - pairs) % 4
        return max(2, section * self.UNITS) + 2 * pair + kind

    def check_bitmaps(self, of_inodes):
        superblock = self.superblock
        sections = (superblock.blocks + self.UNITS - 1) // self.UNITS
        of_pairs = (superblock.inodes + self.UNITS - 1) // self.UNITS
        runs = [(superblock.log, 2 * superblock.half_blocks * superblock.lanes)]
        runs += [(self.place_of(0, i), 1 + 2 * (4 if i else superblock.pairs)) for i in range(sections)]
        blocks = self.used | {0, 1} | {block for start, count in runs for block in range(start, start + count)}
        orphans = {ino for ino, inode in self.inodes.items() if inode.links == 0}
        none = {ino for ino in range(superblock.inodes) if ino // 16 not in of_inodes}
        wanted = [
            (sections, superblock.blocks - 1, blocks),
            (of_pairs, superblock.inodes, set(self.inodes) | set(range(16))),
            (of_pairs, superblock.inodes, orphans | none),
        ]
        for kind, (count, units, used) in enumerate(wanted):
            for index in range(count):
                block = self.place_of(kind, index)
                raw, what = self.block(block), f"bitmap block {index} of kind {kind}"
                check = xxh3(self.seeds.at(index, 8 + kind << 32), raw[8:])
                if not self.verify("bitmap block", block * BLOCK + LINE, word(raw, 0), check, what):
                    continue
                bits = int.from_bytes(raw[LINE:], "little")
                if half(raw, 8) != self.UNITS - bits.bit_count() or (half(raw, 12), word(raw, 16)) != (kind, index):
                    self.fault(f"{what}: it contradicts itself")
                first = index * self.UNITS
                meant = min(units - first, self.UNITS)
                if bits & (1 << meant) - 1 != sum(1 << unit - first for unit in used if first <= unit < first + meant):
                    self.fault(f"{what}: it differs from what is in use")

    # Saved allocators

    def check_saved(self, of_inodes):
        at, superblock = self.superblock.saved, self.superblock
        table, what = self.block(at), "saved allocators"
        check = xxh3(self.seeds.at(at, 1 << 32), table)
        if not self.verify("table of saved allocators", at * BLOCK, superblock.saved_check, check, what):
            return
        size, check, count = struct.unpack_from("<3Q", table)
        runs = [struct.unpack_from("<QQ", table, 32 + 16 * i) for i in range(count)]
        content = b"".join(self.get(start * BLOCK, blocks * BLOCK) for start, blocks in runs)[:size]
        if not self.verify(what, runs[0][0] * BLOCK, check, xxh3(self.seeds.at(0, 2 << 32), content), what):
            return
        # They agree with what the maps say.
        units = [superblock.blocks, superblock.inodes] + [superblock.inodes // 16] * (superblock.generation_floor > 0)
        engine = [(superblock.log, 2 * superblock.half_blocks * superblock.lanes)]
        engine += [(superblock.heads, superblock.heads_blocks)]
        blocks = self.used | {0, 1, superblock.blocks - 1}
        blocks |= {block for start, count in engine if start for block in range(start, start + count)}
        holes = {ino for ino in range(superblock.inodes) if ino // 16 not in of_inodes}
        for used, units in zip([blocks, set(self.inodes) | set(range(16)) | holes, set(of_inodes)], units):
            whole = (units + 8 * BLOCK - 1) // (8 * BLOCK) * BLOCK
            bits = int.from_bytes(content[:whole], "little")
            content = content[whole:]
            if bits != sum(1 << unit for unit in used | set(range(units, 8 * whole))):
                self.fault("the saved allocators differ from what is in use")
        if content:
            self.fault("the saved allocators are too long")


def escaped(name):
    return "".join(chr(byte) if 0x20 < byte < 0x7F and byte != 0x5C else f"\\x{byte:02x}" for byte in name)


def show(path):
    """Whether a volume is sound."""
    print(f"volume {path}")
    counts, faults = {}, []
    try:
        with open(path, "rb") as file:
            volume = Volume(file.read())
        counts, faults = volume.counts, volume.faults
        listed = volume.list()
    except Damage as damage:
        listed, faults = [], faults + [str(damage)]
    for kind, (count, at) in counts.items():
        print(f"check {kind}: {count}, {at}")
    for path, inode in listed:
        xattrs = b"".join(name + b"\0" + value + b"\0" for name, value in sorted(inode.xattrs.items()))
        crcs = f"{zlib.crc32(inode.bytes):08x} {zlib.crc32(xattrs):08x}"
        owner = f"{inode.uid}:{inode.gid} {inode.device}"
        print(f"entry {inode.ino} {inode.mode:o} {owner} {inode.size} {crcs} {escaped(path)}")
    for fault in faults:
        print(f"fault {fault}")
    return not faults


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(0 if all([show(path) for path in sys.argv[1:]]) else 1)
