#include "pipe/state/weights/init_weights.h"

#include "device/errors/failure.h"
#include "device/system/alloc.h"
#include "device/text/plural.h"
#include "nn/model.h"
#include "nn/safetensors/tensor_copy.h"
#include "pipe/state/weights/model_file.h"

#include <stdio.h>
#include <string.h>

enum { LIST_BYTES = 5000, NAME_BYTES = FL_LAYER_NAME_MAX + FL_PARAM_NAME_MAX };

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

static bool fits(const fl_st_tensor *t, const fl_tensor_piece *p)
{
    return fl_tensor_has_shape(t, p) && is_readable(t);
}

static const char *full_name(const fl_model *model, int layer, int i, char name[NAME_BYTES])
{
    snprintf(name, NAME_BYTES, "%s.%s", fl_model_layer_name(model, layer),
             fl_model_params(model, layer)->spec[i].name);
    return name;
}

/* The tensors of a parameter in the file's way of naming. */
typedef struct found_tensors {
    int n;
    fl_tensor_piece piece[FL_TENSOR_PIECES_MAX];
    const fl_st_tensor *tensor[FL_TENSOR_PIECES_MAX]; /* NULL: not in the file */
} found_tensors;

static bool find_place(const fl_init_weights *init, const fl_model *model, int layer, int i,
                       found_tensors *out)
{
    bool any = false;
    out->n = fl_tensor_pieces(init->names, model, layer, i, out->piece);
    for (int k = 0; k < out->n; k++) {
        out->tensor[k] = fl_tensor_find(init->names, init->file, out->piece[k].name);
        any = any || out->tensor[k] != NULL;
    }
    return any;
}

/* The tensors of a parameter, or of the first that is tied to it and has one: all of them begin
 * with the same values, whichever the file has. */
static void find_tensors(const fl_init_weights *init, const fl_model *model, int layer, int i,
                         found_tensors *out)
{
    int tie = fl_model_tie_of(model, layer, i);
    bool any = find_place(init, model, layer, i, out) && !out->piece[0].tied;
    if (tie < 0) {
        return;
    }
    const fl_tie *all = fl_model_tie_at(model, tie);
    for (int k = 0; !any && k < all->n; k++) {
        any = find_place(init, model, all->use[k].layer, all->use[k].param, out);
    }
    if (!any) {
        (void)find_place(init, model, layer, i, out); /* its own name is the one to miss */
    }
}

/* Whether all tensors of a parameter are there and fit. */
static bool fit_all(const found_tensors *f)
{
    bool good = true;
    for (int k = 0; k < f->n; k++) {
        good = good && fits(f->tensor[k], &f->piece[k]);
    }
    return good;
}

/* ---- what does not ---- */

/* The tensors of one kind of difference, a line for each, as many as a message can carry. */
typedef struct differences {
    const char *kind, *between; /* two names; NULL: each has a line */
    int n, n_listed;
    size_t used;
    char text[LIST_BYTES];
} differences;

static void add_difference(differences *d, const char *what)
{
    const char *before = d->between == NULL ? "\n    " : d->n == 0 ? "" : d->between;
    int n = snprintf(d->text + d->used, sizeof d->text - d->used, "%s%s", before, what);
    bool fits = d->n_listed == d->n && n >= 0 && d->used + (size_t)n < sizeof d->text;
    d->n++;
    if (fits) {
        d->n_listed++;
        d->used += (size_t)n;
    } else {
        d->text[d->used] = '\0';
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

static void describe_misfit(const fl_st_tensor *t, const fl_tensor_piece *p, differences *d)
{
    char shape[200], wanted[100], what[NAME_BYTES + 320];
    print_shape(t->dims, t->n_dims, shape, sizeof shape);
    print_shape(p->dims, p->n_dims, wanted, sizeof wanted);
    if (fl_tensor_has_shape(t, p)) {
        snprintf(what, sizeof what, "%.160s is %s", t->name, fl_st_dtype_name(t->dtype));
    } else {
        snprintf(what, sizeof what, "%.160s %s, the model has %s", t->name, shape, wanted);
    }
    add_difference(d, what);
}

static void compare_param(const found_tensors *f, differences *missing, differences *misfits)
{
    for (int k = 0; k < f->n; k++) {
        if (f->tensor[k] == NULL) {
            add_difference(missing, f->piece[k].name);
        } else if (!fits(f->tensor[k], &f->piece[k])) {
            describe_misfit(f->tensor[k], &f->piece[k], misfits);
        }
    }
}

static void compare_params(const fl_init_weights *init, const fl_model *model, differences *missing,
                           differences *misfits)
{
    char name[NAME_BYTES];
    found_tensors f;
    for (int layer = 0; layer < fl_model_n_layers(model); layer++) {
        for (int i = 0; i < fl_model_params(model, layer)->n; i++) {
            if (!is_allowed(init, full_name(model, layer, i, name))) {
                find_tensors(init, model, layer, i, &f);
                compare_param(&f, missing, misfits);
            }
        }
    }
}

static bool is_of_param(const fl_init_weights *init, const fl_model *model,
                        const fl_st_tensor *tensor)
{
    found_tensors f;
    for (int layer = 0; layer < fl_model_n_layers(model); layer++) {
        for (int i = 0; i < fl_model_params(model, layer)->n; i++) {
            (void)find_place(init, model, layer, i, &f);
            for (int k = 0; k < f.n; k++) {
                if (f.tensor[k] == tensor) {
                    return true;
                }
            }
        }
    }
    return false;
}

static void compare_tensors(const fl_init_weights *init, const fl_model *model, differences *extra)
{
    for (int i = 0; i < fl_safetensors_n(init->file); i++) {
        const fl_st_tensor *t = fl_safetensors_at(init->file, i);
        if (!is_allowed(init, t->name) && !fl_tensor_is_unused(init->names, t->name) &&
            !is_of_param(init, model, t)) {
            char what[170];
            snprintf(what, sizeof what, "%.160s", t->name);
            add_difference(extra, what);
        }
    }
}

/* Returns how many bytes of the text it took. */
static size_t print_differences(const differences *d, char *text, size_t size_bytes)
{
    int n = d->n == 0 ? 0
                      : snprintf(text, size_bytes, "\n  %d tensor%s %s:%s", d->n,
                                 fl_plural_ending(d->n, "tensor"), d->kind, d->text);
    if (d->n > d->n_listed) {
        n += snprintf(text + n, size_bytes - (size_t)n, "\n    and %d more", d->n - d->n_listed);
    }
    return (size_t)n;
}

static fl_status compare(const fl_init_weights *init, const fl_model *model, const char *path)
{
    differences d[3] = {
        {.kind = "missing"}, {.kind = "of another shape or type"}, {.kind = "extra"}};
    char text[3 * (LIST_BYTES + 80)];
    size_t used = 0;
    compare_params(init, model, &d[0], &d[1]);
    compare_tensors(init, model, &d[2]);
    for (int i = 0; i < 3; i++) {
        used += print_differences(&d[i], text + used, sizeof text - used);
    }
    return used == 0 ? FL_OK
                     : fl_fail(FL_EINVAL, "%s does not fit the model %s:%s", path,
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
               : fl_fail_field(FL_EINVAL, FL_FIELDS("model.init_allow"),
                               "found %s, allowed: a layer of the model or of the file",
                               init->allow);
}

/* ---- open, read ---- */

/* A file of Frostline's own, as a checkpoint is, has its own names whatever the model's are. */
static const fl_tensor_names *names_in(const fl_safetensors *file, const fl_model *model)
{
    char name[NAME_BYTES];
    return fl_safetensors_find(file, full_name(model, 0, 0, name)) != NULL
               ? NULL
               : fl_model_tensor_names(model);
}

fl_status fl_init_weights_take(const fl_model *model, const char *path, const char *allow,
                               fl_safetensors **file, fl_init_weights *out)
{
    *out = (fl_init_weights){.file = *file};
    snprintf(out->allow, sizeof out->allow, "%s", allow);
    out->names = names_in(out->file, model);
    fl_status status = check_allow(out, model);
    if (status == FL_OK) {
        status = compare(out, model, path);
    }
    if (status == FL_OK) {
        *file = NULL;
    } else {
        out->file = NULL;
    }
    return status;
}

fl_status fl_init_weights_open(const fl_model *model, const char *path, const char *allow,
                               fl_init_weights *out)
{
    fl_safetensors *file = NULL;
    *out = (fl_init_weights){0};
    FL_TRY(fl_model_file_open(path, &file));
    fl_status status = fl_init_weights_take(model, path, allow, &file, out);
    fl_safetensors_close(&file);
    return status;
}

void fl_init_weights_close(fl_init_weights *init)
{
    fl_safetensors_close(&init->file);
}

/* The parameters that the file lacks, or has in another shape: they are drawn. */
int fl_init_weights_list_drawn(const fl_init_weights *init, const fl_model *model, char *text,
                               size_t size_bytes)
{
    differences d = {.kind = "drawn", .between = ", "};
    char name[NAME_BYTES];
    found_tensors f;
    for (int layer = 0; layer < fl_model_n_layers(model); layer++) {
        for (int i = 0; i < fl_model_params(model, layer)->n; i++) {
            find_tensors(init, model, layer, i, &f);
            if (!fit_all(&f)) {
                add_difference(&d, full_name(model, layer, i, name));
            }
        }
    }
    snprintf(text, size_bytes, "%s", d.text);
    return d.n;
}

/* A tensor of the file that becomes a matrix in memory, turned. */
typedef struct turned_read {
    const fl_init_weights *init;
    const fl_st_tensor *tensor;
    float *host;
} turned_read;

static fl_status read_file(void *self, int64_t first, int64_t n, float *to)
{
    const turned_read *r = self;
    return fl_safetensors_read(r->init->file, r->tensor, first, n, to);
}

static fl_status write_host(void *self, int64_t first, int64_t n, const float *from)
{
    const turned_read *r = self;
    memcpy(r->host + first, from, (size_t)n * sizeof *from);
    return FL_OK;
}

static fl_status read_turned(const fl_init_weights *init, const fl_st_tensor *tensor,
                             const fl_tensor_piece *p, float *host)
{
    turned_read r = {init, tensor, host};
    const fl_tensor_ends ends = {.read = read_file, .write = write_host, .self = &r};
    float *room = NULL;
    FL_TRY(fl_alloc_array(FL_TENSOR_ROOM, sizeof *room, (void **)&room));
    fl_status status = fl_tensor_copy(p->cols, p->n_rows, true, &ends, room);
    fl_free(room);
    return status;
}

/* host [rows, cols]: the rows that fill a vocabulary up become 0. */
static fl_status read_pieces(const fl_init_weights *init, const found_tensors *f, int64_t rows,
                             float *host)
{
    int64_t done = 0, cols = f->piece[0].cols;
    for (int k = 0; k < f->n; k++) {
        const fl_tensor_piece *p = &f->piece[k];
        float *to = host + p->first_row * cols;
        FL_TRY(p->transposed ? read_turned(init, f->tensor[k], p, to)
                             : fl_safetensors_read(init->file, f->tensor[k], 0,
                                                   f->tensor[k]->n_elements, to));
        FL_TRY(fl_safetensors_check_tensor(init->file, f->tensor[k]));
        done = p->first_row + p->n_rows;
    }
    memset(host + done * cols, 0, (size_t)((rows - done) * cols) * sizeof *host);
    return FL_OK;
}

static fl_status read_init(void *self, int layer, int index, int part, float *host)
{
    fl_init_state *state = self;
    const fl_init_weights *init = state->init;
    found_tensors f = {0};
    if (part == FL_STATE_WEIGHT && init->file != NULL) {
        find_tensors(init, state->drawn.model, layer, index, &f);
    }
    if (f.n == 0 || !fit_all(&f)) {
        fl_state_source drawn = fl_drawn_source(&state->drawn);
        return drawn.read(drawn.self, layer, index, part, host);
    }
    return read_pieces(init, &f, fl_model_params(state->drawn.model, layer)->spec[index].rows,
                       host);
}

fl_state_source fl_init_weights_source(fl_init_state *state)
{
    return (fl_state_source){.self = state, .read = read_init};
}
