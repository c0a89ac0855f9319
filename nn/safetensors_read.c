/* Opening a file or an index of several: nothing in it is believed before it was checked. */
#include "device/alloc.h"
#include "nn/safetensors_dtype.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "elements are read as they lie there");

enum { LENGTH_BYTES = 8, PATH_MAX_BYTES = 4096 };
enum { HEADER_MAX_BYTES = 100 * 1000 * 1000 }; /* as the format's own reader */
enum { N_DTYPES = FL_ST_F8_E5M2 + 1 };

typedef struct part {
    char *path;
    int fd;
    struct stat opened; /* as it was when its header was read */
    json_t *header;
} part;

struct fl_safetensors {
    int n_parts;
    part *parts;
    int n;
    size_t capacity;
    fl_st_tensor *tensors; /* [n] sorted by name */
};

/* ---- bytes ---- */

static fl_status read_at(const part *p, void *to, size_t n, int64_t at)
{
    char *next = to;
    while (n > 0) {
        ssize_t got = pread(p->fd, next, n, (off_t)at);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return fl_fail(FL_EIO, "%s: cannot read %zu bytes at %lld: %s", p->path, n,
                           (long long)at, got == 0 ? "the file ends before" : strerror(errno));
        }
        next += got;
        at += got;
        n -= (size_t)got;
    }
    return FL_OK;
}

/* A regular file: a pipe or a device would never say how long it is. */
static fl_status open_regular(int folder_fd, const char *path, int *fd, int64_t *size_bytes)
{
    struct stat st;
    *fd = openat(folder_fd, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0 || fstat(*fd, &st) != 0) {
        return fl_fail(FL_EIO, "cannot open %s: %s", path, strerror(errno));
    }
    if (!S_ISREG(st.st_mode)) {
        return fl_fail(FL_EIO, "%s is no regular file", path);
    }
    *size_bytes = st.st_size;
    return FL_OK;
}

static fl_status parse_json(const char *path, const char *text, size_t n, json_t **out)
{
    json_error_t error;
    *out = json_loadb(text, n, JSON_REJECT_DUPLICATES, &error);
    if (*out == NULL) {
        return fl_fail(FL_EFORMAT, "%s: the header is no valid JSON: %s, byte %d", path, error.text,
                       error.position);
    }
    if (!json_is_object(*out)) {
        return fl_fail(FL_EFORMAT, "%s: the header is no JSON object", path);
    }
    return FL_OK;
}

/* A message shows names as they are, and they must not control a terminal. */
static bool has_control(const char *name)
{
    for (const unsigned char *c = (const unsigned char *)name; *c != '\0'; c++) {
        if (*c < ' ' || *c == 0x7f) {
            return true;
        }
    }
    return false;
}

/* ---- one file ---- */

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

static int by_name(const void *a, const void *b)
{
    return strcmp(((const fl_st_tensor *)a)->name, ((const fl_st_tensor *)b)->name);
}

/* The tensors cover the data: no overlap, no gap, nothing behind the last. */
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

static fl_status read_tensors(const part *p, int which, int64_t data_at, int64_t data_bytes,
                              fl_st_tensor *tensors, int *n)
{
    const char *name;
    json_t *entry;
    json_object_foreach(p->header, name, entry)
    {
        if (strcmp(name, "__metadata__") == 0) {
            FL_TRY(check_metadata(p->path, entry));
            continue;
        }
        if (has_control(name)) {
            return fl_fail(FL_EFORMAT,
                           "%s: tensor %d of the header: a control character in its name", p->path,
                           *n);
        }
        fl_st_tensor *t = &tensors[*n];
        *t = (fl_st_tensor){.name = name, .part = which};
        FL_TRY(read_dtype(p->path, name, entry, t));
        FL_TRY(read_shape(p->path, name, entry, t));
        FL_TRY(read_offsets(p->path, name, entry, data_bytes, t));
        (*n)++;
    }
    FL_TRY(check_cover(p->path, tensors, *n, data_bytes));
    for (int i = 0; i < *n; i++) {
        tensors[i].begin_byte += data_at;
    }
    return FL_OK;
}

/* The header's text, checked against the size of the file; the caller frees it. */
static fl_status load_header(const part *p, int64_t size_bytes, char **text, size_t *n)
{
    unsigned char length[LENGTH_BYTES];
    uint64_t header = 0;
    if (size_bytes < LENGTH_BYTES) {
        return fl_fail(FL_EFORMAT, "%s: %lld bytes are too few for a safetensors file", p->path,
                       (long long)size_bytes);
    }
    FL_TRY(read_at(p, length, sizeof length, 0));
    for (int i = LENGTH_BYTES - 1; i >= 0; i--) {
        header = header << 8 | length[i];
    }
    if (header > HEADER_MAX_BYTES || (int64_t)header > size_bytes - LENGTH_BYTES) {
        return fl_fail(FL_EFORMAT,
                       "%s: is no safetensors file: the header's length, %llu, is beyond its %lld "
                       "bytes or 100 MB",
                       p->path, (unsigned long long)header, (long long)size_bytes);
    }
    *n = (size_t)header;
    FL_TRY(fl_alloc(*n + 1, (void **)text));
    return read_at(p, *text, *n, LENGTH_BYTES);
}

/* Adds the tensors of one file to what `file` has. */
static fl_status open_part(fl_safetensors *file, int folder_fd, const char *path)
{
    part *p = &file->parts[file->n_parts];
    int64_t size_bytes;
    char *text = NULL;
    size_t n_text = 0;
    int n = 0;
    p->fd = -1;
    file->n_parts++;
    FL_TRY(fl_strdup(path, &p->path));
    FL_TRY(open_regular(folder_fd, path, &p->fd, &size_bytes));
    if (fstat(p->fd, &p->opened) != 0) {
        return fl_fail(FL_EIO, "cannot look at %s: %s", path, strerror(errno));
    }
    fl_status status = load_header(p, size_bytes, &text, &n_text);
    if (status == FL_OK) {
        status = parse_json(path, text, n_text, &p->header);
    }
    fl_free(text);
    FL_TRY(status);
    /* One more: a file may have no tensor, and the array is there all the same. */
    FL_TRY(fl_alloc_room((void **)&file->tensors, (size_t)file->n, json_object_size(p->header) + 1,
                         sizeof *file->tensors, &file->capacity));
    int64_t data_at = LENGTH_BYTES + (int64_t)n_text;
    FL_TRY(read_tensors(p, file->n_parts - 1, data_at, size_bytes - data_at,
                        file->tensors + file->n, &n));
    file->n += n;
    return FL_OK;
}

/* ---- several files ---- */

/* A file named by an index lies beside it. */
static fl_status path_beside(const char *index, const char *name, char path[PATH_MAX_BYTES])
{
    const char *slash = strrchr(index, '/');
    int folder = slash == NULL ? 0 : (int)(slash - index + 1);
    if (name[0] == '\0' || strchr(name, '/') != NULL || has_control(name)) {
        return has_control(name)
                   ? fl_fail(FL_EFORMAT, "%s: a file's name has a control character", index)
                   : fl_fail(FL_EFORMAT, "%s: \"%.200s\" is no name of a file beside it", index,
                             name);
    }
    if (snprintf(path, PATH_MAX_BYTES, "%.*s%s", folder, index, name) >= PATH_MAX_BYTES) {
        return fl_fail(FL_EFORMAT, "%s: the path of \"%.200s\" is too long", index, name);
    }
    return FL_OK;
}

/* parts: the number of each file that the map names, by its name */
static fl_status open_parts(fl_safetensors *file, const char *index, json_t *map, json_t *parts)
{
    const char *name;
    const json_t *value;
    char path[PATH_MAX_BYTES];
    FL_TRY(fl_alloc_array(json_object_size(map) + 1, sizeof *file->parts, (void **)&file->parts));
    json_object_foreach(map, name, value)
    {
        const char *where = json_string_value(value);
        if (where == NULL) {
            return fl_fail(FL_EFORMAT, "%s: weight_map: \"%.200s\" names no file", index, name);
        }
        if (json_object_get(parts, where) != NULL) {
            continue;
        }
        FL_TRY(path_beside(index, where, path));
        if (json_object_set_new(parts, where, json_integer(file->n_parts)) != 0) {
            return fl_fail(FL_ENOMEM, "no memory for the files of %s", index);
        }
        FL_TRY(open_part(file, AT_FDCWD, path));
    }
    return FL_OK;
}

/* The index and the files agree about which tensors there are and where. */
static fl_status check_index(const fl_safetensors *file, const char *index, json_t *map,
                             const json_t *parts)
{
    const char *name;
    const json_t *value;
    json_object_foreach(map, name, value)
    {
        const fl_st_tensor *t = fl_safetensors_find(file, name);
        const char *where = json_string_value(value);
        int which = (int)json_integer_value(json_object_get(parts, where));
        if (t == NULL || t->part != which) {
            return fl_fail(FL_EFORMAT, "%s: tensor \"%.200s\" is not in %s", index,
                           has_control(name) ? "?" : name, file->parts[which].path);
        }
    }
    for (int i = 0; i < file->n; i++) {
        if (json_object_get(map, file->tensors[i].name) == NULL) {
            return fl_fail(FL_EFORMAT, "%s: %s holds tensor \"%.200s\", which the index lacks",
                           index, file->parts[file->tensors[i].part].path, file->tensors[i].name);
        }
    }
    return FL_OK;
}

static fl_status sort_by_name(fl_safetensors *file, const char *path)
{
    qsort(file->tensors, (size_t)file->n, sizeof *file->tensors, by_name);
    for (int i = 1; i < file->n; i++) {
        if (by_name(&file->tensors[i - 1], &file->tensors[i]) == 0) {
            return fl_fail(FL_EFORMAT, "%s: tensor \"%.200s\" is in two files", path,
                           file->tensors[i].name);
        }
    }
    return FL_OK;
}

static fl_status load_index(const char *path, json_t **out)
{
    part p = {.path = (char *)path};
    int64_t size_bytes;
    char *text = NULL;
    fl_status status = open_regular(AT_FDCWD, path, &p.fd, &size_bytes);
    if (status == FL_OK && size_bytes > HEADER_MAX_BYTES) {
        status = fl_fail(FL_EFORMAT, "%s: %lld bytes; an index has at most 100 MB", path,
                         (long long)size_bytes);
    }
    if (status == FL_OK) {
        status = fl_alloc((size_t)size_bytes + 1, (void **)&text);
    }
    if (status == FL_OK) {
        status = read_at(&p, text, (size_t)size_bytes, 0);
    }
    if (status == FL_OK) {
        status = parse_json(path, text, (size_t)size_bytes, out);
    }
    fl_free(text);
    if (p.fd >= 0) {
        close(p.fd);
    }
    return status;
}

static fl_status open_index(fl_safetensors *file, const char *path)
{
    json_t *index = NULL;
    fl_status status = load_index(path, &index);
    json_t *map = json_object_get(index, "weight_map");
    if (status == FL_OK && !json_is_object(map)) {
        status = fl_fail(FL_EFORMAT, "%s: an index must have an object \"weight_map\"", path);
    }
    json_t *parts = json_object();
    if (status == FL_OK && parts == NULL) {
        status = fl_fail(FL_ENOMEM, "no memory for the files of %s", path);
    }
    if (status == FL_OK) {
        status = open_parts(file, path, map, parts);
    }
    if (status == FL_OK) {
        status = sort_by_name(file, path);
    }
    if (status == FL_OK) {
        status = check_index(file, path, map, parts);
    }
    json_decref(parts);
    json_decref(index);
    return status;
}

static fl_status open_single(fl_safetensors *file, int folder_fd, const char *path)
{
    FL_TRY(fl_alloc_array(1, sizeof *file->parts, (void **)&file->parts));
    FL_TRY(open_part(file, folder_fd, path));
    return sort_by_name(file, path);
}

/* In a folder, the file of this format; one file goes before an index of several. */
static fl_status open_folder(fl_safetensors *file, const char *folder)
{
    static const char *const names[] = {"model.safetensors", "model.safetensors.index.json"};
    char path[PATH_MAX_BYTES];
    for (int i = 0; i < 2; i++) {
        if (snprintf(path, sizeof path, "%s/%s", folder, names[i]) >= PATH_MAX_BYTES) {
            break;
        }
        if (access(path, F_OK) == 0) {
            return i == 0 ? open_single(file, AT_FDCWD, path) : open_index(file, path);
        }
        if (errno != ENOENT) {
            return fl_fail(FL_EIO, "cannot open %s: %s", path, strerror(errno));
        }
    }
    return fl_fail(FL_EIO, "%s holds neither %s nor %s", folder, names[0], names[1]);
}

static fl_status open_any(fl_safetensors *file, const char *path)
{
    static const char ending[] = ".index.json";
    struct stat st;
    size_t n = strlen(path), n_ending = sizeof ending - 1;
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
        return open_folder(file, path);
    }
    bool is_index = n > n_ending && strcmp(path + n - n_ending, ending) == 0;
    return is_index ? open_index(file, path) : open_single(file, AT_FDCWD, path);
}

fl_status fl_safetensors_open(const char *path, fl_safetensors **out)
{
    fl_safetensors *file = NULL;
    FL_TRY(fl_alloc(sizeof *file, (void **)&file));
    fl_status status = open_any(file, path);
    if (status != FL_OK) {
        fl_safetensors_close(&file);
        return status;
    }
    *out = file;
    return FL_OK;
}

fl_status fl_safetensors_open_at(int folder_fd, const char *name, fl_safetensors **out)
{
    fl_safetensors *file = NULL;
    FL_TRY(fl_alloc(sizeof *file, (void **)&file));
    fl_status status = open_single(file, folder_fd, name);
    if (status != FL_OK) {
        fl_safetensors_close(&file);
        return status;
    }
    (void)posix_fadvise(file->parts[0].fd, 0, 0, POSIX_FADV_WILLNEED); /* only sooner */
    *out = file;
    return FL_OK;
}

void fl_safetensors_close(fl_safetensors **file)
{
    fl_safetensors *f = *file;
    if (f == NULL) {
        return;
    }
    for (int i = 0; i < f->n_parts; i++) {
        if (f->parts[i].fd >= 0) {
            close(f->parts[i].fd);
        }
        json_decref(f->parts[i].header);
        fl_free(f->parts[i].path);
    }
    fl_free(f->parts);
    fl_free(f->tensors);
    fl_free(f);
    *file = NULL;
}

/* ---- what it holds ---- */

int fl_safetensors_n(const fl_safetensors *file)
{
    return file->n;
}

const fl_st_tensor *fl_safetensors_at(const fl_safetensors *file, int i)
{
    return &file->tensors[i];
}

const fl_st_tensor *fl_safetensors_find(const fl_safetensors *file, const char *name)
{
    fl_st_tensor wanted = {.name = name};
    return file->n == 0 ? NULL
                        : bsearch(&wanted, file->tensors, (size_t)file->n, sizeof wanted, by_name);
}

const char *fl_safetensors_metadata(const fl_safetensors *file, const char *key)
{
    return json_string_value(
        json_object_get(json_object_get(file->parts[0].header, "__metadata__"), key));
}

fl_status fl_safetensors_read(const fl_safetensors *file, const fl_st_tensor *tensor, int64_t first,
                              int64_t n, float *to)
{
    const part *p = &file->parts[tensor->part];
    int64_t size = (int64_t)fl_st_dtype_size(tensor->dtype);
    int64_t at = tensor->begin_byte + first * size;
    if (first < 0 || n < 0 || first > tensor->n_elements || n > tensor->n_elements - first) {
        return fl_fail(FL_EINVAL, "%s: tensor \"%s\" has %lld elements, not %lld to %lld", p->path,
                       tensor->name, (long long)tensor->n_elements, (long long)first,
                       (long long)(first + n));
    }
    if (tensor->dtype == FL_ST_F32) {
        return read_at(p, to, (size_t)(n * size), at);
    }
    if (tensor->dtype != FL_ST_F16 && tensor->dtype != FL_ST_BF16) {
        return fl_fail(FL_ENOTSUP,
                       "%s: tensor \"%s\" is %s; weights are read from F32, F16 and BF16", p->path,
                       tensor->name, fl_st_dtype_name(tensor->dtype));
    }
    uint16_t piece[FL_ST_PIECE];
    for (int64_t done = 0; done < n; done += FL_ST_PIECE) {
        int64_t now = n - done < FL_ST_PIECE ? n - done : FL_ST_PIECE;
        FL_TRY(read_at(p, piece, (size_t)(now * size), at + done * size));
        fl__st_widen(tensor->dtype, piece, now, to + done);
    }
    return FL_OK;
}

static bool same_time(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

static fl_status check_part(const part *p)
{
    struct stat now;
    return fstat(p->fd, &now) == 0 && now.st_size == p->opened.st_size &&
                   same_time(&now.st_mtim, &p->opened.st_mtim)
               ? FL_OK
               : fl_fail(FL_EIO, "%s was written to while it was read", p->path);
}

fl_status fl_safetensors_check_unchanged(const fl_safetensors *file)
{
    for (int i = 0; i < file->n_parts; i++) {
        FL_TRY(check_part(&file->parts[i]));
    }
    return FL_OK;
}

fl_status fl_safetensors_check_tensor(const fl_safetensors *file, const fl_st_tensor *tensor)
{
    return check_part(&file->parts[tensor->part]);
}
