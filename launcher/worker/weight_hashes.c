/* Hashes of the weights, for `frostline diff`. Where train.hash_weights asks for it, each owner of
 * a layer in replica 0 appends a line to weights.jsonl in the run directory. A hash depends on the
 * bits of the weights alone, so plans that compute the same bits give the same hashes. */
#include "launcher/worker/worker_state.h"

#include "cache/value.h"
#include "control/events/runfiles.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

enum {
    LINE_BYTES = 112 + FL_LAYER_NAME_MAX,
    LOCK_MS = 5000, /* another worker, or a program of the user's, may be stopped with the lock */
    LOOK_MS = 2,
};

/* Returns 0, or errno: ETIMEDOUT if another process keeps the lock for LOCK_MS. */
static int lock_file(int fd)
{
    int64_t deadline_us = fl_deadline_us(LOCK_MS);
    while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR) {
            return errno;
        }
        if (fl_left_ms(deadline_us) == 0) {
            return ETIMEDOUT;
        }
        (void)poll(NULL, 0, LOOK_MS);
    }
    return 0;
}

/* One worker at a time, so that their lines do not mix and a cut write can be taken back. Returns
 * 0, or errno. */
static int append_lines(int dir_fd, const char *text, size_t n)
{
    int fd = openat(dir_fd, "weights.jsonl", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd < 0) {
        return errno;
    }
    int error = lock_file(fd);
    error = error != 0 ? error : fl_runfile_append(fd, text, n);
    close(fd);
    return error;
}

/* room: as fl_params_read_weights needs for any layer */
static fl_status print_layers(const fl_params *p, int64_t step, float *room, char *text,
                              size_t size_bytes)
{
    size_t n = 0;
    for (int layer = p->first; layer < p->last; layer++) {
        size_t bytes = (size_t)fl_params_layer_count(p, layer) * fl_dtype_size(FL_F32);
        const float *weights;
        FL_TRY(fl_params_read_weights(p, layer, room, &weights));
        uint64_t hash = fl_checksum(weights, bytes, 0);
        n += (size_t)snprintf(text + n, size_bytes - n,
                              "{\"step\": %" PRId64 ", \"layer\": %d, \"name\": \"%s\", "
                              "\"hash\": \"%016" PRIx64 "\"}\n",
                              step, layer, fl_model_layer_name(p->model, layer), hash);
    }
    return FL_OK;
}

static fl_status take_room(const fl_params *p, void **room)
{
    int64_t largest = 0;
    for (int layer = p->first; layer < p->last; layer++) {
        int64_t n = fl_params_layer_count(p, layer);
        largest = n > largest ? n : largest;
    }
    return p->device->ops->host_memory
               ? FL_OK
               : fl_alloc_array((size_t)largest, fl_dtype_size(FL_F32), room);
}

/* *error: 0, or errno if there is no memory or the file cannot be written. Fails with the device.
 */
static fl_status write_hashes(const fl_worker_state *w, const fl_params *p, int *error)
{
    size_t size_bytes = (size_t)(p->last - p->first) * LINE_BYTES + 1;
    void *text = NULL, *room = NULL;
    fl_status status = FL_OK;
    *error = ENOMEM;
    if (fl_alloc(size_bytes, &text) == FL_OK && take_room(p, &room) == FL_OK) {
        status = print_layers(p, w->step, room, text, size_bytes);
        *error = status == FL_OK ? append_lines(w->c->dir_fd, text, strlen(text)) : 0;
    }
    fl_free(text);
    fl_free(room);
    return status;
}

fl_status fl_worker_hash_weights(fl_worker_state *w)
{
    int64_t every = w->c->job->train.hash_weights;
    if (every == 0 || w->step % every != 0 || w->now->place.replica != 0 || w->hashes_failed) {
        return FL_OK;
    }
    int error;
    FL_TRY(write_hashes(w, fl_generation_params(w->now), &error));
    if (error != 0) {
        w->hashes_failed = true;
        fl_link_hashes_failed(w->link, &(fl_hashes_failed_report){.step = w->step, .error = error});
    }
    return FL_OK;
}
