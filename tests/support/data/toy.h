/* A small data set and model for tests of whole runs: images of 14 x 14 drawn from (id, class),
 * with an augmentation keyed by (seed, epoch, id), and a ViT that fits it. */
#ifndef FL_TESTS_SUPPORT_DATA_TOY_H
#define FL_TESTS_SUPPORT_DATA_TOY_H

#include <frostline.h>

/* n training and n / 4 test samples of 4 classes. Free with fl_dataset_destroy. */
fl_status fl_toy_dataset(int64_t n, fl_dataset *out) FL_MUST_CHECK;

/* Let it give the same samples in every epoch, however they are asked for. */
void fl_toy_make_plain(fl_dataset *data);

/* A ViT of the given depth for it: dim 24, 3 heads, patch 7. */
fl_status fl_toy_model(int64_t blocks, float dropout, fl_model **out) FL_MUST_CHECK;

/* The same with activations of a type. */
fl_status fl_toy_model_of(int64_t blocks, float dropout, fl_dtype dtype,
                          fl_model **out) FL_MUST_CHECK;

/* For a layer of a test's own: what goes in comes out, and it has no parameters. */
fl_status fl_toy_same_shape(void *self, const fl_shape *in, fl_shape *out);
fl_status fl_toy_no_params(void *self, fl_param_list *list);

/* Step losses of a run directory's steps.jsonl: out [capacity]; returns how many there were, or -1.
 */
int fl_toy_losses(const char *run_dir, double *out, int capacity);

#endif
