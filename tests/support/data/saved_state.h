/* Workers of a plan in one process, as far as checkpoints need them: each has its layers' weights
 * and moments, the parked moments that it keeps, and what writes its part of a checkpoint. */
#ifndef FL_TESTS_SUPPORT_DATA_SAVED_STATE_H
#define FL_TESTS_SUPPORT_DATA_SAVED_STATE_H

#include "pipe/state/checkpoint/checkpoint_source.h"
#include "pipe/state/checkpoint/checkpoint_writer.h"

enum { SAVED_MOMENTS = 2, SAVED_WORKERS_MAX = 8, SAVED_FILES_MAX = 64 };

/* Its state is a function of (layer, parameter, part, element, version): each is different. */
typedef struct saved_truth {
    const fl_model *model;
    int version;
} saved_truth;

fl_state_source saved_truth_source(saved_truth *truth);

typedef struct saved_worker {
    fl_params params;
    bool active;
    fl_parked parked;
    fl_checkpoint_writer *writer;
} saved_worker;

typedef struct saved_run {
    const fl_model *model;
    fl_device *device;
    fl_checkpoint_store *store;
    fl_plan plan;
    int parked[FL_MAX_LAYERS];
    saved_worker worker[SAVED_WORKERS_MAX];
    /* reports of the last checkpoint */
    pthread_mutex_t lock;
    int n_files, n_parts;
    fl_checkpoint_file_report file[SAVED_FILES_MAX];
    fl_checkpoint_part_report part[SAVED_WORKERS_MAX];
} saved_run;

/* A plan of K equal stages and R replicas on all workers 0 .. n - 1, the last first. */
fl_plan saved_plan(const fl_model *model, int F, int K, int R, int n_workers);

/* Worker `keeper` keeps the moments of all frozen layers; -1: none are kept. */
void saved_run_open(saved_run *run, const fl_model *model, fl_device *device,
                    fl_checkpoint_store *store, const fl_plan *plan, int keeper, int64_t step,
                    const fl_state_source *source);
void saved_run_close(saved_run *run);

/* All workers write a checkpoint, and it is on the disk. */
void saved_run_save(saved_run *run, int64_t step);

/* The checkpoint that was saved last is durable: workers may link to it. */
void saved_run_keep(const saved_run *run, int64_t step);

/* The report of a file; NULL: there was none. */
const fl_checkpoint_file_report *saved_run_file(const saved_run *run, fl_checkpoint_part part,
                                                int layer);

/* Every tensor of a checkpoint is the truth, to the last bit, and every file has the bytes and the
 * hash that were reported. */
void saved_check(const saved_run *run, int64_t step, const fl_state_source *truth);

#endif
