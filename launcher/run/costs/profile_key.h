/* Everything that a profile's numbers depend on: a run that differs in any of it must measure
 * again. */
#ifndef FL_LAUNCHER_RUN_COSTS_PROFILE_KEY_H
#define FL_LAUNCHER_RUN_COSTS_PROFILE_KEY_H

#include "autodp/nccl/trial.h"
#include "device/machine/survey.h"
#include "pipe/cost/memory/memory.h"

#include <frostline/dataset.h>

enum {
    FL_PROFILE_KEY_PROGRAM = 0,
    FL_PROFILE_KEY_DEVICE = 2,
    FL_PROFILE_KEY_PARTS = 5,
    FL_PROFILE_KEY_TEXT_MAX = 320
};

/* Each part is one line for people; `hash` covers all of them. */
typedef struct fl_profile_key {
    const char *name[FL_PROFILE_KEY_PARTS]; /* "program", "model", ...; NULL: the part may differ */
    char text[FL_PROFILE_KEY_PARTS][FL_PROFILE_KEY_TEXT_MAX];
    uint64_t hash;
} fl_profile_key;

/* memory_one [n_layers]: the memory of one sample in each layer, which reflects its shapes.
 * sizes: of samples that differ in length; NULL: they do not.
 * devices, n_workers: what the workers of this host share, measuring and working at the same time.
 * nccl: whether this host's can be used */
void fl_profile_key_of(const fl_model *model, const fl_job *job, const fl_layer_memory *memory_one,
                       const fl_sample_sizes *sizes, const fl_device_survey *devices,
                       const fl_nccl_trial *nccl, int n_workers, fl_profile_key *key);

/* The same key for a host of another kind, whose devices have this text (fl_machine_kind_of), and
 * where n_workers run at once. */
void fl_profile_key_of_kind(const fl_profile_key *own, const fl_job *job, const char *devices,
                            int n_workers, fl_profile_key *key);

/* Make the text safe for a quoted line. */
void fl_profile_key_plain(char *text);

#endif
