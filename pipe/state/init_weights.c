#include "pipe/state/init_weights.h"

#include "nn/model.h"
#include "pipe/state/model_file.h"

#include <stdio.h>
#include <string.h>

enum { LIST_BYTES = 3000, NAME_BYTES = FL_LAYER_NAME_MAX + FL_PARAM_NAME_MAX };

/* ---- what fits ---- */

static bool is_allowed(const fl_init_weights *init, const char *name)
{
    size_t n = strlen(init->allow);
    return n > 0 && strncmp(name, init->allow, n) == 0 && (name[n] == '.' || name[n] == '\0');
}

static bool is_readable(const fl_st_tensor *t)
{
    return t->dtype == FL_ST_F32 || t->dtype == FL_ST_F16 || t->dtype == FL_ST_BF16;
}

/* A vector may also be a matrix of one column, as some files have it. */
static bool has_shape(const fl_st_tensor *t, const fl_param_spec *spec)
{
    bool matrix = t->n_dims == 2 && t->dims[0] == spec->rows && t->dims[1] == spec->cols;
    return matrix || (t->n_dims == 1 && spec->cols == 1 && t->dims[0] == spec->rows);
}

static const char *full_name(const fl_model *model, int layer, int i, char name[NAME_BYTES])
{
    snprintf(name, NAME_BYTES, "%s.%s", fl_model_layer_name(model, layer),
             fl_model_params(model, layer)->spec[i].name);
    return name;
}

/* The tensor under the name of a parameter, or of the first that is tied to it and has one: all of
 * them begin with the same values, whichever the file has. */
static const fl_st_tensor *find_tensor(const fl_init_weights *init, const fl_model *model,
                                       int layer, int i)
{
    char name[NAME_BYTES];
    int tie = fl_model_tie_of(model, layer, i);
    const fl_st_tensor *t = NULL;
    if (tie < 0) {
        return fl_safetensors_find(init->file, full_name(model, layer, i, name));
    }
    const fl_tie *all = fl_model_tie_at(model, tie);
    for (int k = 0; t == NULL && k < all->n; k++) {
        full_name(model, all->use[k].layer, all->use[k].param, name);
        t = fl_safetensors_find(init->file, name);
    }
    return t;
}

/* The same, if it fits. */
static const fl_st_tensor *tensor_for(const fl_init_weights *init, const fl_model *model, int layer,
                                      int i)
{
    const fl_st_tensor *t = find_tensor(init, model, layer, i);
    return t != NULL && has_shape(t, &fl_model_params(model, layer)->spec[i]) && is_readable(t)
               ? t
               : NULL;
}

/* ---- what does not ---- */

/* Names of one kind of difference, as many as a message can carry. */
typedef struct differences {
    const char *kind;
    int n;
    size_t used;
    char text[LIST_BYTES];
} differences;

static void add_difference(differences *d, const char *what)
{
    int n =
        snprintf(d->text + d->used, sizeof d->text - d->used, "%s%s", d->n == 0 ? "" : ", ", what);
    d->n++;
    if (n >= 0 && d->used + (size_t)n < sizeof d->text) {
        d->used += (size_t)n;
    } else {
        d->text[d->used] = '\0'; /* the count says how many there are */
    }
}

static void print_shape(const int64_t *dims, int n, char *text, size_t size_bytes)
{
    size_t used = (size_t)snprintf(text, size_bytes, "[");
    for (int i = 0; i < n && used < size_bytes; i++) {
        used += (size_t)snprintf(text + used, size_bytes - used, "%s%lld", i == 0 ? "" : ", ",
                                 (long long)dims[i]);
    }
    if (used < size_bytes) {
        snprintf(text + used, size_bytes - used, "]");
    }
}

static void describe_misfit(const fl_st_tensor *t, const fl_param_spec *spec, differences *d)
{
    char found[200], wanted[64], what[NAME_BYTES + 320];
    const int64_t dims[2] = {spec->rows, spec->cols};
    print_shape(t->dims, t->n_dims, found, sizeof found);
    print_shape(dims, spec->cols == 1 ? 1 : 2, wanted, sizeof wanted);
    if (has_shape(t, spec)) {
        snprintf(what, sizeof what, "%.160s is %s", t->name, fl_st_dtype_name(t->dtype));
    } else {
        snprintf(what, sizeof what, "%.160s %s, the model has %s", t->name, found, wanted);
    }
    add_difference(d, what);
}

static void compare_params(const fl_init_weights *init, const fl_model *model, differences *missing,
                           differences *misfits)
{
    char name[NAME_BYTES];
    for (int layer = 0; layer < fl_model_n_layers(model); layer++) {
        const fl_param_list *list = fl_model_params(model, layer);
        for (int i = 0; i < list->n; i++) {
            full_name(model, layer, i, name);
            const fl_st_tensor *t = find_tensor(init, model, layer, i);
            if (is_allowed(init, name) || tensor_for(init, model, layer, i) != NULL) {
                continue;
            }
            if (t == NULL) {
                add_difference(missing, name);
            } else {
                describe_misfit(t, &list->spec[i], misfits);
            }
        }
    }
}

static bool is_param(const fl_model *model, const char *name)
{
    char own[NAME_BYTES];
    for (int layer = 0; layer < fl_model_n_layers(model); layer++) {
        for (int i = 0; i < fl_model_params(model, layer)->n; i++) {
            if (strcmp(full_name(model, layer, i, own), name) == 0) {
                return true;
            }
        }
    }
    return false;
}

static void compare_tensors(const fl_init_weights *init, const fl_model *model, differences *extra)
{
    for (int i = 0; i < fl_safetensors_n(init->file); i++) {
        const char *name = fl_safetensors_at(init->file, i)->name;
        if (!is_allowed(init, name) && !is_param(model, name)) {
            char what[170];
            snprintf(what, sizeof what, "%.160s", name);
            add_difference(extra, what);
        }
    }
}

static fl_status compare(const fl_init_weights *init, const fl_model *model, const char *path)
{
    differences d[3] = {
        {.kind = "missing"}, {.kind = "of another shape or type"}, {.kind = "extra"}};
    char text[4000];
    size_t used = 0;
    compare_params(init, model, &d[0], &d[1]);
    compare_tensors(init, model, &d[2]);
    for (int i = 0; i < 3; i++) {
        if (d[i].n > 0 && used < sizeof text) {
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%d %s: %.1200s",
                                     used == 0 ? "" : "; ", d[i].n, d[i].kind, d[i].text);
        }
    }
    return used == 0 ? FL_OK
                     : fl_fail(FL_EINVAL, "%s does not fit the model %s: tensors %s", path,
                               fl_model_name(model), text);
}

static fl_status check_allow(const fl_init_weights *init, const fl_model *model)
{
    char name[NAME_BYTES];
    for (int layer = 0; layer < fl_model_n_layers(model); layer++) {
        for (int i = 0; i < fl_model_params(model, layer)->n; i++) {
            if (is_allowed(init, full_name(model, layer, i, name))) {
                return FL_OK;
            }
        }
    }
    for (int i = 0; i < fl_safetensors_n(init->file); i++) {
        if (is_allowed(init, fl_safetensors_at(init->file, i)->name)) {
            return FL_OK;
        }
    }
    return init->allow[0] == '\0'
               ? FL_OK
               : fl_fail(FL_EINVAL,
                         "neither the model nor the file has a layer \"%s\", which may differ",
                         init->allow);
}

/* ---- open, read ---- */

fl_status fl_init_weights_open(const fl_model *model, const char *path, const char *allow,
                               fl_init_weights *out)
{
    *out = (fl_init_weights){0};
    snprintf(out->allow, sizeof out->allow, "%s", allow);
    fl_status status = fl_model_file_open(path, &out->file);
    if (status == FL_OK) {
        status = compare(out, model, path);
    }
    if (status == FL_OK) {
        status = check_allow(out, model);
    }
    if (status != FL_OK) {
        fl_init_weights_close(out);
    }
    return status;
}

void fl_init_weights_close(fl_init_weights *init)
{
    fl_safetensors_close(&init->file);
}

static fl_status read_init(void *self, int layer, int index, int part, float *host)
{
    fl_init_state *state = self;
    const fl_init_weights *init = state->init;
    const fl_st_tensor *t = NULL;
    if (part == FL_STATE_WEIGHT && init->file != NULL) {
        t = tensor_for(init, state->drawn.model, layer, index);
    }
    if (t == NULL) {
        fl_state_source drawn = fl_drawn_source(&state->drawn);
        return drawn.read(drawn.self, layer, index, part, host);
    }
    FL_TRY(fl_safetensors_read(init->file, t, 0, t->n_elements, host));
    return fl_safetensors_check_unchanged(init->file);
}

fl_state_source fl_init_weights_source(fl_init_state *state)
{
    return (fl_state_source){.self = state, .read = read_init};
}
