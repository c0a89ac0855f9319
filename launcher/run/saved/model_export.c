/* A saved model as a folder of its own:
 *   ① the weights, however many files they are in     fl_saved_model_open
 *   ② config.json, validated                          fl_model_config_read
 *   ③ the folder, which holds no model                open_folder
 *   ④ each tensor, piece by piece                     copy_tensors
 *   ⑤ names, when all is on the disk                  name_files
 * A model that began as a Hugging Face folder becomes such a folder, with its tokenizer. */
#include "launcher/run/saved/model_export.h"

#include "device/system/alloc.h"
#include "device/system/files/folders.h"
#include "device/system/files/regular_file.h"
#include "launcher/hf/hf_files.h"
#include "launcher/job/job.h"
#include "launcher/job/text/text.h"
#include "launcher/run/saved/export_list.h"
#include "nn/safetensors/tensor_copy.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PART ".part"

typedef struct export_folder {
    const char *path;
    int fd;     /* -1: not open */
    bool made;  /* the folder did not exist before */
    int file;   /* model.safetensors.part; -1: not open */
    bool held;  /* model.safetensors.part is this export's, and so is config.json.part */
    bool named; /* both files have their names */
} export_folder;

/* The types of files. From overflow_at on, which is half a step above the largest value, a number
 * would round to infinity. */
static const struct {
    const char *name, *torch_name;
    fl_st_dtype dtype;
    double overflow_at;
} dtypes[] = {
    {"fp32", "float32", FL_ST_F32, INFINITY},
    {"bf16", "bfloat16", FL_ST_BF16, 0x1.FFp127},
    {"fp16", "float16", FL_ST_F16, 65520.0},
};
enum { N_DTYPES = sizeof dtypes / sizeof *dtypes };

fl_status fl_export_dtype_parse(const char *text, fl_st_dtype *out)
{
    char shown[FL_SHOWN_MAX];
    for (int i = 0; i < N_DTYPES; i++) {
        if (strcmp(text, dtypes[i].name) == 0) {
            *out = dtypes[i].dtype;
            return FL_OK;
        }
    }
    return fl_fail(FL_EINVAL, "--dtype: found %s, allowed: fp32, bf16 or fp16",
                   fl_shown(text, strlen(text), shown));
}

static int place_of(fl_st_dtype dtype)
{
    int i = 0;
    while (dtypes[i].dtype != dtype) {
        i++;
    }
    return i;
}

static double overflow_of(fl_st_dtype dtype)
{
    return dtypes[place_of(dtype)].overflow_at;
}

/* What config.json of a Hugging Face folder calls it. */
static const char *torch_name(fl_st_dtype dtype)
{
    return dtypes[place_of(dtype)].torch_name;
}

/* ---- ③ ---- */

static fl_status fail_folder(const export_folder *f, const char *what)
{
    return fl_fail(FL_EIO, "--to: %s%s%s: %s", f->path, what[0] == '\0' ? "" : "/", what,
                   strerror(errno));
}

static fl_status check_free(const export_folder *f)
{
    static const char index[] = FL_MODEL_FILE ".index.json";
    static const char *const taken[] = {FL_MODEL_FILE, index, FL_MODEL_CONFIG_FILE, "job.yaml",
                                        "manifest.json"};
    struct stat st;
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
        if (fstatat(f->fd, taken[i], &st, AT_SYMLINK_NOFOLLOW) == 0) {
            return fl_fail(FL_EINVAL,
                           "--to: %s already holds %s; allowed: a folder without a model "
                           "or a run",
                           f->path, taken[i]);
        }
    }
    return FL_OK;
}

/* Exports into one folder exclude each other by a lock on the file that all of them write. A file
 * without a lock is of an export that was killed, and is used again. */
static fl_status hold_file(export_folder *f)
{
    struct stat open_one, named_one;
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    f->file = openat(f->fd, FL_MODEL_FILE PART,
                     O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0644);
    if (f->file < 0 || fstat(f->file, &open_one) != 0) {
        return fail_folder(f, FL_MODEL_FILE PART);
    }
    if (!S_ISREG(open_one.st_mode)) {
        return fl_fail(FL_EIO, "--to: %s/" FL_MODEL_FILE PART ": not a regular file", f->path);
    }
    bool locked = fcntl(f->file, F_OFD_SETLK, &whole) == 0;
    if (!locked && errno != EAGAIN && errno != EACCES) {
        return fail_folder(f, FL_MODEL_FILE PART);
    }
    f->held = locked && fstatat(f->fd, FL_MODEL_FILE PART, &named_one, AT_SYMLINK_NOFOLLOW) == 0 &&
              named_one.st_dev == open_one.st_dev && named_one.st_ino == open_one.st_ino;
    return f->held ? FL_OK
                   : fl_fail(FL_EINVAL,
                             "--to: another export writes into %s; allowed: a folder of "
                             "its own for each",
                             f->path);
}

static fl_status open_folder(const char *path, export_folder *f)
{
    char failed[PATH_MAX];
    struct stat st;
    f->path = path;
    f->made = stat(path, &st) != 0;
    errno = strlen(path) < PATH_MAX ? fl_folders_make(path, failed) : ENAMETOOLONG;
    if (errno != 0) {
        return fail_folder(f, "");
    }
    f->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (f->fd < 0) {
        return fail_folder(f, "");
    }
    FL_TRY(check_free(f));
    FL_TRY(hold_file(f));
    FL_TRY(check_free(f)); /* another export may have ended just now */
    return ftruncate(f->file, 0) == 0 ? FL_OK : fail_folder(f, FL_MODEL_FILE PART);
}

static void close_folder(export_folder *f)
{
    if (f->held && !f->named) { /* else they are another export's */
        unlinkat(f->fd, FL_MODEL_CONFIG_FILE PART, 0);
        unlinkat(f->fd, FL_MODEL_FILE PART, 0);
    }
    if (f->file >= 0) {
        close(f->file); /* and the lock with it */
    }
    if (f->made && f->fd >= 0 && !f->named) {
        rmdir(f->path); /* unless there is something in it */
    }
    if (f->fd >= 0) {
        close(f->fd);
    }
}

/* ---- ④ ---- */

static fl_status check_range(const fl_export_tensor *t, fl_st_dtype dtype, int64_t first,
                             const float *values, int64_t n)
{
    double limit = overflow_of(dtype);
    for (int64_t i = 0; i < n; i++) {
        if (isfinite(values[i]) && fabs((double)values[i]) >= limit) {
            return fl_fail(FL_EINVAL, "%.160s: element %lld is %g, which is beyond the largest %s",
                           t->name, (long long)(first + i), (double)values[i],
                           fl_st_dtype_name(dtype));
        }
    }
    return FL_OK;
}

/* A tensor of the export, from one file to the other. */
typedef struct file_copy {
    const fl_safetensors *from;
    const fl_export_tensor *tensor;
    const fl_st_layout *layout;
    int file, i; /* tensor i of the layout */
} file_copy;

static fl_status read_saved(void *self, int64_t first, int64_t n, float *to)
{
    const file_copy *c = self;
    return fl_safetensors_read(c->from, c->tensor->from, c->tensor->first + first, n, to);
}

static fl_status write_exported(void *self, int64_t first, int64_t n, const float *from)
{
    const file_copy *c = self;
    FL_TRY(check_range(c->tensor, c->layout->dtype, first, from, n));
    return fl_st_layout_write(c->layout, c->file, FL_MODEL_FILE, c->i, first, n, from);
}

static fl_status copy_tensors(const fl_safetensors *from, const fl_export_list *list,
                              const fl_st_layout *layout, const export_folder *f)
{
    file_copy copy = {.from = from, .layout = layout, .file = f->file};
    const fl_tensor_ends ends = {.read = read_saved, .write = write_exported, .self = &copy};
    float *room = NULL;
    FL_TRY(fl_st_layout_create(layout, f->file, FL_MODEL_FILE));
    FL_TRY(fl_alloc_array(FL_TENSOR_ROOM, sizeof *room, (void **)&room));
    fl_status status = FL_OK;
    for (; status == FL_OK && copy.i < layout->n; copy.i++) {
        const fl_export_tensor *t = &list->tensor[copy.i];
        copy.tensor = t;
        status = fl_tensor_copy(t->rows, t->cols, t->transposed, &ends, room);
    }
    fl_free(room);
    return status == FL_OK ? fl_safetensors_check_unchanged(from) : status;
}

static fl_status make_layout(const fl_export_list *list, fl_st_dtype dtype, fl_st_layout *layout)
{
    static const fl_st_pair metadata[] = {{"format", "pt"}, {"frostline", FL_VERSION}};
    fl_st_spec *specs = NULL;
    FL_TRY(fl_alloc_array((size_t)list->n + 1, sizeof *specs, (void **)&specs));
    for (int i = 0; i < list->n; i++) {
        const fl_export_tensor *t = &list->tensor[i];
        specs[i] = (fl_st_spec){.name = t->name, .n_dims = t->n_dims};
        memcpy(specs[i].dims, t->dims, sizeof t->dims);
    }
    fl_status status = fl_st_layout_init(layout, dtype, specs, list->n, metadata, 2);
    fl_free(specs);
    return status;
}

/* ---- ② and ⑤ ---- */

/* What is exported: the parts that were found, opened and checked. */
typedef struct export_source {
    const fl_saved_model *saved;
    fl_safetensors *weights;
    fl_model_config config;
    fl_export_list list;
    fl_st_layout layout;
} export_source;

static bool copy_bytes(int in, int out)
{
    char bytes[4096];
    ssize_t n = 0;
    bool good = true;
    while (good && (n = read(in, bytes, sizeof bytes)) > 0) {
        good = write(out, bytes, (size_t)n) == n;
    }
    return good && n == 0;
}

/* Frostline's own file as it is; one of Hugging Face names the type of the weights. */
static fl_status make_config(const export_source *s, int out, const export_folder *f)
{
    const fl_hf_config *hf = &s->config.hf;
    bool good;
    if (s->config.kind == FL_MODEL_HF) {
        char *text = NULL;
        FL_TRY(fl_hf_config_text(hf, hf->n_labels > 0 ? hf->labels : NULL, hf->n_classes,
                                 torch_name(s->layout.dtype), &text));
        good = write(out, text, strlen(text)) == (ssize_t)strlen(text);
        fl_free(text);
    } else {
        const char *why = NULL;
        int in = fl_regular_file_open(AT_FDCWD, s->saved->config, &why);
        if (in < 0) {
            return fl_fail(FL_EIO, "%s: %s", s->saved->config, why);
        }
        good = copy_bytes(in, out);
        int error = errno;
        close(in);
        errno = error;
    }
    return good && fsync(out) == 0 ? FL_OK : fail_folder(f, FL_MODEL_CONFIG_FILE);
}

static fl_status write_config(const export_source *s, const export_folder *f)
{
    int out =
        openat(f->fd, FL_MODEL_CONFIG_FILE PART, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (out < 0) {
        return fail_folder(f, FL_MODEL_CONFIG_FILE);
    }
    fl_status status = make_config(s, out, f);
    close(out);
    return status;
}

/* A folder that holds model.safetensors holds all of both files. */
static fl_status name_files(export_folder *f)
{
    if (fsync(f->file) != 0 ||
        renameat(f->fd, FL_MODEL_CONFIG_FILE PART, f->fd, FL_MODEL_CONFIG_FILE) != 0 ||
        renameat(f->fd, FL_MODEL_FILE PART, f->fd, FL_MODEL_FILE) != 0 || fsync(f->fd) != 0) {
        return fail_folder(f, FL_MODEL_FILE);
    }
    f->named = true;
    return FL_OK;
}

/* config.json must describe these weights: every parameter that it lists is there in its shape. */
static fl_status open_source(const fl_saved_model *saved, fl_st_dtype dtype, export_source *s)
{
    s->saved = saved;
    if (saved->config[0] == '\0') {
        return fl_fail(FL_EINVAL, "%s: found no " FL_MODEL_CONFIG_FILE " that describes the model",
                       saved->weights);
    }
    FL_TRY(fl_model_config_read(saved->config, &s->config));
    if (s->config.kind == FL_MODEL_HF) {
        fl_status status = fl_export_list_hf(s->weights, &s->config.hf, &s->list);
        if (status != FL_OK) {
            return fl_within(status, "%s", saved->weights);
        }
    } else {
        FL_TRY(fl_model_config_check_weights(&s->config, s->weights));
        FL_TRY(fl_export_list_all(s->weights, &s->list));
    }
    return make_layout(&s->list, dtype, &s->layout);
}

static void close_source(export_source *s)
{
    fl_st_layout_fini(&s->layout);
    fl_export_list_fini(&s->list);
    fl_model_config_fini(&s->config);
}

/* The tokenizer, or what pixels become, lies beside the weights; of a checkpoint, where its job has
 * it. */
static fl_status copy_inputs(const export_source *s, const export_folder *f)
{
    const char *folder = s->config.hf.folder;
    fl_job job = {0};
    if (s->config.kind != FL_MODEL_HF) {
        return FL_OK;
    }
    if (!fl_hf_files_has_any(folder) && s->saved->job[0] != '\0') {
        FL_TRY(fl_job_load_kept(s->saved->job, NULL, 0, &job));
        folder = fl_hf_files_of_job(&job);
    }
    return fl_hf_files_has_any(folder) ? fl_hf_files_copy(folder, f->fd) : FL_OK;
}

static fl_status export_weights(const export_source *s, const char *folder)
{
    export_folder f = {.fd = -1, .file = -1};
    fl_status status = open_folder(folder, &f);
    if (status == FL_OK) {
        status = copy_tensors(s->weights, &s->list, &s->layout, &f);
    }
    if (status == FL_OK) {
        status = write_config(s, &f);
    }
    if (status == FL_OK) {
        status = copy_inputs(s, &f);
    }
    if (status == FL_OK) {
        status = name_files(&f);
    }
    if (f.fd >= 0 && f.file >= 0 && !f.named && s->config.kind == FL_MODEL_HF) {
        fl_hf_files_remove(f.fd);
    }
    close_folder(&f);
    return status;
}

fl_status fl_model_export(const fl_saved_model *saved, fl_safetensors *weights, const char *folder,
                          fl_st_dtype dtype, fl_model_export_result *result)
{
    export_source s = {.weights = weights};
    fl_status status = open_source(saved, dtype, &s);
    if (status == FL_OK) {
        status = export_weights(&s, folder);
    }
    *result = (fl_model_export_result){.n_tensors = s.layout.n, .size_bytes = s.layout.total_bytes};
    close_source(&s);
    return status;
}
