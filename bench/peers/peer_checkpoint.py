"""Save or load the tensors of a checkpoint (bench_checkpoint's model) with PyTorch, from or to memory.

    peer_checkpoint.py save|load torch|dcp DIR FOLDER

FOLDER is the checkpoint whose tensors are saved: read with its own reader below, so that only torch
and numpy are needed. Prints milliseconds and MB/s. What is saved is on the disk when the time ends.
"""
import json
import os
import sys
import time

import numpy
import torch
import torch.distributed.checkpoint as dcp


def read_safetensors(path):
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = numpy.frombuffer(bytearray(file.read()), dtype=numpy.float32)
    header.pop("__metadata__", None)
    return {name: torch.from_numpy(data[t["data_offsets"][0] // 4:t["data_offsets"][1] // 4]
                                   .reshape(t["shape"]).copy())
            for name, t in header.items()}


def read_folder(folder):
    tensors = {}
    for name in sorted(os.listdir(folder)):
        if name.endswith(".safetensors"):
            tensors.update(read_safetensors(os.path.join(folder, name)))
    return tensors


def files_of(path):
    return [os.path.join(path, f) for f in os.listdir(path)] if os.path.isdir(path) else [path]


def evict(path):
    for name in files_of(path):
        fd = os.open(name, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def save_torch(tensors, path):
    with open(path, "wb") as file:
        torch.save(tensors, file)
        file.flush()
        os.fsync(file.fileno())


def save_dcp(tensors, path):
    dcp.save(tensors, storage_writer=dcp.FileSystemWriter(path, sync_files=True), no_dist=True)


def load_dcp(tensors, path):
    dcp.load(tensors, storage_reader=dcp.FileSystemReader(path), no_dist=True)


def main():
    what, how, folder, source = sys.argv[1:]
    path = os.path.join(folder, "peer." + how)
    torch.set_num_threads(2)
    if what == "save":
        tensors = read_folder(source)
        started = time.perf_counter()
        (save_torch if how == "torch" else save_dcp)(tensors, path)
    else:
        tensors = {} if how == "torch" else {n: torch.empty_like(t)
                                             for n, t in read_folder(source).items()}
        evict(path)
        started = time.perf_counter()
        if how == "torch":
            tensors = torch.load(path, map_location="cpu")
        else:
            load_dcp(tensors, path)
    seconds = time.perf_counter() - started
    n_bytes = sum(t.numel() * 4 for t in tensors.values())
    print(f"bytes {n_bytes} ms {seconds * 1e3:.1f} MBps {n_bytes / seconds / 1e6:.1f}")


main()
