/* A file's layout from the names and shapes of its tensors, and the writing of single ones. */
#include "device/errors/io_status.h"
#include "device/system/alloc.h"
#include "nn/safetensors/safetensors_dtype.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LENGTH_BYTES = 8 };

static fl_status write_at(int fd, const char *path, const void *from, size_t n, int64_t at)
{
    const char *next = from;
    while (n > 0) {
        ssize_t got = pwrite(fd, next, n, (off_t)at);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return fl_fail(FL_EIO, "%s: cannot write %zu bytes at %lld: %s", path, n, (long long)at,
                           strerror(errno));
        }
        next += got;
        at += got;
        n -= (size_t)got;
    }
    return FL_OK;
}

/* One entry of the header; *at goes on behind the tensor. */
static fl_status add_tensor(json_t *header, fl_st_layout *layout, int i, const fl_st_spec *spec,
                            int64_t *at)
{
    int64_t n = 1;
    json_t *shape = json_array();
    for (int d = 0; d < spec->n_dims; d++) {
        n *= spec->dims[d];
        json_array_append_new(shape, json_integer(spec->dims[d]));
    }
    int64_t end = *at + n * (int64_t)fl_st_dtype_size(layout->dtype);
    json_t *entry = json_pack("{s:s, s:o, s:[I,I]}", "dtype", fl_st_dtype_name(layout->dtype),
                              "shape", shape, "data_offsets", (json_int_t)*at, (json_int_t)end);
    layout->n_elements[i] = n;
    layout->begin_byte[i] = *at;
    *at = end;
    if (strcmp(spec->name, "__metadata__") == 0 || json_object_get(header, spec->name) != NULL) {
        json_decref(entry);
        return fl_fail(FL_EINVAL, "tensor \"%s\": the name is %s", spec->name,
                       spec->name[0] == '_' ? "reserved" : "given twice");
    }
    if (entry == NULL || json_object_set_new(header, spec->name, entry) != 0) {
        return fl_fail(FL_EINVAL, "tensor \"%s\": the name is no UTF-8 text", spec->name);
    }
    return FL_OK;
}

static fl_status fill_header(json_t *header, fl_st_layout *layout, const fl_st_spec *spec,
                             const fl_st_pair *metadata, int n_metadata, int64_t *data_bytes)
{
    json_t *pairs = json_object();
    for (int i = 0; i < n_metadata; i++) {
        json_object_set_new(pairs, metadata[i].key, json_string(metadata[i].value));
    }
    if (json_object_set_new(header, "__metadata__", pairs) != 0) {
        return fl_fail(FL_ENOMEM, "no memory for a file's header");
    }
    *data_bytes = 0;
    for (int i = 0; i < layout->n; i++) {
        fl_status status = add_tensor(header, layout, i, &spec[i], data_bytes);
        if (status != FL_OK) {
            return status;
        }
    }
    return FL_OK;
}

/* The header as it stands in the file: its length, the text, spaces up to a multiple of 8. */
static fl_status take_header(fl_st_layout *layout, const json_t *header)
{
    char *text = json_dumps(header, JSON_COMPACT);
    if (text == NULL) {
        return fl_fail(FL_ENOMEM, "no memory for a file's header");
    }
    size_t n = strlen(text), padded = (n + LENGTH_BYTES - 1) / LENGTH_BYTES * LENGTH_BYTES;
    fl_status status = fl_alloc(LENGTH_BYTES + padded, (void **)&layout->header);
    if (status == FL_OK) {
        for (int i = 0; i < LENGTH_BYTES; i++) {
            layout->header[i] = (char)(padded >> (8 * i) & 0xff);
        }
        memcpy(layout->header + LENGTH_BYTES, text, n);
        memset(layout->header + LENGTH_BYTES + n, ' ', padded - n);
        layout->header_bytes = (int64_t)(LENGTH_BYTES + padded);
    }
    free(text);
    return status;
}

fl_status fl_st_layout_init(fl_st_layout *layout, fl_st_dtype dtype, const fl_st_spec *spec, int n,
                            const fl_st_pair *metadata, int n_metadata)
{
    *layout = (fl_st_layout){.dtype = dtype, .n = n};
    if (dtype != FL_ST_F32 && dtype != FL_ST_F16 && dtype != FL_ST_BF16) {
        return fl_fail(FL_EINVAL, "tensors are written as F32, F16 or BF16, not as %s",
                       fl_st_dtype_name(dtype));
    }
    FL_TRY(fl_alloc_array((size_t)n, sizeof *layout->begin_byte, (void **)&layout->begin_byte));
    FL_TRY(fl_alloc_array((size_t)n, sizeof *layout->n_elements, (void **)&layout->n_elements));
    json_t *header = json_object();
    int64_t data_bytes = 0;
    fl_status status = fill_header(header, layout, spec, metadata, n_metadata, &data_bytes);
    if (status == FL_OK) {
        status = take_header(layout, header);
    }
    json_decref(header);
    FL_TRY(status);
    for (int i = 0; i < n; i++) {
        layout->begin_byte[i] += layout->header_bytes;
    }
    layout->total_bytes = layout->header_bytes + data_bytes;
    return FL_OK;
}

void fl_st_layout_fini(fl_st_layout *layout)
{
    fl_free(layout->begin_byte);
    fl_free(layout->n_elements);
    fl_free(layout->header);
    *layout = (fl_st_layout){0};
}

fl_status fl_st_layout_create(const fl_st_layout *layout, int fd, const char *path)
{
    int error = posix_fallocate(fd, 0, (off_t)layout->total_bytes);
    if (error != 0) {
        return fl_fail(fl_io_status(error), "%s: no room for %lld bytes: %s", path,
                       (long long)layout->total_bytes, strerror(error));
    }
    return write_at(fd, path, layout->header, (size_t)layout->header_bytes, 0);
}

fl_status fl_st_layout_write(const fl_st_layout *layout, int fd, const char *path, int i,
                             int64_t first, int64_t n, const float *from)
{
    size_t size = fl_st_dtype_size(layout->dtype);
    int64_t at = layout->begin_byte[i] + first * (int64_t)size;
    if (layout->dtype == FL_ST_F32) {
        return write_at(fd, path, from, (size_t)n * size, at);
    }
    uint16_t piece[FL_ST_PIECE];
    for (int64_t done = 0; done < n; done += FL_ST_PIECE) {
        int64_t now = n - done < FL_ST_PIECE ? n - done : FL_ST_PIECE;
        fl__st_narrow(layout->dtype, from + done, now, piece);
        FL_TRY(write_at(fd, path, piece, (size_t)now * size, at + done * (int64_t)size));
    }
    return FL_OK;
}
