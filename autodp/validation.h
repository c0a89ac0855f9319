/* A part of the training samples that is never trained on: the model is evaluated on it while it
 * trains, and the test samples are kept for the end.
 *
 * The view of a data set renumbers the samples. With n used samples and v of them for validation,
 * and with p the permutation of 0 .. n - 1 that the seed gives:
 *
 *     train   0 .. n - v - 1           sample p(i) of the data set's training samples
 *     test    0 .. v - 1               sample p(n - v + i) of the data set's training samples
 *             v .. v + n_test - 1      sample i - v of the data set's test samples
 *
 * The sampler, the ledger and the cache therefore treat the view as any other data set. Messages
 * name the samples of the data set itself (fl_sample_text). */
#ifndef FL_AUTODP_VALIDATION_H
#define FL_AUTODP_VALIDATION_H

#include <frostline/dataset.h>

/* The view over `inner` (borrowed), of whose training samples the first n_used are used.
 * n_validation: 1 .. n_used - 1. Its own memory: free with fl_dataset_destroy. FL_EINVAL,
 * FL_ENOMEM. Threads: any. */
fl_status fl_validation_create(const fl_dataset *inner, int64_t n_used, int64_t n_validation,
                               uint64_t seed, fl_dataset *out) FL_MUST_CHECK;

#endif
