#!/usr/bin/env python3
"""Write the images of Fashion-MNIST or CIFAR-10 as PNG files, a folder for each class.

    python3 configs/make_image_folders.py DATA FOLDER [MOST]

DATA    a folder with the four idx files of Fashion-MNIST, plain or .gz, or cifar-10-binary.tar.gz
FOLDER  gets train/CLASS/NUMBER.png and test/CLASS/NUMBER.png; it must not exist
MOST    of each split, only the first MOST images

Needs nothing but Python.
"""
import gzip
import os
import struct
import sys
import tarfile
import zlib

FASHION = "t-shirt trouser pullover dress coat sandal shirt sneaker bag ankle-boot".split()
CIFAR_SIDE = 32


def chunk(kind, body):
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(rows, width, color):
    """rows: bytes of each row; color: 0 gray, 2 RGB."""
    header = struct.pack(">IIBBBBB", width, len(rows), 8, color, 0, 0, 0)
    data = zlib.compress(b"".join(b"\0" + row for row in rows), 6)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def read_idx(folder, name):
    path = f"{folder}/{name}"
    plain = os.path.exists(path)
    with open(path, "rb") if plain else gzip.open(path + ".gz") as file:
        data = file.read()
    dims = struct.unpack_from(f">{data[3]}I", data, 4)
    return dims, data[4 + 4 * data[3]:]


def fashion(folder, split):
    prefix = dict(train="train", test="t10k")[split]
    (n, height, width), pixels = read_idx(folder, f"{prefix}-images-idx3-ubyte")
    labels = read_idx(folder, f"{prefix}-labels-idx1-ubyte")[1]
    for i in range(n):
        image = pixels[i * height * width:(i + 1) * height * width]
        rows = [image[y * width:(y + 1) * width] for y in range(height)]
        yield FASHION[labels[i]], png(rows, width, 0)


def cifar(archive, split):
    plane, side = CIFAR_SIDE * CIFAR_SIDE, CIFAR_SIDE
    with tarfile.open(archive) as tar:
        names = sorted(n for n in tar.getnames() if os.path.basename(n).startswith(
            "data_batch" if split == "train" else "test_batch"))
        meta = next(n for n in tar.getnames() if n.endswith("batches.meta.txt"))
        classes = tar.extractfile(meta).read().decode().split()
        for name in names:
            data = tar.extractfile(name).read()
            for at in range(0, len(data), 1 + 3 * plane):
                planes = [data[at + 1 + c * plane:at + 1 + (c + 1) * plane] for c in range(3)]
                pixels = bytes(v for rgb in zip(*planes) for v in rgb)
                rows = [pixels[y * 3 * side:(y + 1) * 3 * side] for y in range(side)]
                yield classes[data[at]], png(rows, side, 2)


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    data, folder, most = sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) == 4 else None
    if os.path.exists(folder):
        sys.exit(f"make_image_folders.py: {folder}: is there already")
    for split in "train", "test":
        for i, (name, image) in enumerate((fashion if os.path.isdir(data) else cifar)(data, split)):
            if i == most:
                break
            os.makedirs(f"{folder}/{split}/{name}", exist_ok=True)
            with open(f"{folder}/{split}/{name}/{i:05}.png", "wb") as out:
                out.write(image)


if __name__ == "__main__":
    main()
