/* A checkpoint as a value, and its manifest: a file that makes a folder of tensors a checkpoint.
 *
 *     RUN/checkpoints/step-000000500/
 *         weights-003.safetensors, moments-003.safetensors   in checkpoint_files.h
 *         model.safetensors.index.json   which file has which weight, as Hugging Face's libraries
 *                                        write it: the folder is a model
 *         config.json                    what kind of model: docs/weights.md
 *         manifest.json                  written last: everything else that a resumed run needs,
 *                                        and the size and hash of each file
 *
 * A folder without manifest.json is no checkpoint: it is being written, or was abandoned. The last
 * member of the manifest is the xxh64 of all bytes before it. */
#ifndef FL_CONTROL_CHECKPOINT_MANIFEST_MANIFEST_H
#define FL_CONTROL_CHECKPOINT_MANIFEST_MANIFEST_H

#include "autodp/sampler.h"
#include "control/checkpoint/manifest/controller_state.h"
#include "pipe/state/checkpoint/checkpoint_files.h"

#define FL_CHECKPOINT_FOLDER "checkpoints" /* in the run directory */
#define FL_CHECKPOINT_MANIFEST "manifest.json"
#define FL_CHECKPOINT_INDEX "model.safetensors.index.json"

enum {
    FL_CHECKPOINT_VERSION = 4,
    FL_CHECKPOINT_VERSION_OLDEST = 2, /* that is still read */
    FL_CHECKPOINT_OWN_FILES = 2,      /* of the controller: the index, config.json */
    FL_CHECKPOINT_FILES_MAX = FL_CHECKPOINT_PARTS * FL_MAX_LAYERS + FL_CHECKPOINT_OWN_FILES
};

/* A file of the checkpoint, beside the manifest. */
typedef struct fl_checkpoint_entry {
    char name[FL_CHECKPOINT_NAME_MAX];
    int64_t bytes;
    uint64_t xxh64;
} fl_checkpoint_entry;

typedef struct fl_checkpoint_layer {
    char name[FL_LAYER_NAME_MAX];
    int block;
    int64_t n_params;
} fl_checkpoint_layer;

typedef struct fl_checkpoint_model {
    char name[128];
    uint64_t fingerprint; /* of the names and shapes of all parameters, their blocks and ties */
    int n_layers;
    fl_checkpoint_layer layer[FL_MAX_LAYERS]; /* [n_layers] */
} fl_checkpoint_model;

typedef struct fl_checkpoint_data {
    uint64_t fingerprint;            /* of the data set; 0: unknown */
    int64_t n_samples, n_validation; /* to train on; kept out of training */
} fl_checkpoint_data;

typedef struct fl_checkpoint_worker {
    double lr_factor;      /* factor on the job's learning rate */
    int64_t end_step;      /* the run ends after this many steps, */
    int64_t planned_steps; /* or after this many, had no command shortened it */
    int n_skipped;         /* steps in a row that were skipped, because they were not finite */
} fl_checkpoint_worker;

/* Lengths of the run's files with the lines before this checkpoint. */
typedef struct fl_checkpoint_records {
    int64_t steps_bytes, events_bytes;
} fl_checkpoint_records;

/* A large value: keep it in memory from fl_alloc. It owns `job`. */
typedef struct fl_checkpoint {
    char written[40];   /* UTC, "2026-01-31T09:30:00.000Z" */
    char frostline[32]; /* the version that wrote it */
    int64_t step;       /* finished steps */
    fl_cursor cursor;   /* of the next batch */
    fl_checkpoint_model model;
    fl_checkpoint_data data;
    char *job;    /* every field of the job, as the run's job.yaml has it; NULL: unknown */
    fl_plan plan; /* by which the step would have run */
    fl_checkpoint_worker worker;
    fl_controller_state controller;
    fl_checkpoint_records records;
    int n_files;
    fl_checkpoint_entry file[FL_CHECKPOINT_FILES_MAX];
} fl_checkpoint;

void fl_checkpoint_fini(fl_checkpoint *checkpoint);

/* Fill *out with what `model` is. */
void fl_checkpoint_model_of(const fl_model *model, fl_checkpoint_model *out);

/* The entry of this name; NULL: there is none. */
const fl_checkpoint_entry *fl_checkpoint_find(const fl_checkpoint *checkpoint, const char *name);

/* After how many steps a run of n_steps steps that continues from the checkpoint ends: earlier than
 * planned where a command had made that epoch the last, and it has not ended yet. */
int64_t fl_checkpoint_end_step(const fl_checkpoint *checkpoint, int64_t n_steps);

/* ---- writing: manifest_write.c ---- */

/* Write the index of the weights to the folder, and add it to the checkpoint's files. FL_EIO,
 * FL_ENOMEM. */
fl_status fl_checkpoint_write_index(fl_checkpoint *checkpoint, const fl_model *model,
                                    int folder_fd) FL_MUST_CHECK;

/* The same for config.json with the text `config`. */
fl_status fl_checkpoint_write_config(fl_checkpoint *checkpoint, const char *config,
                                     int folder_fd) FL_MUST_CHECK;

/* Write the manifest to the folder, which becomes a checkpoint: on return it is on the disk, with
 * its name, in place of an older manifest. After a failure there is no manifest, or still the older
 * one. FL_EIO, FL_ENOMEM. */
fl_status fl_checkpoint_write(const fl_checkpoint *checkpoint, int folder_fd) FL_MUST_CHECK;

/* The manifest's text, [*n]: free it with fl_free. */
fl_status fl_checkpoint_format(const fl_checkpoint *checkpoint, char **text,
                               size_t *n) FL_MUST_CHECK;

/* ---- reading: manifest_read.c ---- */

/* Read and check the manifest of the folder; the other files are not opened. Returns FL_EIO;
 * FL_EFORMAT with the place, what was found and what is allowed; FL_ENOTSUP for a version that this
 * program does not know; FL_ENOMEM. Call fini after a failure, too. Nothing in the file is trusted.
 */
fl_status fl_checkpoint_read(const char *folder, fl_checkpoint *out) FL_MUST_CHECK;

/* The same from memory; `where` names the text in messages. */
fl_status fl_checkpoint_parse(const char *where, const char *text, size_t n,
                              fl_checkpoint *out) FL_MUST_CHECK;

typedef struct fl_checkpoint_folder {
    int64_t step;
    bool whole; /* it has a manifest, which was not read */
    char name[FL_CHECKPOINT_NAME_MAX];
} fl_checkpoint_folder;

/* The folders of checkpoints in `dir`, the newest first: *folders [*n]; free with fl_free. A `dir`
 * that does not exist has none. FL_EIO, FL_ENOMEM. */
fl_status fl_checkpoint_list(const char *path, fl_checkpoint_folder **folders,
                             int *n) FL_MUST_CHECK;

/* ---- verification: manifest_verify.c ---- */

/* Compare the size and the hash of every file in `folder` with the manifest, with at most n_threads
 * threads. FL_EFORMAT or FL_EIO names the first file that differs, and how. */
fl_status fl_checkpoint_verify(const fl_checkpoint *checkpoint, const char *folder,
                               int n_threads) FL_MUST_CHECK;

#endif
