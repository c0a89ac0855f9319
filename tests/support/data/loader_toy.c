#include "support/data/loader_toy.h"

#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { N_TEST = 10 };

loader_data loader_toy;

static int64_t toy_count(const void *self, fl_split split)
{
    (void)self;
    return split == FL_TRAIN ? LOADER_SAMPLES : N_TEST;
}

static fl_status toy_shape(const void *self, fl_split split, int64_t id, fl_shape *input,
                           int64_t *n_targets)
{
    const loader_data *t = self;
    if (id < 0 || id >= toy_count(self, split)) {
        return fl_fail(FL_EINVAL, "no sample %lld", (long long)id);
    }
    *input = (fl_shape){.tokens = id == t->liar_id ? LOADER_TOKENS + 1 : 1 + id % 4,
                        .width = LOADER_WIDTH,
                        .dtype = FL_F32};
    *n_targets = 1 + id % 2;
    return FL_OK;
}

static fl_status toy_max_shape(const void *self, fl_shape *input, int64_t *n_targets)
{
    (void)self;
    *input = (fl_shape){.tokens = LOADER_TOKENS, .width = LOADER_WIDTH, .dtype = FL_F32};
    *n_targets = 2;
    return FL_OK;
}

float loader_element(const fl_sample_key *key, int64_t i)
{
    return (float)(key->id * 16 + i) + 0.5f * (float)key->epoch + (key->augment ? 0.25f : 0.0f);
}

static fl_status toy_read(const void *self, fl_split split, const fl_sample_key *key, void *input)
{
    loader_data *t = (loader_data *)self;
    (void)split;
    atomic_fetch_add(&t->n_reads, 1);
    if (t->gated) {
        sem_post(&t->entered);
        while (sem_wait(&t->gate) != 0) {
        }
    }
    pthread_sigmask(SIG_SETMASK, NULL, &t->mask);
    if (key->id == t->bad_id) {
        return fl_fail(FL_EIO, "the disk under sample %lld is gone", (long long)key->id);
    }
    for (int64_t i = 0; i < (1 + key->id % 4) * LOADER_WIDTH; i++) {
        ((float *)input)[i] = loader_element(key, i);
    }
    return FL_OK;
}

fl_status loader_targets(const void *self, fl_split split, int64_t id, int32_t *targets)
{
    (void)self;
    (void)split;
    for (int64_t i = 0; i < 1 + id % 2; i++) {
        targets[i] = (int32_t)(100 * id + i);
    }
    return FL_OK;
}

static const fl_dataset_ops toy_ops = {
    .head = FL_TABLE_HEAD(fl_dataset_ops),
    .kind = "toy",
    .count = toy_count,
    .shape = toy_shape,
    .max_shape = toy_max_shape,
    .read = toy_read,
    .targets = loader_targets,
};

int loader_set_up(void **state)
{
    static fl_dataset dataset;
    memset(&loader_toy, 0, sizeof loader_toy);
    loader_toy.bad_id = -1;
    loader_toy.liar_id = -1;
    sem_init(&loader_toy.entered, 0, 0);
    sem_init(&loader_toy.gate, 0, 0);
    dataset = (fl_dataset){.ops = &toy_ops, .self = &loader_toy};
    *state = &dataset;
    return 0;
}

fl_status loader_create(const fl_dataset *dataset, int64_t max_samples, int depth, fl_loader **out)
{
    fl_loader_room room;
    FL_TRY(fl_loader_room_equal(dataset, max_samples, depth, &room));
    return fl_loader_create(dataset, &room, out);
}

fl_loader *loader_make(void **state, int64_t max_samples, int depth)
{
    fl_loader *loader = NULL;
    assert_int_equal(loader_create(*state, max_samples, depth, &loader), FL_OK);
    return loader;
}

fl_load_request loader_request(const int64_t *ids, int64_t n)
{
    return (fl_load_request){.split = FL_TRAIN, .seed = 1, .ids = ids, .n = n};
}

void loader_assert(const fl_tensor *t, const fl_load_request *r)
{
    assert_int_equal(t->n_samples, r->n);
    assert_int_equal(t->width, LOADER_WIDTH);
    assert_int_equal(t->dtype, FL_F32);
    assert_int_equal(t->offsets[0], 0);
    assert_int_equal(t->n_tokens, t->offsets[r->n]);
    for (int64_t s = 0; s < r->n; s++) {
        fl_sample_key key = {.epoch = r->epoch, .id = r->ids[s], .augment = r->augment};
        assert_int_equal(t->offsets[s + 1] - t->offsets[s], 1 + key.id % 4);
        for (int64_t i = 0; i < (1 + key.id % 4) * LOADER_WIDTH; i++) {
            assert_true(fl_f32(t)[t->offsets[s] * LOADER_WIDTH + i] == loader_element(&key, i));
        }
    }
}
