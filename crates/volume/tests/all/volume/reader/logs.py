"""What has to be applied to a volume before it is read: an unfinished repair, or what a crash has left in the log."""

import struct

from image import BLOCK, LINE, Damage, Image, mix
from xxh3 import M32, M64, half, word, xxh3

GOLDEN = 0x9E3779B97F4A7C15


class LogEntry:
    NAMES = {1: "undo", 2: "data", 3: "zero", 4: "link", 5: "commit", 6: "chain", 7: "old", 8: "old zeros", 16: "root"}

    def __init__(self, raw, stands):
        self.stands, self.check = stands, word(raw, 0)
        self.sequence, kind, self.old_len, _, self.number, self.at = struct.unpack_from("<QBBHIQ", raw, 8)
        self.kind = self.NAMES.get(kind)
        self.old = bytes(raw[32 : 32 + self.old_len])
        self.words = struct.unpack_from("<4Q", raw, 32)


class Head:
    def __init__(self, raw, block, signed):
        self.block, self.signed = block, signed
        self.sequence, self.order, ino_lane, _, self.home, self.lines, _, self.sum = struct.unpack_from("<6QII", raw, 8)
        self.lane = ino_lane >> 48


def split_mix(state, count):
    """The first words of SplitMix64."""
    for _ in range(count):
        state = (state + GOLDEN) & M64
        word = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & M64
        word = (word ^ word >> 27) * 0x94D049BB133111EB & M64
        yield word ^ word >> 31


def sum_of_words(keys, lines, block):
    """The checksum of lines, given the words of each."""
    keys, sums = list(keys), [0] * 8
    for i, words in lines.items():
        for w, value in enumerate(words):
            mixed = value ^ keys[i + w]
            sums[w] += (mixed & M32) * (mixed >> 32)
            sums[w ^ 1] += value
    total = block * GOLDEN
    for p in range(4):
        product = (sums[2 * p] & M64 ^ keys[2 * p]) * (sums[2 * p + 1] & M64 ^ keys[2 * p + 1])
        total += (product ^ product >> 64) & M64
    total &= M64
    total = (total ^ total >> 37) * 0x165667919E3779F9 & M64
    return total ^ total >> 32


def lines_of(bits):
    return [i for i in range(64) if bits >> i & 1]


class Recovered(Image):
    """A volume as the next mount would find it."""

    def __init__(self, image):
        super().__init__(image)
        # By home: the heads that count.
        self.pending, self.root = {}, None
        if self.superblock.features & self.superblock.REPAIR:
            self.finish_repair()
        elif not self.superblock.is_clean:
            self.recover()
        # The log may have had other bytes of it.
        self.superblock = self.newest()
        if self.root:
            _, depth, inodes, floor = self.root.words
            self.superblock.set_inode_file(self.root.at, depth, inodes, floor)

    def finish_repair(self):
        at, check, moves = self.superblock.repair, self.superblock.repair_check, []
        while at:
            table = self.block(at)
            found = xxh3(self.seeds.at(at, 4 << 32), table)
            if not self.verify("table of a repair", at * BLOCK, check, found, f"the table in block {at}"):
                return
            for i in range(word(table, 16)):
                home, copy, check = struct.unpack_from("<3Q", table, 32 + 24 * i)
                content = self.block(copy)
                found = xxh3(self.seeds.at(copy, 3 << 32), content)
                if not self.verify("copy of a repair", copy * BLOCK, check, found, f"the copy of block {home}"):
                    return
                moves.append((home, content))
            at, check = word(table, 0), word(table, 8)
        for home, content in moves:
            self.put(home * BLOCK, content)

    def recover(self):
        engine, lanes = self.superblock.engine, range(self.superblock.lanes)
        if engine in ("fine_grained_wal", "shortcut_jfs"):
            for lane in lanes:
                self.recover_lane(lane)
        elif engine == "undo":
            for lane in lanes:
                last = self.last_commit(lane)
                self.put_back(self.entries_of(lane, last.sequence + 1 if last else 1))
        elif engine == "hybrid_log":
            self.recover_pending()
        elif engine == "shadow":
            self.recover_root()
        elif engine in ["page_cache_wal", "op_log"]:
            self.recover_ring()
        elif engine == "multi_queue":
            self.recover_queues()

    def counted(self, kind, at):
        self.right(f"{self.superblock.engine}: {kind}", at)

    def half_of(self, lane, sequence):
        """The byte at which the half of a lane begins that has a group."""
        return (self.superblock.log + (2 * lane + sequence % 2) * self.superblock.half_blocks) * BLOCK

    def entry(self, seed, at):
        """The entry at a byte, if it is valid."""
        raw = self.get(at, LINE)
        if word(raw, 0) != max(1, xxh3(mix(seed, at), raw[8:])):
            return None
        return LogEntry(raw, at)

    def entries(self, seed, at, sequence):
        """The entries of a group from a byte on."""
        number = 0
        while at + LINE <= len(self.image):
            entry = self.entry(seed, at)
            if entry is None or (entry.sequence, entry.number) != (sequence, number):
                return
            self.counted(entry.kind, at)
            number, at = number + 1, at + LINE
            if entry.kind in ("data", "old"):
                size, check = entry.words[:2]
                entry.payload = self.get(at, size)
                entry.is_whole = xxh3(mix(seed, entry.stands) ^ 1, entry.payload) == check
                if entry.is_whole:
                    self.counted(f"payload of {entry.kind}", at)
                at += (size + LINE - 1) // LINE * LINE
            yield entry
            if entry.kind == "link":
                at = entry.at * BLOCK

    def entries_of(self, lane, sequence):
        return self.entries(self.seeds.lane(lane), self.half_of(lane, sequence) + 2 * LINE, sequence)

    def last_commit(self, lane):
        """The commit entry with the highest sequence of a lane."""
        last = None
        for parity in (0, 1):
            at = self.half_of(lane, parity)
            entry = self.entry(self.seeds.lane(lane), at)
            if entry and entry.kind == "commit" and entry.sequence % 2 == parity:
                self.counted("commit", at)
                if last is None or entry.sequence > last.sequence:
                    last = entry
        return last

    def put_back(self, entries):
        """Undoes a group that was not committed, the last change first."""
        old = []
        for entry in entries:
            if entry.kind == "undo":
                old.append((entry.at, entry.old))
            elif entry.kind == "old":
                if not entry.is_whole:
                    break
                old.append((entry.at, entry.payload))
            elif entry.kind == "old zeros":
                old.append((entry.at, bytes(entry.words[0])))
        for at, content in reversed(old):
            self.put(at, content)

    def is_settled(self, commit):
        settled = word(self.get(commit.stands + LINE, 8), 0) == commit.check
        if settled:
            self.counted("settled word", commit.stands + LINE)
        return settled

    def recover_lane(self, lane):
        last = self.last_commit(lane)
        if last and last.words[2] == 1 and not self.is_settled(last):
            self.make_again(lane, last)
        self.put_back(self.entries_of(lane, last.sequence + 1 if last else 1))

    def make_again(self, lane, commit):
        """Stores what a committed group had not stored everywhere: first what its lane has, then its chain."""

        def take(entries, count, check):
            taken = []
            for entry in entries:
                if len(taken) == count:
                    break
                taken.append(entry)
            if (len(taken), sum(entry.check for entry in taken) & M64) != (count, check):
                raise Damage(f"lane {lane}: a committed group is damaged")
            return taken

        check, count = commit.words[:2]
        entries = take(self.entries_of(lane, commit.sequence), count, check)
        self.counted("sum of a group", entries[0].stands)
        for chain in [entry for entry in entries if entry.kind == "chain"]:
            check, count, group, _ = chain.words
            entries += take(self.entries(self.seeds.lane(M32), chain.at * BLOCK, group), count, check)
            self.counted("sum of a chain", chain.at * BLOCK)
        for entry in entries:
            if entry.kind == "data":
                if not entry.is_whole:
                    raise Damage(f"lane {lane}: a committed group is damaged")
                self.put(entry.at, entry.payload)
            elif entry.kind == "zero":
                self.put(entry.at, bytes(entry.words[0]))

    def recover_root(self):
        """Finds the map of the inode file that counts."""
        roots = []
        for sequence, copy in [(0, 0), (0, 1), (1, 0), (1, 1)]:
            at = self.half_of(0, sequence) + copy * BLOCK
            entry = self.entry(self.seeds.lane(0), at)
            if entry and entry.kind == "root" and (entry.sequence % 2, entry.number) == (sequence, copy):
                self.counted("root", at)
                roots.append(entry)
        if roots:
            self.root = max(roots, key=lambda entry: entry.sequence)

    # The ring of page_cache_wal

    def recover_ring(self):
        """Stores the last image of each block that the records have, unless a later one says that it is void."""
        first, blocks = self.superblock.log + 2, 2 * self.superblock.half_blocks * self.superblock.lanes - 2
        sequence, at = 1, 0
        for header in (first - 2, first - 1):
            raw = self.get(header * BLOCK, LINE)
            if word(raw, 0) == max(1, xxh3(self.seeds.in_place(header * BLOCK), raw[8:])):
                self.counted("header of the ring", header * BLOCK)
                if word(raw, 8) > sequence:
                    sequence, at = word(raw, 8), word(raw, 16)

        def record(at):
            """The entries of the record at a block of the ring, its sequence and its blocks."""
            if at >= blocks:
                return None
            byte = (first + at) * BLOCK
            sequence, count, size = struct.unpack_from("<QII", self.get(byte, LINE), 8)
            head_blocks = (64 + 32 * count + BLOCK - 1) // BLOCK
            if sequence == 0 or at + head_blocks > blocks or not head_blocks <= size <= blocks - at:
                return None
            head = self.get(byte, head_blocks * BLOCK)
            if word(head, 0) != max(1, xxh3(self.seeds.in_place(byte), head[8:])):
                return None
            return sequence, size, [struct.unpack_from("<4Q", head, 64 + 32 * i) for i in range(count)]

        images = {}
        while True:
            found = next((it for it in ((at, record(at)), (0, record(0))) if it[1] and it[1][0] == sequence), None)
            if found is None:
                break
            at, (_, size, entries) = found
            self.counted("head of a record", (first + at) * BLOCK)
            own = range(first + at, first + at + size)
            whole = True
            for home, image, check, count in entries:
                if image == 0:
                    continue
                if xxh3(self.seeds.in_place(home * BLOCK), self.block(image)) == check:
                    self.counted("image in a record" if image in own else "image in a free block", image * BLOCK)
                elif image in own:
                    whole = False
                else:
                    raise Damage(f"record {sequence}: the image of block {home} is damaged")
            if not whole:
                break
            for home, image, _, count in entries:
                if image == 0:
                    self.counted("void blocks", (first + at) * BLOCK)
                    images = {block: copy for block, copy in images.items() if not home <= block < home + count}
            images.update((home, image) for home, image, _, _ in entries if image)
            sequence, at = sequence + 1, at + size
        if any(found and found[0] > sequence for found in map(record, range(blocks))):
            raise Damage(f"record {sequence} is damaged")
        content = [(home, self.block(image)) for home, image in images.items()]
        for home, image in content:
            self.put(home * BLOCK, image)

    # The journal of each queue of multi_queue

    def header_of_queues(self, start):
        """The generation, the fields and the marks of the newest header of the journal."""
        seed, headers = xxh3(0, self.superblock.volume_id), []
        for at in (start, start + 1):
            raw = self.block(at)
            if raw[8:16] == b"WhollyMQ" and word(raw, 0) == xxh3(seed ^ at * GOLDEN & M64, raw[8:]):
                self.counted("header of the journal", at * BLOCK)
                _, queues, state, has_sums, generation, incarnation, _ = struct.unpack_from("<IHBBQQQ", raw, 16)
                marks = [struct.unpack_from("<2Q", raw, 64 + 16 * queue) for queue in range(queues)]
                headers.append((generation, state, has_sums, incarnation, marks))
        if not headers:
            raise Damage("neither header of the journal is whole")
        return max(headers)

    def recover_queues(self):
        """Stores the last image of each block that the transactions which count have."""
        start, blocks = self.superblock.log, 2 * self.superblock.half_blocks * self.superblock.lanes
        _, state, has_sums, incarnation, marks = self.header_of_queues(start)
        if state == 2 or incarnation != self.superblock.incarnation:
            return
        seed = xxh3(incarnation, self.superblock.volume_id)
        sum_at = lambda at, data: xxh3(seed ^ (at * GOLDEN & M64), data)
        found, proven = {}, [mark[1] for mark in marks]
        for at in range(start + 2, start + blocks):
            raw = self.block(at)
            if raw[8:16] != b"WhollyJH" or word(raw, 0) != sum_at(at, raw[8:]):
                continue
            self.counted("description", at * BLOCK)
            tx, place, queue, queues, part, parts, after, entries = struct.unpack_from("<2Q6H", raw, 16)
            words = struct.unpack_from(f"<{queues + after + 3 * entries}Q", raw, 48)
            proven = [max(pair) for pair in zip(proven, words[:queues])]
            depends = [(it >> 48, it & (1 << 48) - 1) for it in words[queues : queues + after]]
            triples = words[queues + after :]
            entries = [triples[i : i + 3] for i in range(0, len(triples), 3)]
            if place >= marks[queue][0]:
                found.setdefault((queue, place), []).append((part, parts, tx, depends, entries))

        def counts(queue, place):
            parts = sorted(found.get((queue, place), []), key=lambda part: part[0])
            if not parts or [part[0] for part in parts] != list(range(parts[0][1])):
                return False
            for word_0, image, check in [entry for part in parts for entry in part[4]]:
                kind, home = word_0 >> 56, word_0 & (1 << 56) - 1
                if kind == 2 or kind == 1 and place <= proven[queue]:
                    continue
                at = image if kind == 0 else home
                if sum_at(~home & M64, self.block(at)) != check:
                    return False
                self.counted("image in the journal" if kind == 0 else "direct block", at * BLOCK)
            return True

        last = []
        for queue, (first, _) in enumerate(marks):
            place = first
            while state == 0 and counts(queue, place) or state == 1 and place <= marks[queue][1]:
                place += 1
            if place <= proven[queue]:
                raise Damage(f"transaction {place} of queue {queue} is damaged")
            last.append(place - 1)
        before = None
        while before != last:
            before = list(last)
            for queue, (first, _) in enumerate(marks):
                lacks = lambda place: any(last[on] < upto for on, upto in found[queue, place][0][3])
                last[queue] = next((place - 1 for place in range(first, last[queue] + 1) if lacks(place)), last[queue])
        images = {}
        all_parts = [part for (queue, place), parts in found.items() if place <= last[queue] for part in parts]
        for _, _, _, _, entries in sorted(all_parts, key=lambda part: (part[2], part[0])):
            for word_0, image, _ in entries:
                kind, home = word_0 >> 56, word_0 & (1 << 56) - 1
                if kind == 0:
                    images[home] = image
                else:
                    count = image if kind == 2 else 1
                    images = {block: copy for block, copy in images.items() if not home <= block < home + count}
        for home, content in [(home, self.block(image)) for home, image in images.items()]:
            self.put(home * BLOCK, content)

    # The table of heads of hybrid_log

    def heads(self):
        """All heads that are valid, whatever their groups have become."""
        incarnation, start = self.superblock.incarnation, self.superblock.heads * BLOCK
        for block in range(self.superblock.heads_blocks * 64):
            raw = self.get(start + LINE * block, LINE)
            if word(raw, 0) == 0:
                continue
            body = xxh3(mix(self.seeds.heads, block), raw[8:])
            for signed in ("here", "kept", "next"):
                if word(raw, 0) == max(1, mix(body, 2 * incarnation + {"here": 0, "kept": 1, "next": 3}[signed])):
                    head = Head(raw, block, signed)
                    head.check = max(1, mix(body, 2 * incarnation))
                    self.counted(f"head, {signed}", start + LINE * block)
                    yield head

    def sum_of_lines(self, head):
        content, seed = self.block(head.block), self.seeds.heads ^ 1
        if self.superblock.version > 2:
            words = {i: struct.unpack_from("<8Q", content, LINE * i) for i in lines_of(head.lines)}
            return sum_of_words(split_mix(seed, 71), words, head.block)
        of_line = lambda i: xxh3(mix(seed, 64 * head.block + i), content[LINE * i : LINE * (i + 1)])
        return sum(map(of_line, lines_of(head.lines))) & M64

    def recover_pending(self):
        """Undoes what is not committed, and finds the heads that count. Content is put together when it is read."""
        lasts = [self.last_commit(lane) for lane in range(self.superblock.lanes)]
        heads, undo = list(self.heads()), []
        counting = [head for head in heads if head.signed != "here"]
        for lane, last in enumerate(lasts):
            committed = 0
            if last:
                of_lane = [head for head in heads if head.lane == lane]
                own = [head for head in of_lane if (head.sequence, head.order) == (last.sequence, last.at)]
                is_committed = self.is_committed(lane, last, own)
                committed = last.sequence if is_committed else last.sequence - 1
                counting = [head for head in counting if head not in own or is_committed]
                earlier = [head for head in of_lane if head.sequence < last.sequence]
                counting += [head for head in earlier + own * is_committed if head.signed == "here"]
            undo.append(list(self.entries_of(lane, committed + 1)))
        for entries in undo:
            self.put_back(entries)
        for head in counting:
            self.pending.setdefault(head.home, []).append(head)

    def is_committed(self, lane, commit, heads):
        """Whether all is there of the last group of a lane, whose heads these are."""
        if commit.words[2] == 0 or self.is_settled(commit):
            return True
        if next(self.entries_of(lane, commit.sequence + 1), None):
            return True
        entries = list(self.entries_of(lane, commit.sequence))
        parts = [entry.check for entry in entries]
        for entry in entries:
            if entry.kind == "undo":
                parts.append(xxh3(self.seeds.in_place(entry.at), self.get(entry.at, len(entry.old))))
        for head in heads:
            parts += [head.check, self.sum_of_lines(head)]
        if (sum(parts) & M64, len(entries) + len(heads)) == commit.words[:2]:
            at = BLOCK * heads[0].block + LINE * lines_of(heads[0].lines)[0] if heads else entries[0].stands
            self.counted("sum of a group", at)
            return True
        return any(head.signed == "next" for head in heads)
