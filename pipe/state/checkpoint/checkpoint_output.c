/* ③ and ④: the files of a checkpoint are written or linked, and wait for the disk. */
#include "autodp/message_pieces.h"
#include "device/errors/failure.h"
#include "device/system/clock.h"
#include "pipe/state/checkpoint/checkpoint_file.h"
#include "pipe/state/checkpoint/checkpoint_writer_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Files that may be written and not yet on the disk: it works on them while the next is written. */
enum { UNSYNCED_MAX = 16 };

/* The folder at work, and the files in it that may not be on the disk yet, the oldest first. */
typedef struct output {
    int folder_fd, kept_fd;
    int n;
    const fl__checkpoint_item *items[UNSYNCED_MAX];
    fl_checkpoint_file files[UNSYNCED_MAX];
} output;

static void report_file(fl_checkpoint_writer *w, const fl__checkpoint_item *file,
                        const fl_checkpoint_file *done)
{
    fl_checkpoint_file_report report = {.step = w->report.step,
                                        .serial = w->report.serial,
                                        .generation = w->report.generation,
                                        .layer = file->layer,
                                        .part = file->part,
                                        .linked = done == NULL};
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
    const fl__checkpoint_item *file = out->items[0];
    fl_checkpoint_file done = out->files[0];
    out->n--;
    memmove(&out->items[0], &out->items[1], (size_t)out->n * sizeof out->items[0]);
    memmove(&out->files[0], &out->files[1], (size_t)out->n * sizeof out->files[0]);
    FL_TRY(
        fl_checkpoint_file_finish(&done, fl_checkpoint_file_name(file->part, file->layer, name)));
    report_file(w, file, &done);
    return FL_OK;
}

fl_status fl__checkpoint_check_link(fl_checkpoint_writer *w, int kept_fd,
                                    const fl__checkpoint_item *file, int *file_fd)
{
    char name[FL_CHECKPOINT_NAME_MAX];
    const fl_checkpoint_kept_file *kept = fl_checkpoint_kept(w->o.store, file->part, file->layer);
    fl_status status = fl_checkpoint_file_check(
        kept_fd, fl_checkpoint_file_name(file->part, file->layer, name), atomic_load(&kept->bytes),
        atomic_load(&kept->xxh64), &w->closing, file_fd);
    if (status == FL_EFORMAT) {
        w->damaged_at[fl__checkpoint_index_of(w, file)] = w->kept_step;
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
static fl_status link_checked(fl_checkpoint_writer *w, output *out, const fl__checkpoint_item *file,
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

static fl_status link_item(fl_checkpoint_writer *w, output *out, const fl__checkpoint_item *file,
                           const char *name)
{
    int file_fd = -1;
    FL_TRY(fl__checkpoint_check_link(w, out->kept_fd, file, &file_fd));
    fl_status status = link_checked(w, out, file, name, file_fd);
    close(file_fd);
    return status;
}

static fl_status make_item(fl_checkpoint_writer *w, output *out, const fl__checkpoint_item *file,
                           const char *name)
{
    fl_checkpoint_file *next = NULL;
    if (file->linked) {
        return link_item(w, out, file, name);
    }
    FL_TRY(take_place(w, out, &next));
    FL_TRY(fl_checkpoint_file_write(out->folder_fd, name, w->buffer + file->at,
                                    fl__checkpoint_layout_of(w, file)->total_bytes, &w->closing,
                                    next));
    out->items[out->n++] = file;
    return FL_OK;
}

/* A file that was left by a try that was given up is replaced. Another worker may still be busy
 * with that try, and make the same file once more in between: it writes on without a name, or finds
 * that the file is there. */
static fl_status write_item(fl_checkpoint_writer *w, output *out, const fl__checkpoint_item *file)
{
    char name[FL_CHECKPOINT_NAME_MAX];
    fl_checkpoint_file_name(file->part, file->layer, name);
    fl_status status = make_item(w, out, file, name);
    for (int i = 0; status == FL_EBUSY && atomic_load(&w->replaced_step) == w->report.step &&
                    i < FL_MAX_WORKERS;
         i++) {
        (void)unlinkat(out->folder_fd, name, 0);
        status = make_item(w, out, file, name);
    }
    return status;
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
    out->kept_fd = fl__checkpoint_open_kept(w);
    return FL_OK;
}

/* ---- between hosts ---- */

static fl_status move_file(const fl_checkpoint_writer *w, const fl__checkpoint_item *file)
{
    bool sends = file->from == w->o.rank;
    return fl_message_pieces(w->far.messages, sends ? file->to : file->from, sends,
                             (uint32_t)fl__checkpoint_index_of(w, file), w->buffer + file->at,
                             (size_t)fl__checkpoint_layout_of(w, file)->total_bytes,
                             w->far.deadline_ms);
}

static fl_status make_files(fl_checkpoint_writer *w, output *out, const fl__checkpoint_item *file)
{
    if (file->to == w->o.rank && out->folder_fd < 0) {
        FL_TRY(open_folders(w, out));
    }
    return file->to == w->o.rank ? write_item(w, out, file) : FL_OK;
}

/* After a failure, it still takes what others send, so that they do not wait. */
static fl_status write_files(fl_checkpoint_writer *w, output *out)
{
    fl_failure failure = {.status = FL_OK};
    for (int i = 0; i < w->n_items; i++) {
        const fl__checkpoint_item *file = &w->items[i];
        fl_status status = file->from == file->to ? FL_OK : move_file(w, file);
        if (failure.status == FL_OK && status == FL_OK) {
            status = make_files(w, out, file);
        }
        if (failure.status == FL_OK && status != FL_OK) {
            fl_failure_keep(&failure, status);
        }
    }
    fl_background_use(&w->background, NULL);
    while (failure.status == FL_OK && out->n > 0) {
        fl_failure_keep(&failure, finish_oldest(w, out));
    }
    return fl_failure_raise(&failure);
}

void fl__checkpoint_report_failure(const fl_checkpoint_writer *w, fl_checkpoint_part_report *report,
                                   fl_status status)
{
    char name[FL_CHECKPOINT_NAME_MAX];
    fl_checkpoint_folder_name(report->step, name);
    report->status = fl_within(status, "worker %d, %s", w->o.rank, name);
    snprintf(report->text, sizeof report->text, "%s", fl_errmsg());
}

void fl__checkpoint_write(fl_checkpoint_writer *w)
{
    output out = {.folder_fd = -1, .kept_fd = -1};
    fl_status status = write_files(w, &out);
    if (status != FL_OK) {
        fl__checkpoint_report_failure(w, &w->report, status);
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
    atomic_store(&w->reports, true);
    report_part(w, &w->report);
}
