/* The files of a checkpoint: their names, what is in them, and which worker writes them. A
 * checkpoint is a folder, named after the number of finished steps:
 *
 *     step-000000500/weights-003.safetensors   of layer 3: "<layer>.<parameter>"
 *     step-000000500/moments-003.safetensors   of layer 3: "<layer>.<parameter>.moment.<k>"
 *
 * Tensors are fp32, in the shapes of the model's file (pipe/state/weights/model_file.h). A layer
 * without parameters has no file, nor has one whose optimizer keeps no moments of it. Pure, except
 * for the layout, which takes memory. Also what workers report of the files that they wrote. */
#ifndef FL_PIPE_STATE_CHECKPOINT_CHECKPOINT_FILES_H
#define FL_PIPE_STATE_CHECKPOINT_CHECKPOINT_FILES_H

#include "nn/safetensors/safetensors.h"

#include <frostline/model.h>
#include <frostline/plan.h>

#include <stdbool.h>

/* Beside the folders of checkpoints: a link to that of the best evaluation. */
#define FL_CHECKPOINT_BEST "best"

typedef enum fl_checkpoint_part {
    FL_CHECKPOINT_WEIGHTS = 0,
    FL_CHECKPOINT_MOMENTS = 1,
    FL_CHECKPOINT_PARTS
} fl_checkpoint_part;

enum { FL_CHECKPOINT_NAME_MAX = 48 };

/* One file of a checkpoint is complete and on the disk. A linked file is the one of the newest
 * durable checkpoint: its bytes and hash are those of that checkpoint, and 0 here. */
typedef struct fl_checkpoint_file_report {
    int64_t step;        /* finished steps */
    int64_t serial;      /* of the request; 0: the last checkpoint, which nobody asks for */
    uint32_t generation; /* of the plan whose state it is */
    int32_t layer;
    fl_checkpoint_part part;
    int64_t bytes;
    uint64_t xxh64;
    bool linked;
} fl_checkpoint_file_report;

/* A worker has finished its part of a checkpoint, or failed. Every member of the run sends it once
 * for each checkpoint, after the reports of its files, also if it has no file to write.
 * bytes     written, without linked files
 * copy_us   for which training stood still
 * write_us  from the end of the copy until the last file was on the disk */
typedef struct fl_checkpoint_part_report {
    int64_t step, serial; /* as in fl_checkpoint_file_report */
    uint32_t generation;  /* of the plan whose state it is */
    int32_t n_files;      /* on the disk, linked ones included */
    int64_t bytes, copy_us, write_us;
    int64_t buffer_bytes; /* host memory that the worker keeps for copies */
    fl_status status;
    char text[1024]; /* why it failed */
} fl_checkpoint_part_report;

/* A worker has copied its part of a snapshot in memory, or failed to. Every member of the run sends
 * it once for each snapshot, when the part is on the head. copy_us: for which training stood still.
 * moves: one more before that, as parts are still to go between hosts. */
typedef struct fl_snapshot_report {
    int64_t step;        /* finished steps */
    uint32_t generation; /* of the plan whose state it is */
    int64_t serial;      /* of the request */
    int64_t bytes, copy_us;
    bool moves;
    fl_status status;
} fl_snapshot_report;

/* "step-000000500"; returns name. */
const char *fl_checkpoint_folder_name(int64_t step, char name[FL_CHECKPOINT_NAME_MAX]);

/* The step that a folder's name gives; -1: it is no name of a checkpoint. */
int64_t fl_checkpoint_folder_step(const char *name);

/* "weights-003.safetensors"; returns name. */
const char *fl_checkpoint_file_name(fl_checkpoint_part part, int layer,
                                    char name[FL_CHECKPOINT_NAME_MAX]);

/* How many tensors a layer's file has, 0: there is no such file. n_moments: of the optimizer.
 * Tensor i of a file of weights is parameter i; of a file of moments, moment i % n_moments of
 * parameter i / n_moments. */
int fl_checkpoint_n_tensors(const fl_model *model, fl_checkpoint_part part, int layer,
                            int n_moments);

/* The rank that writes a layer's file, -1: the layer has none. Weights, and moments of a layer that
 * trains: replica `layer % R` of the stage that holds the layer. Moments of a frozen layer: the
 * worker that keeps them.
 * parked  [n_layers] as in fl_parked */
int fl_checkpoint_writer_rank(const fl_model *model, const fl_plan *plan, const int *parked,
                              int n_moments, fl_checkpoint_part part, int layer);

/* "<layer>.<parameter>", with ".moment.<k>" behind it in a file of moments; returns name. */
enum { FL_CHECKPOINT_TENSOR_MAX = FL_LAYER_NAME_MAX + FL_PARAM_NAME_MAX + 24 };
const char *fl_checkpoint_tensor_name(const fl_model *model, fl_checkpoint_part part, int layer,
                                      int n_moments, int i, char name[FL_CHECKPOINT_TENSOR_MAX]);

/* Where everything lies in a layer's file, which must exist. FL_ENOMEM. Call fl_st_layout_fini
 * after a failure, too. */
fl_status fl_checkpoint_layout_init(const fl_model *model, fl_checkpoint_part part, int layer,
                                    int n_moments, fl_st_layout *out) FL_MUST_CHECK;

#endif
