#include "pipe/state/checkpoint/checkpoint_writer_parts.h"

#include "device/errors/failure.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"
#include "pipe/cost/layout.h"
#include "pipe/cost/plan.h"
#include "pipe/state/checkpoint/checkpoint_file.h"
#include "pipe/state/head_keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- ① ---- */

int fl__checkpoint_index_of(const fl_checkpoint_writer *w, const fl__checkpoint_item *file)
{
    return (int)file->part * w->n_layers + file->layer;
}

fl_st_layout *fl__checkpoint_layout_of(const fl_checkpoint_writer *w,
                                       const fl__checkpoint_item *file)
{
    return &w->layout[fl__checkpoint_index_of(w, file)];
}

/* -1: it is not there. It may be a link to a folder. */
int fl__checkpoint_open_kept(const fl_checkpoint_writer *w)
{
    char name[FL_CHECKPOINT_NAME_MAX];
    return w->kept_step < 0
               ? -1
               : openat(w->o.store->dir_fd, fl_checkpoint_folder_name(w->kept_step, name),
                        O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* Whether the newest checkpoint has this file of a frozen layer: a user may have deleted it. */
static bool can_link(const fl_checkpoint_writer *w, int kept_fd, const fl__checkpoint_item *file)
{
    char name[FL_CHECKPOINT_NAME_MAX];
    struct stat st;
    int64_t bytes = atomic_load(&fl_checkpoint_kept(w->o.store, file->part, file->layer)->bytes);
    return kept_fd >= 0 && w->frozen_since[file->layer] <= w->kept_step &&
           w->damaged_at[fl__checkpoint_index_of(w, file)] != w->kept_step && bytes > 0 &&
           fstatat(kept_fd, fl_checkpoint_file_name(file->part, file->layer, name), &st,
                   AT_SYMLINK_NOFOLLOW) == 0 &&
           S_ISREG(st.st_mode) && st.st_size == bytes;
}

/* The worker that writes what `from` has. */
static int writer_of(const fl_checkpoint_state *s, int layer, int from)
{
    return s->far == NULL || from < s->far->n_head ? from
                                                   : fl_head_keeper(s->plan, s->far->n_head, layer);
}

/* The files of this worker, the frozen ones linked if the newest checkpoint has them. */
static void list_items(fl_checkpoint_writer *w, const fl_checkpoint_state *s)
{
    const fl_checkpoint_writer_options *o = &w->o;
    w->n_items = 0;
    w->kept_step = atomic_load(o->store->kept_step);
    int kept_fd = fl__checkpoint_open_kept(w);
    for (int layer = 0; layer < w->n_layers; layer++) {
        for (int part = 0; part < FL_CHECKPOINT_PARTS; part++) {
            fl__checkpoint_item file = {.part = (fl_checkpoint_part)part, .layer = layer};
            file.from = fl_checkpoint_writer_rank(o->model, s->plan, s->parked->rank, o->n_moments,
                                                  file.part, layer);
            file.to = writer_of(s, layer, file.from);
            if (file.from == o->rank || file.to == o->rank) {
                file.linked = file.from == file.to && can_link(w, kept_fd, &file);
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
        const fl__checkpoint_item *file = &w->items[i];
        fl_st_layout *layout = fl__checkpoint_layout_of(w, file);
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
        fl__checkpoint_item *file = &w->items[i];
        file->at = bytes;
        if (!file->linked) {
            int64_t n = fl__checkpoint_layout_of(w, file)->total_bytes;
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

static fl_status copy_weights(const fl_checkpoint_writer *w, const fl_params *p,
                              const fl__checkpoint_item *file)
{
    const fl_st_layout *layout = fl__checkpoint_layout_of(w, file);
    const fl_layer_params *mine = &p->layer[file->layer - p->first];
    char *image = w->buffer + file->at;
    for (int i = 0; i < layout->n; i++) {
        FL_TRY(p->device->ops->copy_out(p->device, p->stream, image + layout->begin_byte[i],
                                        mine->weight[i].data,
                                        (size_t)layout->n_elements[i] * sizeof(float)));
    }
    return FL_OK;
}

const float *fl_checkpoint_moments(const fl_checkpoint_state *s, int layer, bool *on_host)
{
    *on_host = s->parked->moments[layer] != NULL;
    return *on_host ? s->parked->moments[layer] : s->params->moments[layer - s->params->first];
}

static fl_status copy_moments(const fl_checkpoint_writer *w, const fl_checkpoint_state *s,
                              const fl__checkpoint_item *file)
{
    const fl_st_layout *layout = fl__checkpoint_layout_of(w, file);
    const fl_param_list *list = fl_model_params(w->o.model, file->layer);
    const fl_params *p = s->params;
    bool parked = false;
    const float *from = fl_checkpoint_moments(s, file->layer, &parked);
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
        const fl__checkpoint_item *file = &w->items[i];
        if (!file->linked && file->from == w->o.rank) {
            const fl_st_layout *layout = fl__checkpoint_layout_of(w, file);
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

/* ---- the thread ---- */

/* Before the thread begins. Its report comes from other hosts' workers, too, once all has gone. */
static void begin_exchange(fl_checkpoint_writer *w, const fl_checkpoint_far *far)
{
    bool any = false;
    for (int i = 0; i < w->n_items; i++) {
        any = any || w->items[i].from != w->items[i].to;
    }
    w->far = *far;
    fl_background_use(&w->background, any ? far->messages : NULL);
}

void fl_checkpoint_writer_leave_messages(fl_checkpoint_writer *w, bool give_up)
{
    fl_background_leave(&w->background, give_up);
}

static void take_room_ahead(void *writer)
{
    (void)!take_room(writer); /* begin tries again, and reports */
}

static void write_part(void *writer)
{
    fl__checkpoint_write(writer);
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
    fl_background_init(&w->background, "fl-checkpoint", w);
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
    atomic_store(&w->replaced_step, -1);
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
    if (!fl_background_fini(&w->background)) {
        return; /* a disk that does not return */
    }
    for (int i = 0; w->layout != NULL && i < FL_CHECKPOINT_PARTS * w->n_layers; i++) {
        fl_st_layout_fini(&w->layout[i]);
    }
    give_buffer(w);
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

void fl_checkpoint_writer_replace(fl_checkpoint_writer *w, int64_t step)
{
    atomic_store(&w->replaced_step, step);
}

void fl_checkpoint_writer_prepare(fl_checkpoint_writer *w, const fl_checkpoint_state *state)
{
    if (fl_background_now(&w->background) == NULL) {
        list_items(w, state);
        (void)!fl_background_start(&w->background, take_room_ahead); /* begin tries again */
    }
}

void fl_checkpoint_writer_check_links(fl_checkpoint_writer *w, const fl_checkpoint_state *state)
{
    list_items(w, state);
    int kept_fd = fl__checkpoint_open_kept(w);
    for (int i = 0; kept_fd >= 0 && i < w->n_items; i++) {
        int file_fd = -1;
        fl_status status = w->items[i].linked
                               ? fl__checkpoint_check_link(w, kept_fd, &w->items[i], &file_fd)
                               : FL_OK;
        (void)status; /* a damaged file is noted */
        if (file_fd >= 0) {
            close(file_fd);
        }
    }
    if (kept_fd >= 0) {
        close(kept_fd);
    }
}

/* The controller may ask for the next checkpoint before the thread has returned from its report. */
bool fl_checkpoint_writer_is_busy(fl_checkpoint_writer *w)
{
    if (atomic_load(&w->reports)) {
        fl_background_await(&w->background, write_part);
    }
    return fl_background_now(&w->background) == write_part;
}

fl_status fl_checkpoint_writer_wait(fl_checkpoint_writer *w, int64_t deadline_us)
{
    return fl_background_wait(&w->background, deadline_us)
               ? FL_OK
               : fl_fail(FL_EDEADLINE, "the checkpoint after step %lld is not on the disk yet",
                         (long long)w->report.step);
}

/* A part that ends before anything is written. */
static void end_part(const fl_checkpoint_writer *w, fl_checkpoint_part_report *report,
                     fl_status status)
{
    if (status != FL_OK) {
        fl__checkpoint_report_failure(w, report, status);
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
        if (state->far != NULL) {
            begin_exchange(w, state->far);
        }
        w->copied_us = fl_now_us();
        w->report.copy_us = w->copied_us - started_us;
        w->report.buffer_bytes = w->memory_bytes;
        status = w->n_items == 0 ? FL_OK : fl_background_start(&w->background, write_part);
    }
    if (status != FL_OK && state->far != NULL) {
        fl_background_use(&w->background, NULL);
        return status; /* others wait for its files */
    }
    if (status != FL_OK || w->n_items == 0) {
        end_part(w, &w->report, status);
    }
    return FL_OK;
}

fl_status fl_checkpoint_writer_begin(fl_checkpoint_writer *w, const fl_checkpoint_state *state,
                                     int64_t step, int64_t serial)
{
    int64_t started_us = fl_now_us();
    fl_checkpoint_part_report report = {
        .step = step, .serial = serial, .generation = state->plan->generation};
    fl_background_await(&w->background, take_room_ahead);
    if (fl_checkpoint_writer_is_busy(w)) {
        end_part(w, &report, fl_fail(FL_EBUSY, "the checkpoint before is still being written"));
        return FL_OK;
    }
    w->report = report;
    atomic_store(&w->reports, false);
    return copy_state(w, state, started_us);
}

int64_t fl_checkpoint_writer_bytes(const fl_checkpoint_writer *w)
{
    return w->memory_bytes;
}
