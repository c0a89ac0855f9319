/* A model that a run left: where its parts lie, and how it is built again with data to use it on.
 */
#ifndef FL_LAUNCHER_RUN_SAVED_SAVED_MODEL_H
#define FL_LAUNCHER_RUN_SAVED_SAVED_MODEL_H

#include "launcher/run/model/model_config.h"
#include "launcher/run/saved/saved_checkpoint.h"

typedef struct fl_saved_model {
    char weights[PATH_MAX];       /* what fl_safetensors_open takes */
    char config[PATH_MAX];        /* "": there is none */
    char job[PATH_MAX];           /* job.yaml of the run that trained it; "": unknown */
    int64_t step;                 /* of its run, after which it was left; -1: unknown */
    char note[FL_SAVED_NOTE_MAX]; /* lines for a person: which weights of a run are used if not the
                                     model that it left, and why; "": nothing to say */
} fl_saved_model;

/* Find what a user means by `name`: a folder of weights with its config.json, a file of weights, a
 * checkpoint, or a run (its directory, its name below the default of run.dir, or its job's name).
 * Of a run that has finished or was stopped: the model that it left. Else, or if it left none: its
 * newest checkpoint whose weights are whole. Returns FL_EINVAL if there is none, and FL_EFORMAT,
 * FL_ENOTSUP or FL_EIO for a checkpoint that is damaged. */
fl_status fl_saved_model_find(const char *name, fl_saved_model *out) FL_MUST_CHECK;

/* The same, of one checkpoint of the run that `run` names: by its number of steps, or "best".
 * FL_EINVAL lists those that the run has. */
fl_status fl_saved_model_find_checkpoint(const char *name, const char *checkpoint,
                                         fl_saved_model *out) FL_MUST_CHECK;

/* Find one of both, and open its weights, so that they can be read until *weights is closed. A live
 * run may delete a checkpoint once it is found: then the one that is the newest by now is taken, a
 * few times. `checkpoint` NULL: what the run left. */
fl_status fl_saved_model_open(const char *name, const char *checkpoint, fl_saved_model *out,
                              fl_safetensors **weights) FL_MUST_CHECK;

enum { FL_SAVED_ORIGIN_MAX = 4 * PATH_MAX + 32 };

/* Which weights they are, for a person: "runs/first/model after 469 steps". Returns text. */
const char *fl_saved_model_origin(const fl_saved_model *saved, char text[FL_SAVED_ORIGIN_MAX]);

/* The weights that model.init means, as above: where they are, and open. A warning names them if
 * they are not the model that a run left. */
fl_status fl_saved_model_open_init(const char *init, char path[PATH_MAX],
                                   fl_safetensors **weights) FL_MUST_CHECK;

/* The samples of a data set that a model is used on. */
typedef enum fl_use_split { FL_USE_TEST, FL_USE_TRAIN, FL_USE_VALIDATION } fl_use_split;

/* Returns FL_EINVAL, with the names, for any other than test, train and validation. */
fl_status fl_use_split_parse(const char *text, fl_use_split *out) FL_MUST_CHECK;

/* What the command line gives. */
typedef struct fl_use_request {
    const char *model;            /* see fl_saved_model_find */
    const char *checkpoint;       /* of the run `model`; NULL: what the run left */
    const char *job;              /* a job file, for data and devices; NULL: that of the run */
    const char *const *overrides; /* [n_overrides] "path=value" */
    int n_overrides;
    fl_use_split split;
    bool predicts; /* each sample alone: labels are optional, and each line of a text is one */
} fl_use_request;

/* A model, its data, and a job that only says where and how it is used. A struct of zeros holds
 * nothing. */
typedef struct fl_use {
    fl_saved_model saved;
    fl_safetensors *weights; /* of `saved`, until a pass takes them */
    fl_model_config config;
    fl_job job;
    fl_model *model;
    fl_dataset whole;   /* the data set */
    fl_dataset samples; /* a view: both of its splits are the samples to go over, by their ids */
    fl_split split;     /* of `whole` that they come from */
} fl_use;

/* Returns FL_EINVAL, FL_EIO or FL_EFORMAT with a message; call fl_use_fini after a failure, too. */
fl_status fl_use_open(const fl_use_request *request, fl_use *out) FL_MUST_CHECK;
void fl_use_fini(fl_use *use);

#endif
