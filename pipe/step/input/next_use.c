#include "pipe/step/input/next_use.h"

#include "autodp/sampler.h"

#include <stdbool.h>

static int64_t per_epoch(const fl_next_use *f)
{
    return f->n_train + f->n_test;
}

void fl_next_use_init(fl_next_use *f, uint64_t seed, int64_t n_train, int64_t n_test, int64_t batch,
                      int64_t n_steps)
{
    int64_t steps = fl_sampler_steps_per_epoch(n_train, batch);
    int64_t whole = n_steps / steps, rest = n_steps % steps;
    *f = (fl_next_use){.seed = seed, .n_train = n_train, .n_test = n_test};
    f->last_epoch = rest > 0 ? whole : whole - 1;
    f->last_train = rest > 0 ? rest * batch : n_train;
}

int64_t fl_next_use_time(const fl_next_use *f, int64_t epoch, int64_t position)
{
    return epoch * per_epoch(f) + position;
}

/* Where in its epoch the key is used. */
static int64_t position_of(const fl_next_use *f, int64_t key, int64_t epoch)
{
    if (key >= f->n_train) {
        return key;
    }
    fl_permutation order;
    fl_permutation_init(&order, f->n_train, f->seed, epoch);
    return fl_permutation_index(&order, key);
}

/* The run may end within its last epoch, and evaluates then. */
static bool is_used(const fl_next_use *f, int64_t epoch, int64_t position)
{
    return epoch < f->last_epoch ||
           (epoch == f->last_epoch && (position < f->last_train || position >= f->n_train));
}

int64_t fl_next_use_of(const void *context, int64_t key, int64_t now)
{
    const fl_next_use *f = context;
    for (int64_t epoch = now / per_epoch(f);; epoch++) {
        int64_t position = position_of(f, key, epoch);
        if (!is_used(f, epoch, position)) {
            return INT64_MAX;
        }
        if (fl_next_use_time(f, epoch, position) >= now) {
            return fl_next_use_time(f, epoch, position);
        }
    }
}

int64_t fl_next_use_key_at(const void *context, int64_t time)
{
    const fl_next_use *f = context;
    int64_t position = time % per_epoch(f);
    if (position >= f->n_train) {
        return position;
    }
    fl_permutation order;
    fl_permutation_init(&order, f->n_train, f->seed, time / per_epoch(f));
    return fl_permutation_at(&order, position);
}
