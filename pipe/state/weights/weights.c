/* The public face of nn/safetensors/safetensors.h: weights by name, for programs. */
#include <frostline/weights.h>

#include "device/system/alloc.h"
#include "pipe/state/weights/model_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { PATH_BYTES = 4096 + 32, LIST_BYTES = 2000 };

_Static_assert(FL_WEIGHTS_DIMS_MAX == (int)FL_ST_DIMS_MAX, "every tensor's shape has room");

struct fl_weights {
    fl_safetensors *file; /* owned */
    char path[PATH_BYTES];
};

fl_status fl_weights_open(const char *path, fl_weights **out)
{
    fl_weights *weights = NULL;
    *out = NULL;
    if (path == NULL || path[0] == '\0') {
        return fl_fail(FL_EINVAL, "fl_weights_open: no path was given");
    }
    FL_TRY(fl_alloc(sizeof *weights, (void **)&weights));
    snprintf(weights->path, sizeof weights->path, "%s", path);
    fl_status status = fl_model_file_open(path, &weights->file);
    if (status != FL_OK) {
        fl_free(weights);
        return status;
    }
    *out = weights;
    return FL_OK;
}

void fl_weights_close(fl_weights **weights)
{
    if (*weights != NULL) {
        fl_safetensors_close(&(*weights)->file);
        fl_free(*weights);
        *weights = NULL;
    }
}

static fl_weights_tensor describe_tensor(const fl_st_tensor *t)
{
    fl_weights_tensor out = {.name = t->name,
                             .dtype = fl_st_dtype_name(t->dtype),
                             .n_dims = t->n_dims,
                             .n_elements = t->n_elements};
    memcpy(out.dims, t->dims, sizeof out.dims);
    return out;
}

int fl_weights_count(const fl_weights *weights)
{
    return fl_safetensors_n(weights->file);
}

fl_weights_tensor fl_weights_at(const fl_weights *weights, int i)
{
    return describe_tensor(fl_safetensors_at(weights->file, i));
}

/* As many names as a message can carry. */
static fl_status refuse_name(const fl_weights *weights, const char *name)
{
    char list[LIST_BYTES] = "";
    size_t used = 0;
    int n = fl_safetensors_n(weights->file);
    for (int i = 0; i < n && used < sizeof list; i++) {
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i == 0 ? "" : ", ",
                                 fl_safetensors_at(weights->file, i)->name);
    }
    return fl_fail(FL_EINVAL, "%s has no tensor \"%s\"; it has %d: %s%s", weights->path,
                   name == NULL ? "" : name, n, list, used < sizeof list ? "" : " ...");
}

static const fl_st_tensor *find_tensor(const fl_weights *weights, const char *name)
{
    return name == NULL ? NULL : fl_safetensors_find(weights->file, name);
}

fl_status fl_weights_find(const fl_weights *weights, const char *name, fl_weights_tensor *out)
{
    const fl_st_tensor *t = find_tensor(weights, name);
    if (t == NULL) {
        return refuse_name(weights, name);
    }
    *out = describe_tensor(t);
    return FL_OK;
}

fl_status fl_weights_read(const fl_weights *weights, const char *name, float *out,
                          int64_t n_elements)
{
    const fl_st_tensor *t = find_tensor(weights, name);
    if (t == NULL) {
        return refuse_name(weights, name);
    }
    if (n_elements != t->n_elements) {
        return fl_fail(FL_EINVAL,
                       "%s: tensor \"%s\" has %" PRId64 " elements, found room for "
                       "%" PRId64,
                       weights->path, name, t->n_elements, n_elements);
    }
    FL_TRY(fl_safetensors_read(weights->file, t, 0, t->n_elements, out));
    return fl_safetensors_check_unchanged(weights->file);
}
