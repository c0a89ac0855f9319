/* The state that a checkpoint holds (pipe/state/checkpoint/checkpoint_files.h), read tensor by
 * tensor. */
#ifndef FL_PIPE_STATE_CHECKPOINT_CHECKPOINT_SOURCE_H
#define FL_PIPE_STATE_CHECKPOINT_CHECKPOINT_SOURCE_H

#include "nn/safetensors/safetensors.h"
#include "pipe/state/checkpoint/checkpoint_files.h"
#include "pipe/state/state_source.h"

/* A struct of zeros holds nothing. */
typedef struct fl_checkpoint_source {
    const fl_model *model; /* borrowed */
    int folder_fd;         /* of the checkpoint; borrowed */
    int n_moments;
    fl_safetensors *file; /* the file read last; NULL: none */
    fl_checkpoint_part part;
    int layer; /* whose file it is */
} fl_checkpoint_source;

/* Begin to read from a folder. Reads fail with FL_EIO or FL_EFORMAT, which name the file, and with
 * FL_EINVAL for a tensor that the file lacks or has in another shape or type. */
fl_state_source fl_checkpoint_source_open(const fl_model *model, int folder_fd, int n_moments,
                                          fl_checkpoint_source *out);
void fl_checkpoint_source_close(fl_checkpoint_source *source);

#endif
