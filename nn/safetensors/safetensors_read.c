/* Opening a file or an index of several: nothing in it is believed before it was checked. */
#include "device/system/alloc.h"
#include "nn/safetensors/safetensors_dtype.h"
#include "nn/safetensors/safetensors_header.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "elements are read as they lie there");

enum { LENGTH_BYTES = 8, PATH_MAX_BYTES = 4096 };
enum { HEADER_MAX_BYTES = 100 * 1000 * 1000 }; /* as the format's own reader */

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

/* ---- one file ---- */

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
                       "bytes or 100000000",
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
    fl_st_header header = {.path = path,
                           .json = p->header,
                           .part = file->n_parts - 1,
                           .data_at = data_at,
                           .data_bytes = size_bytes - data_at};
    FL_TRY(fl_st_header_read(&header, file->tensors + file->n, &n));
    file->n += n;
    return FL_OK;
}

/* ---- several files ---- */

/* A file named by an index lies beside it. */
static fl_status path_beside(const char *index, const char *name, char path[PATH_MAX_BYTES])
{
    const char *slash = strrchr(index, '/');
    int folder = slash == NULL ? 0 : (int)(slash - index + 1);
    if (name[0] == '\0' || strchr(name, '/') != NULL || fl__st_has_control(name)) {
        return fl__st_has_control(name)
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
                           fl__st_has_control(name) ? "?" : name, file->parts[which].path);
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

static int by_name(const void *a, const void *b)
{
    return strcmp(((const fl_st_tensor *)a)->name, ((const fl_st_tensor *)b)->name);
}

/* The tensors cover the data: no overlap, no gap, nothing behind the last. */
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
        status = fl_fail(FL_EFORMAT, "%s: %lld bytes; an index has at most 100000000", path,
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

/* Weights in a format that is not read are worth a hint. */
static fl_status refuse_folder(const char *folder, const char *const names[2])
{
    static const char *const others[] = {"pytorch_model.bin", "pytorch_model.bin.index.json",
                                         "tf_model.h5", "flax_model.msgpack"};
    char path[PATH_MAX_BYTES];
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (snprintf(path, sizeof path, "%s/%s", folder, others[i]) < PATH_MAX_BYTES &&
            access(path, F_OK) == 0) {
            return fl_fail(FL_EFORMAT,
                           "%s: found, allowed: %s or %s. To convert it, call in Python "
                           "transformers.CLASS.from_pretrained(FOLDER).save_pretrained(FOLDER), "
                           "where CLASS is the one in `architectures` of config.json",
                           path, names[0], names[1]);
        }
    }
    return fl_fail(FL_EIO, "%s holds neither %s nor %s", folder, names[0], names[1]);
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
    return refuse_folder(folder, names);
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
