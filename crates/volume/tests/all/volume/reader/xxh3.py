"""XXH3 with 64 bits, a seed and the default secret:
https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md
"""

import struct

M64 = (1 << 64) - 1
M32 = (1 << 32) - 1

SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221"
    "b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb"
    "170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
P32_1, P32_2, P32_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
P64_1, P64_2, P64_3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
P64_4, P64_5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


def word(data, at):
    return int.from_bytes(data[at : at + 8], "little")


def half(data, at):
    return int.from_bytes(data[at : at + 4], "little")


pair = struct.Struct("<2Q").unpack_from


def rotate(x, bits):
    return (x << bits | x >> (64 - bits)) & M64


def fold(a, b):
    product = a * b
    return (product ^ product >> 64) & M64


def avalanche(x):
    x = (x ^ x >> 37) * 0x165667919E3779F9 & M64
    return x ^ x >> 32


def avalanche_64(x):
    x = (x ^ x >> 33) * P64_2 & M64
    x = (x ^ x >> 29) * P64_3 & M64
    return x ^ x >> 32


def xxh3(seed, data):
    size = len(data)
    if size == 0:
        return avalanche_64(seed ^ word(SECRET, 56) ^ word(SECRET, 64))
    if size <= 3:
        mixed = data[0] << 16 | data[size >> 1] << 24 | data[-1] | size << 8
        return avalanche_64((half(SECRET, 0) ^ half(SECRET, 4)) + seed & M64 ^ mixed)
    if size <= 8:
        seed ^= int.from_bytes((seed & M32).to_bytes(4, "big"), "little") << 32
        mixed = half(data, size - 4) | half(data, 0) << 32
        x = (word(SECRET, 8) ^ word(SECRET, 16)) - seed & M64 ^ mixed
        x ^= rotate(x, 49) ^ rotate(x, 24)
        x = x * 0x9FB21C651E98DF25 & M64
        x = (x ^ (x >> 35) + size) * 0x9FB21C651E98DF25 & M64
        return x ^ x >> 28
    if size <= 16:
        low = (word(SECRET, 24) ^ word(SECRET, 32)) + seed & M64 ^ word(data, 0)
        high = (word(SECRET, 40) ^ word(SECRET, 48)) - seed & M64 ^ word(data, size - 8)
        swapped = int.from_bytes(low.to_bytes(8, "big"), "little")
        return avalanche(size + swapped + high + fold(low, high) & M64)
    if size <= 240:
        return xxh3_medium(seed, data, size)
    return xxh3_long(seed, data, size)


def xxh3_medium(seed, data, size):
    def step(at, secret):
        a, b, low, high = *pair(data, at), *pair(SECRET, secret)
        return fold(a ^ low + seed & M64, b ^ high - seed & M64)

    x = size * P64_1
    if size <= 128:
        for i in range((size - 1 >> 5) + 1):
            x += step(16 * i, 32 * i) + step(size - 16 * i - 16, 32 * i + 16)
        return avalanche(x & M64)
    x += sum(step(16 * i, 16 * i) for i in range(8))
    x = avalanche(x & M64)
    x += sum(step(16 * i, 16 * i - 125) for i in range(8, size >> 4))
    return avalanche(x + step(size - 16, 119) & M64)


def xxh3_long(seed, data, size):
    words = struct.unpack("<24Q", SECRET)
    words = [(word - seed if i % 2 else word + seed) & M64 for i, word in enumerate(words)]
    secret = struct.pack("<24Q", *words)
    sums = [P32_3, P64_1, P64_2, P64_3, P64_4, P32_2, P64_5, P32_1]

    def accumulate(stripe, keys):
        for i in range(8):
            key = stripe[i] ^ keys[i]
            sums[i ^ 1] += stripe[i]
            sums[i] += (key & M32) * (key >> 32)

    stripes = (size - 1) // 64
    content = struct.unpack_from(f"<{8 * stripes}Q", data)
    for stripe in range(stripes):
        accumulate(content[8 * stripe : 8 * stripe + 8], words[stripe % 16 : stripe % 16 + 8])
        if stripe % 16 == 15:
            for i in range(8):
                x = sums[i] & M64
                sums[i] = (x ^ x >> 47 ^ words[16 + i]) * P32_1 & M64
    accumulate(struct.unpack_from("<8Q", data, size - 64), struct.unpack_from("<8Q", secret, 121))
    keys = struct.unpack_from("<8Q", secret, 11)
    pairs = [fold(sums[i] & M64 ^ keys[i], sums[i + 1] & M64 ^ keys[i + 1]) for i in range(0, 8, 2)]
    return avalanche(size * P64_1 + sum(pairs) & M64)
