#!/usr/bin/env python3
"""Make tests/reference/images: small JPEG and PNG files of every kind, and what Pillow makes of them.

To make them again (needs Pillow and numpy; made with Pillow 13.0):

    python3 tests/reference/make_images_reference.py tests/reference/images

good/       files that are read
expected.bin   for each of them, in the order of their names, 3 x 8 x 8 bytes: what Pillow's
            convert("RGB").resize((8, 8), BILINEAR) gives, as planes; and then the same of gray,
            convert("L"). Where Pillow has another idea of 16 bits, the upper 8 are taken first.
            JPEG is decoded by libjpeg-turbo on both sides.
bad/        files that are refused
"""
import os
import struct
import sys
import zlib

import numpy as np
from PIL import Image

SIDE = 8


def picture(height, width):
    """Waves: smooth enough for JPEG, different in each channel."""
    y, x = np.mgrid[0:height, 0:width]
    waves = [np.sin(x / 3 + c) * np.cos(y / (2 + c)) for c in range(3)]
    return (127.5 + 120 * np.stack(waves, -1)).astype("u1")


def chunk(kind, body):
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(width, height, depth, color, rows, extra=b""):
    header = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, 0)
    data = zlib.compress(b"".join(b"\0" + r for r in rows))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + extra + chunk(b"IDAT", data) + chunk(b"IEND", b""))


def write(path, data):
    with open(path, "wb") as out:
        out.write(data)


def make_good(folder):
    rgb = Image.fromarray(picture(21, 30))
    wide = picture(6, 13)
    rgb.save(f"{folder}/baseline.jpg", quality=90)
    rgb.save(f"{folder}/progressive.jpeg", quality=80, progressive=True, subsampling=2)
    rgb.convert("L").save(f"{folder}/gray.JPG")
    Image.fromarray(wide).save(f"{folder}/small.png")
    rgb.convert("L").save(f"{folder}/gray.png")
    rgb.quantize(16).save(f"{folder}/palette.png")
    rgb.convert("1").save(f"{folder}/bits.png")
    Image.fromarray(np.dstack([picture(9, 9), np.arange(81, dtype="u1").reshape(9, 9)])).save(f"{folder}/alpha.png")
    Image.fromarray(picture(SIDE, SIDE)).save(f"{folder}/exact.png")
    deep = (picture(10, 12).astype("u4") * 257 - 3).clip(0).astype(">u2")
    write(f"{folder}/deep.png", png(12, 10, 16, 2, [deep[y].tobytes() for y in range(10)]))
    write(f"{folder}/deep_gray.png", png(12, 10, 16, 0, [deep[y, :, 0].tobytes() for y in range(10)]))
    animated = [Image.fromarray(np.roll(picture(12, 12), i, 0)) for i in range(3)]
    animated[0].save(f"{folder}/animated.png", save_all=True, append_images=animated[1:])
    return dict(zip(["deep.png", "deep_gray.png"], [Image.fromarray((deep.astype("u4") >> 8).astype("u1")),
                                                    Image.fromarray((deep[..., 0].astype("u4") >> 8).astype("u1"))]))


def make_bad(folder, good):
    jpeg, plain = open(f"{good}/baseline.jpg", "rb").read(), open(f"{good}/gray.png", "rb").read()
    write(f"{folder}/cut.jpg", jpeg[:len(jpeg) * 2 // 3])
    write(f"{folder}/cut_early.jpg", jpeg[:20])
    write(f"{folder}/cut.png", plain[:len(plain) * 2 // 3])
    write(f"{folder}/checksum.png", plain[:60] + bytes([plain[60] ^ 1]) + plain[61:])
    write(f"{folder}/empty.png", b"")
    write(f"{folder}/text.jpg", b"not an image\n")
    write(f"{folder}/huge.png", png(100000, 100000, 8, 0, [b"\0"]))
    write(f"{folder}/large.png", png(16384, 16384, 8, 0, [b"\0"]))
    write(f"{folder}/gif.png", b"GIF89a" + b"\0" * 20)
    Image.fromarray(np.dstack([picture(9, 9)] * 2)[..., :4], mode="CMYK").save(f"{folder}/cmyk.jpg")


def main(folder):
    for name in "good", "bad":
        os.makedirs(f"{folder}/{name}", exist_ok=True)
    deep = make_good(f"{folder}/good")
    make_bad(f"{folder}/bad", f"{folder}/good")
    with open(f"{folder}/expected.bin", "wb") as out:
        for name in sorted(os.listdir(f"{folder}/good"), key=lambda n: n.encode()):
            image = deep.get(name) or Image.open(f"{folder}/good/{name}")
            for mode in "RGB", "L":
                flat = image.convert("RGB").convert("RGB") if mode == "RGB" else gray(image)
                values = np.asarray(flat.resize((SIDE, SIDE), Image.Resampling.BILINEAR)).reshape(SIDE, SIDE, -1)
                out.write(np.moveaxis(values, -1, 0).astype("u1").tobytes())


def gray(image):
    """By way of RGB, but for what is gray already."""
    return image.convert("L") if image.mode in ("L", "1") else image.convert("RGB").convert("L")


if __name__ == "__main__":
    main(sys.argv[1])
