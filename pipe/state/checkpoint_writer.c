#include "pipe/state/checkpoint_writer.h"

#include "device/alloc.h"
#include "device/clock.h"
#include "device/failure.h"
#include "device/thread.h"
#include "device/thread_priority.h"
#include "pipe/cost/layout.h"
#include "pipe/cost/plan.h"
#include "pipe/state/checkpoint_file.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Files that may be written and not yet on the disk: it works on them while the next is written. */
enum { UNSYNCED_MAX = 16 };
enum { DESTROY_MS = 5000 };

/* One file that this worker writes. */
typedef struct item {
    fl_checkpoint_part part;
    int layer;
    bool linked;
    int64_t at; /* where its contents lie in the buffer */
} item;

/* What the writer's thread has to do. */
typedef enum work { IDLE, TAKE_ROOM, WRITE } work;

struct fl_checkpoint_writer {
    fl_checkpoint_writer_options o;
    int n_layers;
    int64_t *frozen_since; /* [n_layers] the step; INT64_MAX: the layer trains */
    int64_t *damaged_at;   /* [FL_CHECKPOINT_PARTS * n_layers] the checkpoint in which the file was
                              found damaged; -1: none */

    /* of the next or present checkpoint: the thread's while it works */
    item *items; /* [FL_CHECKPOINT_PARTS * n_layers] */
    int n_items;
    int64_t kept_step;    /* to whose files items are linked */
    fl_st_layout *layout; /* [FL_CHECKPOINT_PARTS * n_layers]; without a header: not made yet */
    void *memory;
    int64_t memory_bytes;
    char *buffer; /* the files, one after the other: in `memory`, on FL_CHECKPOINT_ALIGNMENT */
    int64_t copied_us;
    fl_checkpoint_part_report report;

    pthread_t thread;
    bool started;
    atomic_bool closing;
    pthread_mutex_t report_lock; /* held for each report, and to end them */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    work work; /* under the lock */
};

/* ---- ① ---- */

static int index_of(const fl_checkpoint_writer *w, const item *file)
{
    return (int)file->part * w->n_layers + file->layer;
}

static fl_st_layout *layout_of(const fl_checkpoint_writer *w, const item *file)
{
    return &w->layout[index_of(w, file)];
}

/* -1: it is not there. It may be a link to a folder. */
static int open_kept(const fl_checkpoint_writer *w)
{
    char name[FL_CHECKPOINT_NAME_MAX];
    return w->kept_step < 0
               ? -1
               : openat(w->o.store->dir_fd, fl_checkpoint_folder_name(w->kept_step, name),
                        O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* Whether the newest checkpoint has this file of a frozen layer: a user may have deleted it. */
static bool can_link(const fl_checkpoint_writer *w, int kept_fd, const item *file)
{
    char name[FL_CHECKPOINT_NAME_MAX];
    struct stat st;
    int64_t bytes = atomic_load(&fl_checkpoint_kept(w->o.store, file->part, file->layer)->bytes);
    return kept_fd >= 0 && w->frozen_since[file->layer] <= w->kept_step &&
           w->damaged_at[index_of(w, file)] != w->kept_step && bytes > 0 &&
           fstatat(kept_fd, fl_checkpoint_file_name(file->part, file->layer, name), &st,
                   AT_SYMLINK_NOFOLLOW) == 0 &&
           S_ISREG(st.st_mode) && st.st_size == bytes;
}

/* The files of this worker, the frozen ones linked if the newest checkpoint has them. */
static void list_items(fl_checkpoint_writer *w, const fl_checkpoint_state *s)
{
    const fl_checkpoint_writer_options *o = &w->o;
    w->n_items = 0;
    w->kept_step = atomic_load(o->store->kept_step);
    int kept_fd = open_kept(w);
    for (int layer = 0; layer < w->n_layers; layer++) {
        for (int part = 0; part < FL_CHECKPOINT_PARTS; part++) {
            item file = {.part = (fl_checkpoint_part)part, .layer = layer};
            if (fl_checkpoint_writer_rank(o->model, s->plan, s->parked->rank, o->n_moments,
                                          file.part, layer) == o->rank) {
                file.linked = can_link(w, kept_fd, &file);
                w->items[w->n_items++] = file;
            }
        }
    }
    if (kept_fd >= 0) {
        close(kept_fd);
    }
}

static fl_status make_layouts(fl_checkpoint_writer *w)
{
    for (int i = 0; i < w->n_items; i++) {
        const item *file = &w->items[i];
        fl_st_layout *layout = layout_of(w, file);
        if (!file->linked && layout->header == NULL) {
            fl_status status = fl_checkpoint_layout_init(w->o.model, file->part, file->layer,
                                                         w->o.n_moments, layout);
            if (status != FL_OK) {
                fl_st_layout_fini(layout);
                return status;
            }
        }
    }
    return FL_OK;
}

static void give_buffer(fl_checkpoint_writer *w)
{
    if (w->memory != NULL) {
        w->o.device->ops->host_give(w->o.device, w->memory, (size_t)w->memory_bytes);
    }
    w->memory = NULL;
    w->buffer = NULL;
    w->memory_bytes = 0;
}

static int64_t align(int64_t n)
{
    return (n + FL_CHECKPOINT_ALIGNMENT - 1) / FL_CHECKPOINT_ALIGNMENT * FL_CHECKPOINT_ALIGNMENT;
}

/* Layouts, places and memory for the listed files. */
static fl_status take_room(fl_checkpoint_writer *w)
{
    int64_t bytes = 0;
    FL_TRY(make_layouts(w));
    for (int i = 0; i < w->n_items; i++) {
        item *file = &w->items[i];
        file->at = bytes;
        if (!file->linked) {
            int64_t n = layout_of(w, file)->total_bytes;
            bytes += align(n);
        }
    }
    if (bytes > 0 && bytes + FL_CHECKPOINT_ALIGNMENT > w->memory_bytes) {
        give_buffer(w);
        FL_TRY(w->o.device->ops->host_take(w->o.device, (size_t)(bytes + FL_CHECKPOINT_ALIGNMENT),
                                           &w->memory));
        w->memory_bytes = bytes + FL_CHECKPOINT_ALIGNMENT;
        w->buffer = (char *)w->memory + align((int64_t)(uintptr_t)w->memory) -
                    (int64_t)(uintptr_t)w->memory;
    }
    return FL_OK;
}

/* ---- ② ---- */

static fl_status copy_weights(const fl_checkpoint_writer *w, const fl_params *p, const item *file)
{
    const fl_st_layout *layout = layout_of(w, file);
    const fl_layer_params *mine = &p->layer[file->layer - p->first];
    char *image = w->buffer + file->at;
    for (int i = 0; i < layout->n; i++) {
        FL_TRY(p->device->ops->copy_out(p->device, p->stream, image + layout->begin_byte[i],
                                        mine->weight[i].data,
                                        (size_t)layout->n_elements[i] * sizeof(float)));
    }
    return FL_OK;
}

/* Of a layer that trains, from the device; of a frozen one, from the host memory that keeps them.
 */
static fl_status copy_moments(const fl_checkpoint_writer *w, const fl_checkpoint_state *s,
                              const item *file)
{
    const fl_st_layout *layout = layout_of(w, file);
    const fl_param_list *list = fl_model_params(w->o.model, file->layer);
    const fl_params *p = s->params;
    bool parked = s->parked->moments[file->layer] != NULL;
    const float *from =
        parked ? s->parked->moments[file->layer] : p->moments[file->layer - p->first];
    int64_t n = fl_layout_count(w->o.model, file->layer, file->layer + 1), at = 0;
    char *image = w->buffer + file->at;
    for (int t = 0; t < layout->n; t++) {
        int k = t % w->o.n_moments;
        size_t size_bytes = (size_t)layout->n_elements[t] * sizeof(float);
        if (parked) {
            memcpy(image + layout->begin_byte[t], from + k * n + at, size_bytes);
        } else {
            FL_TRY(p->device->ops->copy_out(p->device, p->stream, image + layout->begin_byte[t],
                                            from + k * n + at, size_bytes));
        }
        at += k == w->o.n_moments - 1 ? fl_layout_param(&list->spec[t / w->o.n_moments]) : 0;
    }
    return FL_OK;
}

static fl_status queue_copies(const fl_checkpoint_writer *w, const fl_checkpoint_state *s)
{
    for (int i = 0; i < w->n_items; i++) {
        const item *file = &w->items[i];
        if (!file->linked) {
            const fl_st_layout *layout = layout_of(w, file);
            memcpy(w->buffer + file->at, layout->header, (size_t)layout->header_bytes);
            FL_TRY(file->part == FL_CHECKPOINT_WEIGHTS ? copy_weights(w, s->params, file)
                                                       : copy_moments(w, s, file));
        }
    }
    return FL_OK;
}

/* The buffer belongs to copies that were queued until they are done, also after a failure. */
static fl_status copy_files(const fl_checkpoint_writer *w, const fl_checkpoint_state *s)
{
    fl_failure failure;
    fl_failure_keep(&failure, queue_copies(w, s));
    fl_status synced = s->params == NULL
                           ? FL_OK
                           : s->params->device->ops->sync(s->params->device, s->params->stream);
    return failure.status == FL_OK ? synced : fl_failure_raise(&failure);
}

/* ---- ③ and ④ ---- */

/* The folder at work, and the files in it that may not be on the disk yet, the oldest first. */
typedef struct output {
    int folder_fd, kept_fd;
    int n;
    const item *items[UNSYNCED_MAX];
    fl_checkpoint_file files[UNSYNCED_MAX];
} output;

static void report_file(fl_checkpoint_writer *w, const item *file, const fl_checkpoint_file *done)
{
    fl_checkpoint_file_report report = {
        .step = w->report.step, .layer = file->layer, .part = file->part, .linked = done == NULL};
    if (done != NULL) {
        report.bytes = done->bytes;
        report.xxh64 = done->xxh64;
    }
    w->report.n_files++;
    w->report.bytes += report.bytes;
    pthread_mutex_lock(&w->report_lock);
    if (!atomic_load(&w->closing)) {
        w->o.on_file(w->o.context, &report);
    }
    pthread_mutex_unlock(&w->report_lock);
}

static void report_part(fl_checkpoint_writer *w, const fl_checkpoint_part_report *report)
{
    pthread_mutex_lock(&w->report_lock);
    if (!atomic_load(&w->closing)) {
        w->o.on_part(w->o.context, report);
    }
    pthread_mutex_unlock(&w->report_lock);
}

static fl_status finish_oldest(fl_checkpoint_writer *w, output *out)
{
    char name[FL_CHECKPOINT_NAME_MAX];
    const item *file = out->items[0];
    fl_checkpoint_file done = out->files[0];
    out->n--;
    memmove(&out->items[0], &out->items[1], (size_t)out->n * sizeof out->items[0]);
    memmove(&out->files[0], &out->files[1], (size_t)out->n * sizeof out->files[0]);
    FL_TRY(
        fl_checkpoint_file_finish(&done, fl_checkpoint_file_name(file->part, file->layer, name)));
    report_file(w, file, &done);
    return FL_OK;
}

/* A file that does not agree with the manifest is not linked any more. *file_fd is open, or -1. */
static fl_status check_link(fl_checkpoint_writer *w, int kept_fd, const item *file, int *file_fd)
{
    char name[FL_CHECKPOINT_NAME_MAX];
    const fl_checkpoint_kept_file *kept = fl_checkpoint_kept(w->o.store, file->part, file->layer);
    fl_status status = fl_checkpoint_file_check(
        kept_fd, fl_checkpoint_file_name(file->part, file->layer, name), atomic_load(&kept->bytes),
        atomic_load(&kept->xxh64), &w->closing, file_fd);
    if (status == FL_EFORMAT) {
        w->damaged_at[index_of(w, file)] = w->kept_step;
    }
    return status;
}

/* The place of the file that is written next. */
static fl_status take_place(fl_checkpoint_writer *w, output *out, fl_checkpoint_file **next)
{
    if (out->n == UNSYNCED_MAX) {
        FL_TRY(finish_oldest(w, out));
    }
    *next = &out->files[out->n];
    return FL_OK;
}

/* The file is copied where it cannot be linked. */
static fl_status link_checked(fl_checkpoint_writer *w, output *out, const item *file,
                              const char *name, int file_fd)
{
    int64_t bytes = atomic_load(&fl_checkpoint_kept(w->o.store, file->part, file->layer)->bytes);
    bool refused = false;
    fl_checkpoint_file *next = NULL;
    FL_TRY(fl_checkpoint_file_link(out->kept_fd, out->folder_fd, name, &refused));
    if (!refused) {
        report_file(w, file, NULL);
        return FL_OK;
    }
    FL_TRY(take_place(w, out, &next));
    FL_TRY(fl_checkpoint_file_copy(file_fd, bytes, out->folder_fd, name, &w->closing, next));
    out->items[out->n++] = file;
    return FL_OK;
}

static fl_status link_item(fl_checkpoint_writer *w, output *out, const item *file, const char *name)
{
    int file_fd = -1;
    FL_TRY(check_link(w, out->kept_fd, file, &file_fd));
    fl_status status = link_checked(w, out, file, name, file_fd);
    close(file_fd);
    return status;
}

static fl_status write_item(fl_checkpoint_writer *w, output *out, const item *file)
{
    char name[FL_CHECKPOINT_NAME_MAX];
    fl_checkpoint_file *next = NULL;
    fl_checkpoint_file_name(file->part, file->layer, name);
    if (file->linked) {
        return link_item(w, out, file, name);
    }
    FL_TRY(take_place(w, out, &next));
    FL_TRY(fl_checkpoint_file_write(out->folder_fd, name, w->buffer + file->at,
                                    layout_of(w, file)->total_bytes, &w->closing, next));
    out->items[out->n++] = file;
    return FL_OK;
}

static fl_status open_folder(int dir_fd, int64_t step, int *out)
{
    char name[FL_CHECKPOINT_NAME_MAX];
    *out = openat(dir_fd, fl_checkpoint_folder_name(step, name),
                  O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    return *out >= 0 ? FL_OK
                     : fl_fail(FL_EIO, "cannot open the folder %s: %s", name, strerror(errno));
}

/* The first worker makes the folder. That of the newest checkpoint may have been deleted since its
 * files were listed: then the first link fails. */
static fl_status open_folders(const fl_checkpoint_writer *w, output *out)
{
    char name[FL_CHECKPOINT_NAME_MAX];
    int dir_fd = w->o.store->dir_fd;
    fl_checkpoint_folder_name(w->report.step, name);
    if (mkdirat(dir_fd, name, 0700) != 0 && errno != EEXIST) {
        return fl_fail(FL_EIO, "cannot make the folder %s: %s", name, strerror(errno));
    }
    FL_TRY(open_folder(dir_fd, w->report.step, &out->folder_fd));
    out->kept_fd = open_kept(w);
    return FL_OK;
}

static fl_status write_files(fl_checkpoint_writer *w, output *out)
{
    FL_TRY(open_folders(w, out));
    for (int i = 0; i < w->n_items; i++) {
        FL_TRY(write_item(w, out, &w->items[i]));
    }
    while (out->n > 0) {
        FL_TRY(finish_oldest(w, out));
    }
    return FL_OK;
}

static void report_failure(const fl_checkpoint_writer *w, fl_checkpoint_part_report *report,
                           fl_status status)
{
    char name[FL_CHECKPOINT_NAME_MAX];
    fl_checkpoint_folder_name(report->step, name);
    report->status = fl_within(status, "worker %d, %s", w->o.rank, name);
    snprintf(report->text, sizeof report->text, "%s", fl_errmsg());
}

static void write_checkpoint(fl_checkpoint_writer *w)
{
    output out = {.folder_fd = -1, .kept_fd = -1};
    fl_status status = write_files(w, &out);
    if (status != FL_OK) {
        report_failure(w, &w->report, status);
    }
    for (int i = 0; i < out.n; i++) {
        fl_checkpoint_file_abandon(&out.files[i]);
    }
    if (out.kept_fd >= 0) {
        close(out.kept_fd);
    }
    if (out.folder_fd >= 0) {
        close(out.folder_fd);
    }
    w->report.write_us = fl_now_us() - w->copied_us;
    report_part(w, &w->report);
}

/* ---- the thread ---- */

static void *writer_main(void *argument)
{
    fl_checkpoint_writer *w = argument;
    fl_thread_lower_priority();
    pthread_mutex_lock(&w->lock);
    while (!atomic_load(&w->closing) || w->work != IDLE) {
        work now = w->work;
        if (now == IDLE) {
            pthread_cond_wait(&w->changed, &w->lock);
            continue;
        }
        pthread_mutex_unlock(&w->lock);
        if (now == WRITE) {
            write_checkpoint(w);
        } else {
            (void)!take_room(w); /* begin tries again, and reports */
        }
        pthread_mutex_lock(&w->lock);
        w->work = IDLE;
        pthread_cond_broadcast(&w->changed);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

static work work_of(fl_checkpoint_writer *w)
{
    pthread_mutex_lock(&w->lock);
    work now = w->work;
    pthread_mutex_unlock(&w->lock);
    return now;
}

/* Only while the thread is idle. */
static fl_status give_work(fl_checkpoint_writer *w, work what)
{
    if (!w->started) {
        FL_TRY(fl_thread_start(&w->thread, writer_main, w, "the checkpoint's thread"));
        pthread_setname_np(w->thread, "fl-checkpoint");
        w->started = true;
    }
    pthread_mutex_lock(&w->lock);
    w->work = what;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    return FL_OK;
}

/* ---- what the training thread calls ---- */

fl_status fl_checkpoint_writer_create(const fl_checkpoint_writer_options *options,
                                      fl_checkpoint_writer **out)
{
    fl_checkpoint_writer *w = NULL;
    size_t n_layers = (size_t)fl_model_n_layers(options->model);
    size_t n_files = FL_CHECKPOINT_PARTS * n_layers;
    FL_TRY(fl_alloc(sizeof *w, (void **)&w));
    w->o = *options;
    w->n_layers = (int)n_layers;
    pthread_mutex_init(&w->report_lock, NULL);
    pthread_mutex_init(&w->lock, NULL);
    fl_condition_init(&w->changed);
    fl_status status = fl_alloc_array(n_layers, sizeof *w->frozen_since, (void **)&w->frozen_since);
    if (status == FL_OK) {
        status = fl_alloc_array(n_files, sizeof *w->layout, (void **)&w->layout);
    }
    if (status == FL_OK) {
        status = fl_alloc_array(n_files, sizeof *w->items, (void **)&w->items);
    }
    if (status == FL_OK) {
        status = fl_alloc_array(n_files, sizeof *w->damaged_at, (void **)&w->damaged_at);
    }
    if (status != FL_OK) {
        fl_checkpoint_writer_destroy(&w);
        return status;
    }
    for (int layer = 0; layer < w->n_layers; layer++) {
        w->frozen_since[layer] = INT64_MAX;
    }
    for (size_t i = 0; i < n_files; i++) {
        w->damaged_at[i] = -1;
    }
    *out = w;
    return FL_OK;
}

void fl_checkpoint_writer_destroy(fl_checkpoint_writer **writer)
{
    fl_checkpoint_writer *w = *writer;
    *writer = NULL;
    if (w == NULL) {
        return;
    }
    pthread_mutex_lock(&w->report_lock);
    atomic_store(&w->closing, true);
    pthread_mutex_unlock(&w->report_lock);
    if (w->started) {
        pthread_mutex_lock(&w->lock);
        pthread_cond_broadcast(&w->changed);
        pthread_mutex_unlock(&w->lock);
        if (fl_checkpoint_writer_wait(w, fl_deadline_us(DESTROY_MS)) != FL_OK) {
            pthread_detach(w->thread); /* a disk that does not return */
            return;
        }
        pthread_join(w->thread, NULL);
    }
    for (int i = 0; w->layout != NULL && i < FL_CHECKPOINT_PARTS * w->n_layers; i++) {
        fl_st_layout_fini(&w->layout[i]);
    }
    give_buffer(w);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    pthread_mutex_destroy(&w->report_lock);
    fl_free(w->layout);
    fl_free(w->items);
    fl_free(w->frozen_since);
    fl_free(w->damaged_at);
    fl_free(w);
}

void fl_checkpoint_writer_follow(fl_checkpoint_writer *w, const fl_plan *plan, int64_t step)
{
    int n_frozen = fl_frozen_layers(w->o.model, plan->F);
    for (int layer = 0; layer < w->n_layers; layer++) {
        if (layer >= n_frozen) {
            w->frozen_since[layer] = INT64_MAX;
        } else if (w->frozen_since[layer] == INT64_MAX) {
            w->frozen_since[layer] = step;
        }
    }
}

void fl_checkpoint_writer_prepare(fl_checkpoint_writer *w, const fl_checkpoint_state *state)
{
    if (work_of(w) == IDLE) {
        list_items(w, state);
        (void)!give_work(w, TAKE_ROOM); /* begin tries again, and reports */
    }
}

void fl_checkpoint_writer_check_links(fl_checkpoint_writer *w, const fl_checkpoint_state *state)
{
    list_items(w, state);
    int kept_fd = open_kept(w);
    for (int i = 0; kept_fd >= 0 && i < w->n_items; i++) {
        int file_fd = -1;
        fl_status status =
            w->items[i].linked ? check_link(w, kept_fd, &w->items[i], &file_fd) : FL_OK;
        (void)status; /* a damaged file is noted */
        if (file_fd >= 0) {
            close(file_fd);
        }
    }
    if (kept_fd >= 0) {
        close(kept_fd);
    }
}

fl_status fl_checkpoint_writer_wait(fl_checkpoint_writer *w, int64_t deadline_us)
{
    pthread_mutex_lock(&w->lock);
    while (w->work != IDLE && fl_condition_wait_until(&w->changed, &w->lock, deadline_us)) {
    }
    bool idle = w->work == IDLE;
    pthread_mutex_unlock(&w->lock);
    return idle ? FL_OK
                : fl_fail(FL_EDEADLINE, "the checkpoint after step %lld is not on the disk yet",
                          (long long)w->report.step);
}

/* A part that ends before anything is written. */
static void end_part(const fl_checkpoint_writer *w, fl_checkpoint_part_report *report,
                     fl_status status)
{
    if (status != FL_OK) {
        report_failure(w, report, status);
    }
    w->o.on_part(w->o.context, report);
}

static fl_status copy_state(fl_checkpoint_writer *w, const fl_checkpoint_state *state,
                            int64_t started_us)
{
    list_items(w, state);
    fl_status status = take_room(w);
    if (status == FL_OK) {
        FL_TRY(copy_files(w, state));
        w->copied_us = fl_now_us();
        w->report.copy_us = w->copied_us - started_us;
        w->report.buffer_bytes = w->memory_bytes;
        status = w->n_items == 0 ? FL_OK : give_work(w, WRITE);
    }
    if (status != FL_OK || w->n_items == 0) {
        end_part(w, &w->report, status);
    }
    return FL_OK;
}

fl_status fl_checkpoint_writer_begin(fl_checkpoint_writer *w, const fl_checkpoint_state *state,
                                     int64_t step)
{
    int64_t started_us = fl_now_us();
    fl_checkpoint_part_report report = {.step = step, .generation = state->plan->generation};
    pthread_mutex_lock(&w->lock);
    while (w->work == TAKE_ROOM) {
        pthread_cond_wait(&w->changed, &w->lock);
    }
    bool busy = w->work == WRITE;
    pthread_mutex_unlock(&w->lock);
    if (busy) {
        end_part(w, &report, fl_fail(FL_EBUSY, "the checkpoint before is still being written"));
        return FL_OK;
    }
    w->report = report;
    return copy_state(w, state, started_us);
}

int64_t fl_checkpoint_writer_bytes(const fl_checkpoint_writer *w)
{
    return w->memory_bytes;
}
