/* A data set for loaders, whose samples are known and whose reads a test holds up or lets fail. */
#ifndef FL_TESTS_SUPPORT_DATA_LOADER_TOY_H
#define FL_TESTS_SUPPORT_DATA_LOADER_TOY_H

#include "data/loader.h"

#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>

enum { LOADER_WIDTH = 3, LOADER_TOKENS = 4, LOADER_SAMPLES = 1000, LOADER_WAIT_MS = 20000 };

/* Ragged samples: id has 1 + id % 4 tokens whose elements tell where they come from. A read can be
 * held up, can fail, and can have another shape than promised. */
typedef struct loader_data {
    bool gated;
    sem_t entered, gate; /* with `gated`: a read posts the one and waits for the other */
    int64_t bad_id;      /* -1: none */
    int64_t liar_id;     /* -1: none */
    atomic_int n_reads;
    sigset_t mask; /* of the thread that read last */
} loader_data;

extern loader_data loader_toy;

/* Of each test: *state is the data set over a fresh loader_toy. */
int loader_set_up(void **state);

/* A loader whose requests may all be as large as can be; loader_make fails the test without one. */
fl_status loader_create(const fl_dataset *dataset, int64_t max_samples, int depth, fl_loader **out);
fl_loader *loader_make(void **state, int64_t max_samples, int depth);

fl_load_request loader_request(const int64_t *ids, int64_t n);

/* Element i of a sample; the targets of one. */
float loader_element(const fl_sample_key *key, int64_t i);
fl_status loader_targets(const void *self, fl_split split, int64_t id, int32_t *targets);

/* These are the samples of the request. */
void loader_assert(const fl_tensor *t, const fl_load_request *r);

#endif
