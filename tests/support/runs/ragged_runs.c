#include "support/runs/ragged_runs.h"

#include <stddef.h>

const char *const ragged_common[] = {
    "devices.count", "4",   "pipe.k",   "1",    "autodp.r",     "1", "pipe.m",        "2",
    "train.batch",   "10",  "train.lr", "1e-3", "train.epochs", "6", "autodp.bucket", "16KiB",
    "cache.policy",  "off", NULL};

const char *const ragged_grids[RAGGED_GRIDS][3] = {
    {"1", "1", "10"}, {"2", "2", "5"}, {"2", "1", "7"}, {"1", "4", "2"}, {"4", "1", "10"}};

scenario ragged_scenario(const char *name, ragged_length *lengths, const char *const *more)
{
    return (scenario){.name = name,
                      .sets = ragged_common,
                      .more = more,
                      .n_samples = RAGGED_SAMPLES,
                      .blocks = RAGGED_BLOCKS,
                      .dropout = 0.1f,
                      .length = lengths};
}
