#include "pipe/state/weights/model_file.h"

#include "device/errors/io_status.h"
#include "device/system/alloc.h"
#include "device/system/files/regular_file.h"
#include "nn/model.h"
#include "nn/safetensors/tensor_copy.h"
#include "pipe/cost/layout.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#define FL_MODEL_PATH FL_MODEL_FOLDER "/" FL_MODEL_FILE
#define PART_FILE FL_MODEL_FILE ".part"
#define PART_PATH FL_MODEL_FOLDER "/" PART_FILE

static size_t written_bytes(const fl_model *model)
{
    return (size_t)fl_model_n_layers(model) + 1;
}

/* ---- ① ---- */

/* The names and shapes of all tensors; pieces [n] are what the specs borrow. */
static void list_tensors(fl_model_file *file, fl_st_spec *specs, fl_tensor_piece *pieces)
{
    int n = 0;
    for (int layer = 0; layer < fl_model_n_layers(file->model); layer++) {
        file->first[layer] = n;
        for (int i = 0; i < fl_model_params(file->model, layer)->n; i++) {
            int end = n + fl_tensor_pieces_to_write(file->model, layer, i, pieces + n);
            for (; n < end; n++) {
                const fl_tensor_piece *p = &pieces[n];
                specs[n] = (fl_st_spec){.name = p->name, .n_dims = p->n_dims};
                memcpy(specs[n].dims, p->dims, sizeof p->dims);
            }
        }
    }
    file->first[fl_model_n_layers(file->model)] = n;
}

static int count_params(const fl_model *model)
{
    int n = 0;
    for (int layer = 0; layer < fl_model_n_layers(model); layer++) {
        n += fl_model_params(model, layer)->n;
    }
    return n;
}

static fl_status make_layout(fl_model_file *file)
{
    static const fl_st_pair metadata[] = {{"format", "pt"}, {"frostline", FL_VERSION}};
    size_t most = (size_t)count_params(file->model) * FL_TENSOR_PIECES_MAX + 1;
    fl_st_spec *specs = NULL;
    fl_tensor_piece *pieces = NULL;
    fl_status status = fl_alloc_array(most, sizeof *specs, (void **)&specs);
    if (status == FL_OK) {
        status = fl_alloc_array(most, sizeof *pieces, (void **)&pieces);
    }
    if (status == FL_OK) {
        list_tensors(file, specs, pieces);
        status = fl_st_layout_init(&file->layout, FL_ST_F32, specs,
                                   file->first[fl_model_n_layers(file->model)], metadata, 2);
    }
    fl_free(specs);
    fl_free(pieces);
    return status;
}

static fl_status open_part(fl_model_file *file)
{
    file->fd = openat(file->folder_fd, PART_FILE, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (file->fd >= 0) {
        return FL_OK;
    }
    int error = errno;
    unlinkat(file->run_fd, FL_MODEL_FOLDER, AT_REMOVEDIR); /* unless there is something in it */
    return error == EEXIST
               ? fl_fail(FL_EIO,
                         "%s is there already: of a run that was killed, or of another one that "
                         "begins; remove it, or name another run directory",
                         PART_PATH)
               : fl_fail(fl_io_status(error), "cannot make %s: %s", PART_PATH, strerror(error));
}

void fl_model_file_forget(int run_fd)
{
    int folder_fd =
        openat(run_fd, FL_MODEL_FOLDER, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder_fd >= 0) {
        unlinkat(folder_fd, PART_FILE, 0);
        close(folder_fd);
    }
}

static fl_status make_file(fl_model_file *file, int run_fd, bool replaces)
{
    struct stat st;
    if (mkdirat(run_fd, FL_MODEL_FOLDER, 0700) != 0 && errno != EEXIST) {
        return fl_fail(fl_io_status(errno), "cannot make the folder %s: %s", FL_MODEL_FOLDER,
                       strerror(errno));
    }
    if (!replaces && fstatat(run_fd, FL_MODEL_PATH, &st, AT_SYMLINK_NOFOLLOW) == 0) {
        return fl_fail(FL_EIO, "%s is there already; name another run directory", FL_MODEL_PATH);
    }
    file->run_fd = run_fd;
    file->folder_fd =
        openat(run_fd, FL_MODEL_FOLDER, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (file->folder_fd < 0) {
        return fl_fail(FL_EIO, "cannot use %s: it must be a folder of this run, and no link: %s",
                       FL_MODEL_FOLDER, strerror(errno));
    }
    if (replaces) {
        unlinkat(file->folder_fd, PART_FILE, 0); /* of a controller that was killed */
    }
    FL_TRY(open_part(file));
    return fl_st_layout_create(&file->layout, file->fd, PART_PATH);
}

static fl_status write_config(const fl_model_file *file, const char *text)
{
    size_t n = strlen(text);
    int fd = fl_regular_file_replace(file->folder_fd, FL_MODEL_CONFIG_FILE, 0644);
    bool good = fd >= 0 && write(fd, text, n) == (ssize_t)n && fsync(fd) == 0;
    int error = errno;
    if (fd >= 0) {
        close(fd);
    }
    return good ? FL_OK
                : fl_fail(fl_io_status(error), "cannot write %s/%s: %s", FL_MODEL_FOLDER,
                          FL_MODEL_CONFIG_FILE, strerror(error));
}

/* What fl_model_file_create and fl_model_file_join have alike. */
static fl_status make_tables(const fl_model *model, fl_model_file *out)
{
    size_t n_layers = (size_t)fl_model_n_layers(model);
    *out = (fl_model_file){.model = model, .folder_fd = -1, .fd = -1};
    FL_TRY(fl_alloc_array(n_layers + 1, sizeof *out->first, (void **)&out->first));
    void *shared =
        mmap(NULL, written_bytes(model), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        return fl_fail(FL_ENOMEM, "no memory for the progress of the model's file");
    }
    out->written = shared;
    return make_layout(out);
}

fl_status fl_model_file_join(const fl_model *model, int run_fd, fl_model_file *out)
{
    FL_TRY(make_tables(model, out));
    out->joined = true;
    out->run_fd = run_fd;
    out->fd = openat(run_fd, PART_PATH, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
    return out->fd >= 0 ? FL_OK : fl_fail(FL_EIO, "cannot open %s: %s", PART_PATH, strerror(errno));
}

void fl_model_file_note(fl_model_file *file, int layer)
{
    atomic_store(&file->written[layer], 1);
}

fl_status fl_model_file_create(const fl_model *model, const char *config, int run_fd, bool replaces,
                               fl_model_file *out)
{
    FL_TRY(make_tables(model, out));
    FL_TRY(make_file(out, run_fd, replaces));
    return write_config(out, config);
}

/* ---- ② ---- */

/* A piece of a parameter on the device, and its tensor in the file. */
typedef struct piece_copy {
    const fl_model_file *file;
    fl_device *device;
    fl_stream *stream;
    const float *from;
    int tensor;
} piece_copy;

static fl_status read_device(void *self, int64_t first, int64_t n, float *to)
{
    const piece_copy *c = self;
    const fl_device_ops *ops = c->device->ops;
    FL_TRY(ops->copy_out(c->device, c->stream, to, c->from + first, (size_t)n * sizeof *to));
    return ops->sync(c->device, c->stream);
}

static fl_status read_host(void *self, int64_t first, int64_t n, float *to)
{
    const piece_copy *c = self;
    memcpy(to, c->from + first, (size_t)n * sizeof *to);
    return FL_OK;
}

static fl_status write_file(void *self, int64_t first, int64_t n, const float *from)
{
    const piece_copy *c = self;
    return fl_st_layout_write(&c->file->layout, c->file->fd, PART_PATH, c->tensor, first, n, from);
}

/* All tensors of parameter i of a layer, which lies at `from`; c->tensor: the first one. */
static fl_status write_param(piece_copy *c, int layer, int i, const float *from, float *room)
{
    const fl_tensor_ends ends = {
        .read = c->device == NULL ? read_host : read_device, .write = write_file, .self = c};
    fl_tensor_piece pieces[FL_TENSOR_PIECES_MAX];
    int n = fl_tensor_pieces_to_write(c->file->model, layer, i, pieces);
    for (int k = 0; k < n; k++, c->tensor++) {
        const fl_tensor_piece *p = &pieces[k];
        c->from = from + p->first_row * p->cols;
        FL_TRY(fl_tensor_copy(p->n_rows, p->cols, p->transposed, &ends, room));
    }
    return FL_OK;
}

static fl_status write_pieces(piece_copy *c, const fl_layer_params *params, int layer, float *room)
{
    for (int i = 0; i < params->n; i++) {
        FL_TRY(write_param(c, layer, i, params->weight[i].data, room));
    }
    return FL_OK;
}

fl_status fl_model_file_write_host(fl_model_file *file, const float *weights, int layer)
{
    piece_copy copy = {.file = file, .tensor = file->first[layer]};
    const fl_param_list *list = fl_model_params(file->model, layer);
    void *room = NULL;
    FL_TRY(fl_alloc_array(FL_TENSOR_ROOM, sizeof(float), &room));
    fl_status status = FL_OK;
    for (int i = 0; i < list->n && status == FL_OK; i++) {
        status = write_param(&copy, layer, i, weights, room);
        weights += fl_layout_param(&list->spec[i]);
    }
    fl_free(room);
    if (status == FL_OK) {
        atomic_store(&file->written[layer], 1);
    }
    return status == FL_OK ? FL_OK
                           : fl_within(status, "%s", fl_model_layer_name(file->model, layer));
}

fl_status fl_model_file_write(fl_model_file *file, fl_params *params, fl_stream *stream, int layer)
{
    const fl_device_ops *ops = params->device->ops;
    size_t size_bytes = FL_TENSOR_ROOM * sizeof(float);
    piece_copy copy = {
        .file = file, .device = params->device, .stream = stream, .tensor = file->first[layer]};
    void *room = NULL;
    FL_TRY(ops->host_take(params->device, size_bytes, &room));
    fl_status status = write_pieces(&copy, &params->layer[layer - params->first], layer, room);
    ops->host_give(params->device, room, size_bytes);
    if (status == FL_OK && file->joined && fsync(file->fd) != 0) { /* the controller cannot */
        status = fl_fail(FL_EIO, "%s: %s", PART_PATH, strerror(errno));
    }
    if (status == FL_OK) {
        atomic_store(&file->written[layer], 1);
    }
    return status == FL_OK ? FL_OK
                           : fl_within(status, "%s", fl_model_layer_name(file->model, layer));
}

/* ---- what lies in it ---- */

enum { READ_BYTES = 1024 * 1024 };

static bool hash_bytes(int fd, int64_t at, int64_t end, XXH64_state_t *state, void *room)
{
    while (at < end) {
        ssize_t n = pread(fd, room, end - at < READ_BYTES ? (size_t)(end - at) : READ_BYTES, at);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        errno = n == 0 ? ENODATA : errno; /* the file is shorter than it was made */
        if (n <= 0) {
            return false;
        }
        XXH64_update(state, room, (size_t)n);
        at += n;
    }
    return true;
}

static bool hash_layer(const fl_model_file *file, int layer, int fd, XXH64_state_t *state,
                       void *room)
{
    const fl_st_layout *l = &file->layout;
    bool good = true;
    for (int i = file->first[layer]; i < file->first[layer + 1] && good; i++) {
        int64_t begin = l->begin_byte[i];
        int64_t n_bytes = l->n_elements[i] * (int64_t)sizeof(float);
        good = hash_bytes(fd, begin, begin + n_bytes, state, room);
    }
    return good;
}

/* Opening makes a client of NFS ask the server whether the file has changed. */
fl_status fl_model_file_hash(const fl_model_file *file, int layer, uint64_t *hash)
{
    XXH64_state_t *state = XXH64_createState();
    void *room = NULL;
    fl_status status = state == NULL ? fl_fail(FL_ENOMEM, "no memory to read %s", PART_PATH)
                                     : fl_alloc(READ_BYTES, &room);
    if (status == FL_OK) {
        int fd = openat(file->run_fd, PART_PATH, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
        XXH64_reset(state, 0);
        if (fd < 0 || !hash_layer(file, layer, fd, state, room)) {
            status = fl_fail(FL_EIO, "cannot read %s: %s", PART_PATH, strerror(errno));
        }
        if (fd >= 0) {
            close(fd);
        }
        *hash = XXH64_digest(state);
    }
    fl_free(room);
    XXH64_freeState(state);
    return status;
}

/* ---- ③ ---- */

bool fl_model_file_complete(const fl_model_file *file)
{
    for (int layer = 0; layer < fl_model_n_layers(file->model); layer++) {
        if (atomic_load(&file->written[layer]) == 0) {
            return false;
        }
    }
    return true;
}

fl_status fl_model_file_finish(fl_model_file *file)
{
    if (!fl_model_file_complete(file)) {
        return fl_fail(FL_EINTERNAL, "%s lacks a layer", PART_PATH);
    }
    if (fsync(file->fd) != 0 ||
        renameat(file->folder_fd, PART_FILE, file->folder_fd, FL_MODEL_FILE) != 0 ||
        fsync(file->folder_fd) != 0) {
        return fl_fail(FL_EIO, "cannot keep %s/%s: %s", FL_MODEL_FOLDER, FL_MODEL_FILE,
                       strerror(errno));
    }
    close(file->fd);
    file->fd = -1;
    return FL_OK;
}

void fl_model_file_fini(fl_model_file *file)
{
    if (file->model == NULL) {
        return;
    }
    if (file->fd >= 0) {
        unlinkat(file->folder_fd, PART_FILE, 0);
        if (faccessat(file->folder_fd, FL_MODEL_FILE, F_OK, 0) != 0) {
            unlinkat(file->folder_fd, FL_MODEL_CONFIG_FILE, 0); /* otherwise it is that model's */
        }
        unlinkat(file->run_fd, FL_MODEL_FOLDER, AT_REMOVEDIR); /* unless there is more in it */
        close(file->fd);
    }
    if (file->folder_fd >= 0) {
        close(file->folder_fd);
    }
    if (file->written != NULL) {
        munmap(file->written, written_bytes(file->model));
    }
    fl_st_layout_fini(&file->layout);
    fl_free(file->first);
    *file = (fl_model_file){0};
}

/* ---- reading ---- */

fl_status fl_model_file_open(const char *path, fl_safetensors **out)
{
    char inside[4096];
    struct stat st;
    int n = snprintf(inside, sizeof inside, "%s/%s", path, FL_MODEL_FOLDER);
    bool is_run =
        n > 0 && (size_t)n < sizeof inside && stat(inside, &st) == 0 && S_ISDIR(st.st_mode);
    return fl_safetensors_open(is_run ? inside : path, out);
}
