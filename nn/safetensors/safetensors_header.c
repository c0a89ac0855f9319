#include "nn/safetensors/safetensors_header.h"

#include <stdlib.h>
#include <string.h>

enum { N_DTYPES = FL_ST_F8_E5M2 + 1 };

bool fl__st_has_control(const char *name)
{
    for (const unsigned char *c = (const unsigned char *)name; *c != '\0'; c++) {
        if (*c < ' ' || *c == 0x7f) {
            return true;
        }
    }
    return false;
}

/* ---- a tensor ---- */

static fl_status bad_tensor(const char *path, const char *name, const char *found)
{
    return fl_fail(FL_EFORMAT, "%s: tensor \"%.200s\": %s", path, name, found);
}

static fl_status read_dtype(const char *path, const char *name, const json_t *entry,
                            fl_st_tensor *t)
{
    const char *text = json_string_value(json_object_get(entry, "dtype"));
    for (int i = 0; text != NULL && i < N_DTYPES; i++) {
        if (strcmp(text, fl_st_dtype_name((fl_st_dtype)i)) == 0) {
            t->dtype = (fl_st_dtype)i;
            return FL_OK;
        }
    }
    return fl_fail(FL_EFORMAT,
                   "%s: tensor \"%.200s\": dtype %.40s is unknown; F32, F16 and BF16 are read",
                   path, name, text == NULL ? "(none)" : text);
}

/* The shape, and how many elements it has: at most what int64_t counts in bytes. */
static fl_status read_shape(const char *path, const char *name, const json_t *entry,
                            fl_st_tensor *t)
{
    const json_t *shape = json_object_get(entry, "shape");
    if (!json_is_array(shape) || json_array_size(shape) > FL_ST_DIMS_MAX) {
        return bad_tensor(path, name, "shape must be a list of at most 8 sizes");
    }
    t->n_dims = (int)json_array_size(shape);
    t->n_elements = 1;
    for (int d = 0; d < t->n_dims; d++) {
        const json_t *size = json_array_get(shape, (size_t)d);
        if (!json_is_integer(size) || json_integer_value(size) < 0) {
            return bad_tensor(path, name, "a size in shape is no integer from 0 up");
        }
        t->dims[d] = json_integer_value(size);
        if (__builtin_mul_overflow(t->n_elements, t->dims[d], &t->n_elements)) {
            return bad_tensor(path, name, "shape has more elements than any file");
        }
    }
    return t->n_elements > INT64_MAX / 8
               ? bad_tensor(path, name, "shape has more elements than any file")
               : FL_OK;
}

/* data_offsets [begin, end) within the data_bytes behind the header; they agree with the shape. */
static fl_status read_offsets(const char *path, const char *name, const json_t *entry,
                              int64_t data_bytes, fl_st_tensor *t)
{
    const json_t *offsets = json_object_get(entry, "data_offsets");
    const json_t *first = json_array_get(offsets, 0), *last = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(first) || !json_is_integer(last)) {
        return bad_tensor(path, name, "data_offsets must be two integers");
    }
    int64_t begin = json_integer_value(first), end = json_integer_value(last);
    int64_t want = t->n_elements * (int64_t)fl_st_dtype_size(t->dtype);
    if (begin < 0 || end < begin || end > data_bytes) {
        return fl_fail(
            FL_EFORMAT,
            "%s: tensor \"%.200s\": bytes %lld to %lld do not lie within the %lld bytes of data",
            path, name, (long long)begin, (long long)end, (long long)data_bytes);
    }
    if (end - begin != want) {
        return fl_fail(
            FL_EFORMAT, "%s: tensor \"%.200s\": %lld bytes, but its shape and dtype %s make %lld",
            path, name, (long long)(end - begin), fl_st_dtype_name(t->dtype), (long long)want);
    }
    t->begin_byte = begin;
    return FL_OK;
}

static int by_place(const void *a, const void *b)
{
    const fl_st_tensor *x = a, *y = b;
    if (x->begin_byte != y->begin_byte) {
        return x->begin_byte < y->begin_byte ? -1 : 1;
    }
    return (x->n_elements > y->n_elements) - (x->n_elements < y->n_elements); /* empty ones first */
}

static fl_status check_cover(const char *path, fl_st_tensor *t, int n, int64_t data_bytes)
{
    int64_t at = 0;
    qsort(t, (size_t)n, sizeof *t, by_place);
    for (int i = 0; i < n; i++) {
        if (t[i].begin_byte != at) {
            return fl_fail(
                FL_EFORMAT,
                "%s: tensor \"%.200s\" begins at byte %lld of the data, expected %lld: %s", path,
                t[i].name, (long long)t[i].begin_byte, (long long)at,
                t[i].begin_byte < at ? "tensors overlap" : "a gap");
        }
        at += t[i].n_elements * (int64_t)fl_st_dtype_size(t[i].dtype);
    }
    return at == data_bytes
               ? FL_OK
               : fl_fail(FL_EFORMAT, "%s: the tensors have %lld bytes, the file %lld of data", path,
                         (long long)at, (long long)data_bytes);
}

/* ---- the whole ---- */

static fl_status check_metadata(const char *path, const json_t *metadata)
{
    const char *key;
    const json_t *value;
    if (metadata != NULL && !json_is_object(metadata)) {
        return fl_fail(FL_EFORMAT, "%s: __metadata__ must be an object of texts", path);
    }
    json_object_foreach((json_t *)metadata, key, value)
    {
        if (!json_is_string(value)) {
            return fl_fail(FL_EFORMAT, "%s: __metadata__: \"%.100s\" is no text", path, key);
        }
    }
    return FL_OK;
}

fl_status fl_st_header_read(const fl_st_header *h, fl_st_tensor *tensors, int *n)
{
    const char *name;
    json_t *entry;
    *n = 0;
    json_object_foreach((json_t *)h->json, name, entry)
    {
        if (strcmp(name, "__metadata__") == 0) {
            FL_TRY(check_metadata(h->path, entry));
            continue;
        }
        if (fl__st_has_control(name)) {
            return fl_fail(FL_EFORMAT,
                           "%s: tensor %d of the header: a control character in its name", h->path,
                           *n);
        }
        fl_st_tensor *t = &tensors[*n];
        *t = (fl_st_tensor){.name = name, .part = h->part};
        FL_TRY(read_dtype(h->path, name, entry, t));
        FL_TRY(read_shape(h->path, name, entry, t));
        FL_TRY(read_offsets(h->path, name, entry, h->data_bytes, t));
        (*n)++;
    }
    FL_TRY(check_cover(h->path, tensors, *n, h->data_bytes));
    for (int i = 0; i < *n; i++) {
        tensors[i].begin_byte += h->data_at;
    }
    return FL_OK;
}
