/* The trained weights as a file of a run: <run directory>/model/model.safetensors, and beside it
 * config.json, which describes the model.
 *
 *     the controller ①  makes both files, the first at its full length, before it forks the workers
 *     each worker ②     writes the layers it owns, at the end, by position; replicas share the work
 *     the controller ③  gives the file its name when all layers were written
 *
 * Tensors are named <layer>.<parameter> (frostline/model.h), or as the model's table of names has
 * it (nn/tensor_names.h), fp32, [rows, cols], or [rows] where cols is 1. No process holds more of
 * them than its own and a buffer of 1 MiB. */
#ifndef FL_PIPE_STATE_WEIGHTS_MODEL_FILE_H
#define FL_PIPE_STATE_WEIGHTS_MODEL_FILE_H

#include "nn/safetensors/safetensors.h"
#include "pipe/state/params.h"

#include <stdatomic.h>

#define FL_MODEL_FOLDER "model"
#define FL_MODEL_FILE "model.safetensors"
#define FL_MODEL_CONFIG_FILE "config.json"

/* A struct of zeros holds nothing. */
typedef struct fl_model_file {
    const fl_model *model; /* borrowed */
    fl_st_layout layout;
    int *first;        /* [n_layers + 1] the layers' first tensors */
    int run_fd;        /* borrowed */
    int folder_fd, fd; /* fd -1: not open */
    bool joined;       /* the file is that of a controller on another host */
    atomic_uchar
        *written; /* [n_layers] shared with forked processes; 1: the layer is in the file */
} fl_model_file;

/* Make the folder and the file below run_fd (borrowed until fini), without its final name; and
 * config.json with the text `config`. replaces: the run continues, and the finished file replaces
 * the one that it has left before. Returns FL_EIO where there is no room for them or the final
 * name is taken, FL_ENOMEM. Call fini after a failure, too; of a struct of zeros it does nothing.
 */
fl_status fl_model_file_create(const fl_model *model, const char *config, int run_fd, bool replaces,
                               fl_model_file *out) FL_MUST_CHECK;

/* Remove the file without its final name that a start which was killed has left below run_fd. */
void fl_model_file_forget(int run_fd);

/* On another host than the controller's, with the same folder below run_fd: open the file that
 * fl_model_file_create has made there, to write layers into it. FL_EIO, FL_ENOMEM. Never call fini:
 * the file is the controller's. */
fl_status fl_model_file_join(const fl_model *model, int run_fd, fl_model_file *out) FL_MUST_CHECK;

/* Note that a worker on another host has written this layer. */
void fl_model_file_note(fl_model_file *file, int layer);

/* Write one layer that `params` hold. Waits for the stream's work. FL_EIO.
 * Threads and forked processes: any, each its own layers. */
fl_status fl_model_file_write(fl_model_file *file, fl_params *params, fl_stream *stream,
                              int layer) FL_MUST_CHECK;

/* The same of a layer whose weights lie in host memory, one parameter after the other, each in as
 * many elements as fl_layout_param says. */
fl_status fl_model_file_write_host(fl_model_file *file, const float *weights,
                                   int layer) FL_MUST_CHECK;

/* The xxh64 of a layer's bytes, read by the file's path: as it lies where this process sees it, and
 * with network file systems as it is after the writer has synced it. FL_EIO. Threads: any. */
fl_status fl_model_file_hash(const fl_model_file *file, int layer, uint64_t *hash) FL_MUST_CHECK;

/* Whether every layer has been written. */
bool fl_model_file_complete(const fl_model_file *file);

/* Onto the disk and under its name. FL_EIO; FL_EINTERNAL if it is not complete. */
fl_status fl_model_file_finish(fl_model_file *file) FL_MUST_CHECK;

/* Close it; if it was not finished, it is removed, and config.json with it. */
void fl_model_file_fini(fl_model_file *file);

/* Open the weights that `path` names: a file, an index, a folder that holds one of them, or a run
 * directory. Returns as fl_safetensors_open. */
fl_status fl_model_file_open(const char *path, fl_safetensors **out) FL_MUST_CHECK;

#endif
