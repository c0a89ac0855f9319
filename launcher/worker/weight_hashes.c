/* Hashes of the weights, for `frostline diff`. Where train.hash_weights asks for it, each owner of
 * a layer in replica 0 appends a line to weights.jsonl in the run directory. A hash depends on the
 * bits of the weights alone, so plans that compute the same bits give the same hashes. */
#include "launcher/worker/worker_state.h"

#include "cache/value.h"
#include "device/alloc.h"
#include "device/log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { LINE_BYTES = 96 };

/* One write, so that lines of several workers do not mix. */
static fl_status append_lines(int dir_fd, const char *text, size_t n)
{
    int fd = openat(dir_fd, "weights.jsonl", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    ssize_t written = fd < 0 ? -1 : write(fd, text, n);
    int error = errno;
    if (fd >= 0) {
        close(fd);
    }
    return written == (ssize_t)n
               ? FL_OK
               : fl_fail(FL_EIO, "weights.jsonl: %s", strerror(written < 0 ? error : ENOSPC));
}

static size_t print_layers(const fl_params *p, int64_t step, char *text, size_t size_bytes)
{
    size_t n = 0;
    for (int layer = p->first; layer < p->last; layer++) {
        size_t bytes = (size_t)fl_params_layer_count(p, layer) * sizeof(float);
        uint64_t hash = fl_checksum(p->weight[layer - p->first], bytes, 0);
        n += (size_t)snprintf(text + n, size_bytes - n,
                              "{\"step\": %" PRId64 ", \"layer\": %d, \"hash\": \"%016" PRIx64
                              "\"}\n",
                              step, layer, hash);
    }
    return n;
}

static fl_status write_hashes(const fl_worker_state *w, const fl_params *p)
{
    size_t size_bytes = (size_t)(p->last - p->first) * LINE_BYTES + 1;
    void *text = NULL;
    FL_TRY(fl_alloc(size_bytes, &text));
    size_t n = print_layers(p, w->step, text, size_bytes);
    fl_status status = append_lines(w->c->dir_fd, text, n);
    fl_free(text);
    return status;
}

void fl_worker_hash_weights(fl_worker_state *w)
{
    int64_t every = w->c->job->train.hash_weights;
    if (every == 0 || w->step % every != 0 || w->now->place.replica != 0 || w->hashes_failed) {
        return;
    }
    if (write_hashes(w, fl_generation_params(w->now)) != FL_OK) {
        fl_log(FL_LOG_WARN, "stopped writing hashes of weights: %s", fl_errmsg());
        w->hashes_failed = true;
    }
}
