#include "control/controller/parts/pass.h"

#include "control/link/wire/bytes.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void fl_pass_init(fl_pass *pass, const fl_pass_options *options)
{
    *pass = (fl_pass){.o = options};
    if (options != NULL) {
        pass->n_batches = (options->n_samples + options->batch - 1) / options->batch;
    }
}

void fl_pass_fini(fl_pass *pass)
{
    for (int i = 0; i < FL_PASS_AHEAD; i++) {
        fl_free(pass->slot[i].line);
        fl_free(pass->slot[i].text);
    }
    fl_free(pass->out);
    *pass = (fl_pass){0};
}

/* ---- reports ---- */

static int64_t batch_samples(const fl_pass *pass, int64_t batch)
{
    int64_t left = pass->o->n_samples - batch * pass->o->batch;
    return left < pass->o->batch ? left : pass->o->batch;
}

static fl_status add_line(fl_pass_slot *slot, int64_t id, const unsigned char *bytes, size_t n)
{
    FL_TRY(fl_alloc_room((void **)&slot->line, slot->n_lines, 1, sizeof *slot->line,
                         &slot->lines_capacity));
    FL_TRY(fl_alloc_room((void **)&slot->text, slot->text_bytes, n, 1, &slot->text_capacity));
    memcpy(slot->text + slot->text_bytes, bytes, n);
    slot->line[slot->n_lines++] =
        (fl_pass_line){.id = id, .begin = slot->text_bytes, .size_bytes = n};
    slot->text_bytes += n;
    return FL_OK;
}

static fl_status add_lines(fl_pass_slot *slot, const fl_pass_report *report)
{
    fl_reader r = {report->lines, report->lines_bytes, false};
    int64_t n = 0;
    for (; r.left > 0; n++) {
        int64_t id = fl_get_i64(&r);
        size_t size_bytes = fl_get(&r, 4);
        if (r.short_of_bytes || size_bytes > r.left) {
            return fl_fail(FL_EFORMAT, "line %lld is cut", (long long)n);
        }
        FL_TRY(add_line(slot, id, r.at, size_bytes));
        r.at += size_bytes;
        r.left -= size_bytes;
    }
    return n == report->n_samples ? FL_OK
                                  : fl_fail(FL_EFORMAT, "%lld lines of %lld samples", (long long)n,
                                            (long long)report->n_samples);
}

static int compare_lines(const void *a, const void *b)
{
    int64_t x = ((const fl_pass_line *)a)->id, y = ((const fl_pass_line *)b)->id;
    return x < y ? -1 : x > y;
}

/* The batch is complete: its lines follow those of the batch before. */
static fl_status take_slot(fl_pass *pass, fl_pass_slot *slot)
{
    FL_TRY(fl_alloc_room((void **)&pass->out, pass->out_bytes, slot->text_bytes, 1,
                         &pass->out_capacity));
    if (slot->n_lines > 0) {
        qsort(slot->line, slot->n_lines, sizeof *slot->line, compare_lines);
    }
    for (size_t i = 0; i < slot->n_lines; i++) {
        memcpy(pass->out + pass->out_bytes, slot->text + slot->line[i].begin,
               slot->line[i].size_bytes);
        pass->out_bytes += slot->line[i].size_bytes;
    }
    slot->n_samples = 0;
    slot->n_lines = slot->text_bytes = 0;
    return FL_OK;
}

fl_status fl_pass_heard(fl_pass *pass, const fl_pass_report *report)
{
    int64_t batch = report->batch;
    if (pass->o == NULL || batch < pass->n_done || batch >= pass->n_done + FL_PASS_AHEAD ||
        batch >= pass->n_batches) {
        return fl_fail(FL_EFORMAT, "batch %lld is not one that is open", (long long)batch);
    }
    fl_pass_slot *slot = &pass->slot[batch % FL_PASS_AHEAD];
    if (report->n_samples > batch_samples(pass, batch) - slot->n_samples) {
        return fl_fail(FL_EFORMAT, "batch %lld has fewer samples", (long long)batch);
    }
    pass->begun_us = pass->begun_us == 0 ? fl_now_us() : pass->begun_us;
    if (pass->o->out_fd >= 0) {
        FL_TRY(add_lines(slot, report));
    }
    slot->n_samples += report->n_samples;
    while (pass->n_done < pass->n_batches) {
        slot = &pass->slot[pass->n_done % FL_PASS_AHEAD];
        if (slot->n_samples < batch_samples(pass, pass->n_done)) {
            break;
        }
        pass->outcome.n_samples += slot->n_samples;
        FL_TRY(take_slot(pass, slot));
        pass->n_done++;
    }
    return fl_pass_write(pass);
}

/* ---- lines ---- */

bool fl_pass_holds_lines(const fl_pass *pass)
{
    return pass->out_at < pass->out_bytes;
}

/* A pipe that can be written to takes PIPE_BUF bytes without waiting. */
static fl_status write_piece(fl_pass *pass)
{
    size_t left = pass->out_bytes - pass->out_at, n = left < PIPE_BUF ? left : PIPE_BUF;
    ssize_t written = write(pass->o->out_fd, pass->out + pass->out_at, n);
    if (written < 0 && errno != EINTR && errno != EAGAIN) {
        return fl_fail(errno == EPIPE ? FL_ESTOPPED : FL_EIO, "%s could not be written: %s",
                       pass->o->out, strerror(errno));
    }
    pass->out_at += written < 0 ? 0 : (size_t)written;
    return FL_OK;
}

fl_status fl_pass_write(fl_pass *pass)
{
    struct pollfd out = {.events = POLLOUT};
    if (pass->o == NULL) {
        return FL_OK;
    }
    out.fd = pass->o->out_fd;
    while (fl_pass_holds_lines(pass) && poll(&out, 1, 0) == 1) {
        FL_TRY(write_piece(pass));
    }
    if (fl_pass_holds_lines(pass)) {
        return FL_OK;
    }
    pass->out_at = pass->out_bytes = 0;
    if (!atomic_load(&pass->o->gate->ends)) {
        atomic_store(&pass->o->gate->open, pass->n_done + FL_PASS_AHEAD);
    }
    return FL_OK;
}

void fl_pass_stop(fl_pass *pass)
{
    if (pass->o != NULL) {
        atomic_store(&pass->o->gate->ends, true);
    }
}

void fl_pass_show(const fl_pass *pass, fl_progress *progress)
{
    if (pass->o->verb == NULL) {
        return;
    }
    double seconds = pass->begun_us == 0 ? 0 : (double)(fl_now_us() - pass->begun_us) * 1e-6;
    fl_progress_pass(progress, pass->o->verb, pass->outcome.n_samples, pass->o->n_samples, seconds);
}
