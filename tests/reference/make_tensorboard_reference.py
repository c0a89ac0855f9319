"""Writes tensorboard_reference.bin: an event file as TensorBoard's own package writes it.

The test of launcher/report/export/tfevents.c writes the same events and compares byte by byte. Made with
tensorboard 2.21.0 and protobuf 7.36.2:

    python3 -m venv V && V/bin/pip install tensorboard
    V/bin/python make_tensorboard_reference.py tensorboard_reference.bin
"""

import math
import sys

from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.summary.writer import record_writer


def event(wall, step, scalars):
    values = [summary_pb2.Summary.Value(tag=tag, simple_value=value) for tag, value in scalars]
    return event_pb2.Event(wall_time=wall, step=step, summary=summary_pb2.Summary(value=values))


EVENTS = [
    event_pb2.Event(wall_time=1769851800.0, file_version="brain.Event:2"),
    event(1769851800.25, 0, [("train/loss", 2.5), ("plan/K", 2.0)]),
    event(1769851801.5, 1, [("train/loss", -0.0), ("train/learning_rate", 1e-3)]),
    event(1769851802.0, 127, [("train/loss", math.inf)]),
    event(1769851802.0, 128, [("train/loss", math.nan)]),
    event(1769851803.0, 1 << 40, [("t" * 64, 3.4028234663852886e38)] * 16),
]

with open(sys.argv[1], "wb") as file:
    writer = record_writer.RecordWriter(file)
    for e in EVENTS:
        writer.write(e.SerializeToString())
    writer.flush()
